//! A node with pods and services, and the daemon on it.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use netlink_tests::scenario::{Manifests, Node, Object, Service, ServiceCidr, Slice};
use netlink_tests::{Answer, Host, Net, Process, Server, eventually, ip6_of, kernel_has_owners};
use nix::sys::signal::Signal;

use crate::machine::{Machine, SOON, packages};

/// A service of the cluster, with its endpoint.
struct Served {
    name: &'static str,
    cluster_ip: &'static str,
    node_port: u16,
    external_ip: &'static str,
    endpoint: &'static str,
}

/// The endpoint of the first is a pod of the node, that of the second one of another node.
const SERVICES: [Served; 2] = [
    Served {
        name: "near",
        cluster_ip: "10.96.0.10",
        node_port: 30080,
        external_ip: "198.51.100.1",
        endpoint: "a",
    },
    Served {
        name: "far",
        cluster_ip: "10.96.0.11",
        node_port: 30081,
        external_ip: VIP,
        endpoint: "c",
    },
];

/// The external IP of the service `far`.
pub(crate) const VIP: &str = "198.51.100.2";

pub(crate) const NODE: &str = "192.168.50.2";

pub(crate) const OUTSIDE: &str = "192.0.2.10";

/// Whether the daemon owns its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    On,
    Off,
}

pub(crate) struct Cluster {
    pub(crate) machine: Machine,
    pub(crate) ownership: Ownership,
    /// A pod of the node that is no endpoint.
    pub(crate) client: Host,
    pub(crate) outside: Host,
    daemon: Option<Process>,
    manifests: Manifests,
    _servers: Vec<Server>,
    _endpoints: [Host; 2],
    pub(crate) net: Net,
}

impl Cluster {
    /// A node on which no daemon ran; none if the kernel has no owners of tables and one is wanted.
    pub(crate) fn new(ownership: Ownership) -> Option<Self> {
        if ownership == Ownership::On && !kernel_has_owners() {
            return None;
        }
        let root = packages();
        let net = Net::new();
        let endpoints = [net.pod("a", "10.244.1.5"), net.remote_pod("c", "10.244.2.7")];
        let client = net.pod("client", "10.244.1.9");
        let outside = net.outside("outside", OUTSIDE);
        net.route_everything_to(&outside);
        let hosts = [("a", &endpoints[0]), ("c", &endpoints[1]), ("outside", &outside)];
        let servers = hosts
            .iter()
            .flat_map(|(name, host)| [host.serve_tcp(8080, name), host.serve_udp(8080, name)]);
        let servers = servers.collect();
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let manifests = Manifests::new(&[("cidr", &cidr), ("node", &Node::new())]);
        for served in &SERVICES {
            let service = Service::new(served.name, served.cluster_ip)
                .node_port(80, served.node_port)
                .external_ip(served.external_ip);
            manifests.write(served.name, &service);
            let slice = Slice::new(served.name).endpoints(served.endpoint);
            manifests.write(&format!("{}-slice", served.name), &slice);
        }
        let machine = Machine::start(net.node(), root.to_str().unwrap());
        Some(Self {
            machine,
            ownership,
            client,
            outside,
            daemon: None,
            manifests,
            _servers: servers,
            _endpoints: endpoints,
            net,
        })
    }

    pub(crate) fn node(&self) -> &Host {
        self.net.node()
    }

    /// Adds a file of manifests.
    pub(crate) fn add(&self, name: &str, object: &dyn Object) {
        self.manifests.write(name, object);
    }

    /// Starts the daemon and waits until it serves.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        let ownership = match self.ownership {
            Ownership::On => "--table-ownership=on",
            Ownership::Off => "--table-ownership=off",
        };
        let options = ["--healthz-bind-address=", "--metrics-bind-address=", ownership];
        self.daemon = Some(self.manifests.run_with(self.node(), &options));
        eventually("complete tables", SOON, || self.tables_are_complete().then_some(()));
    }

    fn tables_are_complete(&self) -> bool {
        self.manifests.once(self.node(), "verify").code() == Some(0)
    }

    pub(crate) fn owns_tables(&self) -> bool {
        let flags = |family| format!("nft -t list table {family} kube-proxy");
        ["ip", "ip6"]
            .iter()
            .all(|family| self.machine.run(&flags(family)).stdout.contains("flags owner"))
    }

    #[track_caller]
    pub(crate) fn kill(&mut self) {
        let daemon = self.daemon.take().unwrap();
        daemon.signal(Signal::SIGKILL);
        let _ = daemon.finish(SOON);
    }

    #[track_caller]
    pub(crate) fn terminate(&mut self) {
        assert_eq!(self.daemon.take().unwrap().terminate(SOON).code(), Some(0));
    }

    /// Every service answers every kind of client, at every address, by TCP and UDP; the tables are
    /// those of the objects.
    #[track_caller]
    pub(crate) fn assert_serves(&self, when: &str) {
        for served in &SERVICES {
            self.assert_is_served(served, when);
        }
        // A regular end removes the rules of chain cluster-ips-check.
        let verified = self.manifests.once(self.node(), "verify");
        let is_complete = verified.code() == Some(0)
            || verified.stdout.contains("\n0 of ") && self.daemon.is_none();
        assert!(is_complete, "{when}: {}{}", verified.stdout, verified.stderr);
    }

    #[track_caller]
    fn assert_is_served(&self, served: &Served, when: &str) {
        let cluster_ip = address(served.cluster_ip, 80);
        let rows = [
            (&self.client, cluster_ip),
            (&self.client, twin(cluster_ip)),
            (self.node(), cluster_ip),
            (&self.outside, address(NODE, served.node_port)),
            (&self.outside, twin(address(NODE, served.node_port))),
            (&self.outside, address(served.external_ip, 80)),
        ];
        for (host, to) in rows {
            for answer in [host.connect_tcp(to), host.send_udp(to)] {
                assert!(is_from(&answer, served.endpoint), "{when}: {to}: {answer:?}");
            }
        }
    }

    /// Waits until services work, after their tables were removed.
    #[track_caller]
    pub(crate) fn wait_until_complete(&self) {
        eventually("complete tables", SOON, || self.tables_are_complete().then_some(()));
    }
}

pub(crate) fn is_from(answer: &Answer, server: &str) -> bool {
    matches!(answer, Answer::From { server: from, .. } if from == server)
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddrV4::new(ip.parse().unwrap(), port).into()
}

/// The same in IPv6.
fn twin(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => (ip6_of(ip), address.port()).into(),
        IpAddr::V6(_) => address,
    }
}
