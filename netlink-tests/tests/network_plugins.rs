//! Programs of network plugins beside the tables: Felix of Calico and NodeLocal DNSCache.
//!
//! The requests and rules are those of these programs; docs/neighbours.md names their sources.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::Ipv4Addr;
use std::time::Duration;

use netlink_tests::scenario::{Manifests, Node, Service, ServiceCidr, Slice};
use netlink_tests::{
    Answer, Finished, Host, Net, Process, eventually, kernel_has_owners, nft_available,
};
use serde_json::Value;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The cluster IP of the DNS service, and that of its twin that the cache asks.
const DNS: &str = "10.96.0.10:53";
const UPSTREAM: &str = "10.96.0.11:53";
/// The address that NodeLocal DNSCache listens on.
const LOCAL: &str = "169.254.20.10:53";

/// A node with a pod that is the endpoint of both DNS services, and a client.
struct Cluster {
    net: Net,
    dns: Host,
    client: Host,
    _outside: Host,
    manifests: Manifests,
}

impl Cluster {
    fn new() -> Self {
        let net = Net::new();
        let [dns, client] =
            [("a", "10.244.1.5"), ("client", "10.244.1.9")].map(|(name, ip)| net.pod(name, ip));
        // Without a route, the node's own packets to cluster IPs do not leave.
        let outside = net.outside("outside", "192.0.2.10");
        net.route_everything_to(&outside);
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
        let slices = ["kube-dns", "upstream"]
            .map(|name| Slice::new(name).without_ports().target(53, 53).endpoints("a"));
        let manifests = Manifests::new(&[
            ("cidr", &cidr),
            ("node", &Node::new()),
            ("kube-dns", &Service::new("kube-dns", "10.96.0.10").port(53)),
            ("kube-dns-slice", &slices[0]),
            ("upstream", &Service::new("upstream", "10.96.0.11").port(53)),
            ("upstream-slice", &slices[1]),
        ]);
        Self { net, dns, client, _outside: outside, manifests }
    }

    fn node(&self) -> &Host {
        self.net.node()
    }

    /// Starts the daemon and waits for its first sync.
    fn start(&self, options: &[&str]) -> Process {
        let options = [&["--healthz-bind-address=", "--metrics-bind-address="], options].concat();
        let daemon = self.manifests.run_with(self.node(), &options);
        eventually("the tables", SOON, || {
            self.node().nft("list tables").contains("table ip6 kube-proxy").then_some(())
        });
        daemon
    }
}

/// Whether Felix finds kube-proxy in mode nftables, at its start in mode Auto.
///
/// `knftables.New` first checks that nft may add the table. Felix then counts the chains.
fn felix_finds_kube_proxy(node: &Host) -> bool {
    ["ip", "ip6"].iter().any(|family| {
        let checked = [" { comment \"test\" ; }", ""]
            .map(|more| format!("add table {family} kube-proxy{more}"))
            .iter()
            .any(|script| nft(node, &["--check", script]).code() == Some(0));
        checked && has_chains(node, family)
    })
}

/// Whether the requests of `knftables.List("chains")`, of former versions and of the present one, find
/// a chain of the table.
fn has_chains(node: &Host, family: &str) -> bool {
    let requests = [format!("list chains {family}"), format!("list table {family} kube-proxy")];
    let found = requests.map(|request| {
        let listed = nft(node, &["--json", &request]);
        listed.code() == Some(0) && has_chain(&serde_json::from_str(&listed.stdout).unwrap())
    });
    assert_eq!(found[0], found[1], "{family}");
    found[0]
}

fn has_chain(listed: &Value) -> bool {
    let objects = listed["nftables"].as_array().unwrap();
    assert_eq!(objects[0]["metainfo"]["json_schema_version"], 1);
    objects.iter().any(|object| object["chain"]["table"] == "kube-proxy")
}

fn nft(node: &Host, args: &[&str]) -> Finished {
    node.output("/usr/sbin/nft", args)
}

#[test]
fn felix_in_mode_auto_finds_tables_without_an_owner() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    assert!(!felix_finds_kube_proxy(cluster.node()));
    let daemon = cluster.start(&["--table-ownership=off"]);
    assert!(felix_finds_kube_proxy(cluster.node()));
    let _ = daemon.terminate(SOON);
    assert!(felix_finds_kube_proxy(cluster.node()));
}

/// The kernel refuses the check of `knftables.New`, so a Felix that starts now chooses iptables. One
/// that runs already lists the chains only.
#[test]
fn felix_in_mode_auto_does_not_find_owned_tables_before_their_daemon_ends() {
    if !nft_available() || !kernel_has_owners() {
        return;
    }
    let cluster = Cluster::new();
    let daemon = cluster.start(&[]);
    assert!(cluster.node().nft("list table ip kube-proxy").contains("flags owner"));
    assert!(!felix_finds_kube_proxy(cluster.node()));
    assert!(has_chains(cluster.node(), "ip") && has_chains(cluster.node(), "ip6"));
    let _ = daemon.terminate(SOON);
    assert!(felix_finds_kube_proxy(cluster.node()));
}

#[test]
fn nodelocal_dnscache_answers_queries_to_the_cluster_ip_of_dns() {
    if !nft_available() {
        return;
    }
    let cluster = Cluster::new();
    let _dns = (cluster.dns.serve_udp(53, "dns"), cluster.dns.serve_tcp(53, "dns"));
    let node = cluster.node();
    let _cache = (node.serve_udp(53, "cache"), node.serve_tcp(53, "cache"));
    let _daemon = cluster.start(&[]);
    let answers = |host: &Host, to| [host.send_udp(to), host.connect_tcp(to)];
    let clients = [&cluster.client, node];
    let all_reach = |to, server| {
        for answer in clients.into_iter().flat_map(|client| answers(client, to)) {
            assert_eq!(answer.server(), server, "{to}");
        }
    };
    eventually("an answer of the endpoint", SOON, || {
        matches!(cluster.client.connect_tcp(DNS), Answer::From { .. }).then_some(())
    });
    all_reach(DNS, "dns");
    let tracked = node.tracked().len();

    let cluster_ip = Ipv4Addr::new(10, 96, 0, 10);
    node.add_range(Ipv4Addr::new(169, 254, 20, 10), 32);
    node.add_range(cluster_ip, 32);
    node.nft_script(include_str!("../../examples/nodelocal-dns.nft"));
    all_reach(DNS, "cache");
    all_reach(LOCAL, "cache");
    for answer in answers(&cluster.client, DNS) {
        assert_eq!(answer.source(), cluster.client.ip());
    }
    assert_eq!(node.tracked().len(), tracked, "queries to the cache have no conntrack entries");
    all_reach(UPSTREAM, "dns");

    node.nft_script("delete table ip nodelocal-dns");
    node.remove_address(cluster_ip);
    all_reach(DNS, "dns");
}
