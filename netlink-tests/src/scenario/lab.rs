//! The node, the hosts around it, and the proxy under test.
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

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use engine::routing::Routing;

use super::expect::{Expect, Family, Probe, Protocol, Scope};
use super::object::{Node, Object, ServiceCidr};
use super::oracle::Oracle;
use super::proxy::{Proxy, Sent, routing};
use test_hosts::Answer;
use test_hosts::Host;
use test_hosts::Server;
use test_hosts::{NODE_IP, Net};

/// The hosts and the proxy.
#[derive(Debug)]
pub struct Lab {
    /// The hosts.
    pub world: World,
    /// The proxy on the node.
    pub proxy: Proxy,
}

/// The hosts and their servers.
#[derive(Debug)]
pub struct World {
    net: Net,
    hosts: BTreeMap<&'static str, Host>,
    servers: Vec<Server>,
    /// Every probe has a new source port: a conntrack entry of an earlier probe
    /// would determine its destination.
    next_port: AtomicU16,
    oracle: Oracle,
}

impl Lab {
    /// A lab with the usual cluster CIDRs, Node and ServiceCIDR.
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        Self::with(routing())
    }

    /// A lab with other settings.
    #[must_use]
    #[track_caller]
    pub fn with(routing: Routing) -> Self {
        Self::with_node_addresses(routing, &[])
    }

    /// A lab whose node has more addresses, on its loopback interface.
    ///
    /// # Panics
    /// When an address is none.
    #[must_use]
    #[track_caller]
    pub fn with_node_addresses(routing: Routing, addresses: &[&str]) -> Self {
        let world = World::new();
        for address in addresses {
            world.node().add_address(address.parse::<IpAddr>().expect("an address"));
        }
        let proxy = Proxy::start(world.node(), routing);
        let mut lab = Self { world, proxy };
        let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let _ = lab.apply(&[&Node::new(), &cidrs]);
        lab
    }

    /// A lab that has nothing but hosts: neither Node nor ServiceCIDR.
    #[must_use]
    #[track_caller]
    pub fn without_objects(routing: Routing) -> Self {
        let world = World::new();
        let proxy = Proxy::start(world.node(), routing);
        Self { world, proxy }
    }

    /// Makes objects so, and commits.
    #[track_caller]
    pub fn apply(&mut self, objects: &[&dyn Object]) -> Sent {
        self.proxy.apply(objects)
    }

    /// Removes objects, and commits.
    #[track_caller]
    pub fn remove(&mut self, objects: &[&dyn Object]) -> Sent {
        self.proxy.remove(objects)
    }

    /// Checks rows of (client, destination, expectation) by every protocol in both families.
    #[track_caller]
    pub fn check(&self, rows: &[(&str, &str, Expect)]) {
        self.check_in(Scope::ALL, rows);
    }

    /// Checks rows by some protocols and families.
    ///
    /// # Panics
    /// With everything that was otherwise than expected.
    #[track_caller]
    pub fn check_in(&self, scope: Scope, rows: &[(&str, &str, Expect)]) {
        let failures = self.world.failures(scope, rows);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    #[track_caller]
    fn new() -> Self {
        let net = Net::new();
        let mut hosts = BTreeMap::from([("node", net.node().clone())]);
        for (name, place, ip) in HOSTS {
            let host = match place {
                HostSite::OnNode => net.pod(name, ip),
                HostSite::OtherNode => net.remote_pod(name, ip),
                HostSite::Outside => net.outside(name, ip),
            };
            hosts.insert(name, host);
        }
        net.route_everything_to(&hosts["outside"]);
        let mut world = Self {
            oracle: Oracle::new(net.node()),
            net,
            hosts,
            servers: Vec::new(),
            next_port: AtomicU16::new(FIRST_PORT),
        };
        SERVERS.iter().for_each(|name| world.serve(name, name, TARGET_PORT));
        world
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Host {
        self.net.node()
    }

    /// A host by name.
    #[must_use]
    #[track_caller]
    pub fn host(&self, name: &str) -> &Host {
        self.hosts.get(name).unwrap_or_else(|| panic!("no host is called {name}"))
    }

    /// Adds a pod on the node, at the node's interface of this name. It serves nothing.
    #[track_caller]
    pub fn add_pod(&mut self, name: &'static str, interface: &str, ip: &str) {
        let former = self.hosts.insert(name, self.net.pod_behind(interface, ip));
        assert!(former.is_none(), "there is a host called {name}");
    }

    /// Serves TCP, UDP and SCTP on one more port of a host, for as long as the lab is there.
    #[track_caller]
    pub fn serve(&mut self, host: &str, name: &str, port: u16) {
        let host = self.host(host).clone();
        self.oracle.add_server(name, &host, port);
        self.servers.extend(serve_all(&host, name, port));
    }

    /// Sends one probe from a source port not used before.
    #[must_use]
    #[track_caller]
    pub fn ask(&self, client: &str, to: SocketAddr, protocol: Protocol) -> Answer {
        self.send_predicted(self.host(client), to, protocol)
    }

    /// The same from a hasty host.
    #[must_use]
    #[track_caller]
    pub fn ask_hastily(&self, client: &str, to: SocketAddr, protocol: Protocol) -> Answer {
        self.send_predicted(&self.host(client).hasty(), to, protocol)
    }

    /// As [`Self::ask`] without a comparison with the prediction of `explain`, for load.
    #[must_use]
    #[track_caller]
    pub fn ask_fast(&self, client: &str, to: SocketAddr, protocol: Protocol) -> Answer {
        self.send_from(self.host(client), to, protocol)
    }

    #[track_caller]
    fn send_predicted(&self, client: &Host, to: SocketAddr, protocol: Protocol) -> Answer {
        let predicted = self.oracle.predict(client, to, protocol);
        let answer = self.send_from(client, to, protocol);
        self.oracle.check(predicted.as_ref(), client, &answer);
        answer
    }

    #[track_caller]
    fn send_from(&self, client: &Host, to: SocketAddr, protocol: Protocol) -> Answer {
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        assert!(port >= FIRST_PORT, "the lab has run out of source ports");
        let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
        let source = (any, port);
        match protocol {
            Protocol::Tcp => client.connect_tcp_from(source, to),
            Protocol::Udp => client.send_udp_from(source, to),
            Protocol::Sctp => client.send_sctp_from(port, to),
        }
    }

    /// How often each server answered `count` probes.
    ///
    /// # Panics
    /// When one of them was not answered.
    #[must_use]
    #[track_caller]
    pub fn shares(
        &self,
        client: &str,
        to: &str,
        (family, protocol): (Family, Protocol),
        count: usize,
    ) -> BTreeMap<String, usize> {
        let to = destination(to, family);
        let mut shares = BTreeMap::new();
        let host = self.host(client);
        let predicted = self.oracle.predict(host, to, protocol);
        for _ in 0..count {
            let answer = self.ask_fast(client, to, protocol);
            self.oracle.check(predicted.as_ref(), host, &answer);
            let server = answer.server().to_owned();
            *shares.entry(server).or_default() += 1;
        }
        shares
    }

    /// Probes all rows at once, because silence takes the whole limit.
    fn failures(&self, scope: Scope, rows: &[(&str, &str, Expect)]) -> Vec<String> {
        let mut probes = Vec::new();
        for (client, to, expect) in rows {
            for &family in scope.families {
                let to = destination(to, family);
                let probe = |&protocol| (Probe { world: self, client, to, protocol }, expect);
                probes.extend(scope.protocols.iter().map(probe));
            }
        }
        thread::scope(|threads| {
            let running = probes
                .into_iter()
                .map(|(probe, expect)| threads.spawn(move || probe.check(expect).err()));
            let running: Vec<_> = running.collect();
            let outcomes = running.into_iter().map(|thread| thread.join().expect("a probe"));
            outcomes.flatten().collect()
        })
    }
}

/// An address and port as written in rows, or its IPv6 twin.
#[track_caller]
pub(crate) fn destination(to: &str, family: Family) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap_or_else(|_| panic!("not an IPv4 address: {to}"));
    SocketAddr::new(family.of(*to.ip()), to.port())
}

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

fn serve_all(host: &Host, name: &str, port: u16) -> [Server; 3] {
    [host.serve_tcp(port, name), host.serve_udp(port, name), host.serve_sctp(port, name)]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostSite {
    OnNode,
    OtherNode,
    Outside,
}

const HOSTS: [(&str, HostSite, &str); 6] = [
    ("pod", HostSite::OnNode, "10.244.1.9"),
    ("a", HostSite::OnNode, "10.244.1.5"),
    ("b", HostSite::OnNode, "10.244.1.6"),
    ("c", HostSite::OtherNode, "10.244.2.7"),
    ("d", HostSite::OtherNode, "10.244.2.8"),
    ("outside", HostSite::Outside, "192.0.2.10"),
];

/// The hosts that serve.
const SERVERS: [&str; 4] = ["a", "b", "c", "d"];

/// Where they serve.
const TARGET_PORT: u16 = 8080;

/// Above every port that a test serves on.
const FIRST_PORT: u16 = 10_000;
