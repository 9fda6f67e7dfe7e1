//! The hosts of a lab: names, places and addresses.
//!
//! | name | what | address |
//! |---|---|---|
//! | `node` | the node itself | 192.168.50.2 |
//! | `pod` | a pod on the node that serves nothing | 10.244.1.9 |
//! | `a`, `b` | pods on the node | 10.244.1.5, 10.244.1.6 |
//! | `c`, `d` | pods on another node | 10.244.2.7, 10.244.2.8 |
//! | `outside` | a host outside the cluster, the node's default route | 192.0.2.10 |
//!
//! `a` to `d` serve TCP, UDP and SCTP on port 8080 and answer with their name.

use std::net::Ipv4Addr;

use test_hosts::NODE_IP;

/// The name of the lab's node.
pub const NODE_NAME: &str = "node-a";

/// The IPv4 address of the host of this name.
#[track_caller]
pub(crate) fn address_of(name: &str) -> Ipv4Addr {
    if name == "node" {
        return NODE_IP;
    }
    let found = HOSTS.iter().find(|(host, ..)| *host == name);
    let (_, _, ip) = found.unwrap_or_else(|| panic!("no host is called {name}"));
    ip.parse().expect("HOSTS has addresses")
}

/// Whether that is the node or a pod on it.
pub(crate) fn is_on_node(name: &str) -> bool {
    name == "node"
        || HOSTS.iter().any(|(host, place, _)| *host == name && *place == HostSite::OnNode)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostSite {
    OnNode,
    OtherNode,
    Outside,
}

pub(crate) const HOSTS: [(&str, HostSite, &str); 6] = [
    ("pod", HostSite::OnNode, "10.244.1.9"),
    ("a", HostSite::OnNode, "10.244.1.5"),
    ("b", HostSite::OnNode, "10.244.1.6"),
    ("c", HostSite::OtherNode, "10.244.2.7"),
    ("d", HostSite::OtherNode, "10.244.2.8"),
    ("outside", HostSite::Outside, "192.0.2.10"),
];
