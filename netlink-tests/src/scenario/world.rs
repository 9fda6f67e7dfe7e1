//! The hosts of a lab and their servers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use test_hosts::{Answer, Host, Net, Server};

use super::expect::{Family, Protocol, destination};
use super::hosts::{HOSTS, HostSite};
use super::oracle::Oracle;

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

impl World {
    #[track_caller]
    pub(super) fn new() -> Self {
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

    /// The same from a host that waits for an answer for a shorter time; see [`Host::hasty`].
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
}

fn serve_all(host: &Host, name: &str, port: u16) -> [Server; 3] {
    [host.serve_tcp(port, name), host.serve_udp(port, name), host.serve_sctp(port, name)]
}

/// The hosts that serve.
const SERVERS: [&str; 4] = ["a", "b", "c", "d"];

/// Where they serve.
const TARGET_PORT: u16 = 8080;

/// Above every port that a test serves on.
const FIRST_PORT: u16 = 10_000;
