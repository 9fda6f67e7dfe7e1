//! The objects of the cluster in few words.

use std::net::Ipv4Addr;

use test_hosts::NODES;

use crate::scenario::{Endpoint, Node, Service, Slice};

/// The load balancer's address of `web`, whose port is 80.
pub const ADDRESS: &str = "198.51.100.2";

/// The Node object of the node at this place, Ready.
#[must_use]
pub fn node(place: usize) -> Node {
    let last = 11 + u8::try_from(place).expect("a few nodes");
    let address = Ipv4Addr::new(192, 168, 60, last);
    let twin = test_hosts::ip6_of(address);
    Node::named(NODES[place]).addresses(&[address.into(), twin.into()]).ready(true)
}

/// Service `web` at [`ADDRESS`], which nodes hand to each other.
#[must_use]
pub fn web() -> Service {
    let service = Service::new("web", "10.96.0.10").port(80).load_balancer_ip(ADDRESS);
    service.annotation("deltaproxy.io/forwarding", "direct")
}

/// The slice of `web`, with these ready endpoints, such as `a1 b1`.
#[must_use]
pub fn slice(servers: &str) -> Slice {
    let slice = Slice::new("web");
    servers.split_whitespace().fold(slice, |slice, server| slice.endpoint(endpoint(server)))
}

/// The ready endpoint of a server, such as `a1`.
///
/// # Panics
/// When no server has this name.
#[must_use]
#[track_caller]
pub fn endpoint(server: &str) -> Endpoint {
    let find = |&(name, _, _): &(&str, usize, u8)| name == server;
    let found = SERVERS.into_iter().find(find);
    let (_, place, last) = found.unwrap_or_else(|| panic!("no server is called {server}"));
    let number = 1 + u8::try_from(place).expect("a few nodes");
    let address = Ipv4Addr::new(10, 244, number, last);
    Endpoint::new(&address.to_string()).on_node(NODES[place])
}

/// Name, place of the node, and last number of the address.
const SERVERS: [(&str, usize, u8); 6] =
    [("a1", 0, 5), ("a2", 0, 6), ("b1", 1, 5), ("b2", 1, 6), ("c1", 2, 5), ("c2", 2, 6)];
