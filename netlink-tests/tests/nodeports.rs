//! Which addresses serve NodePorts, also while the node's addresses and its Node object change.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use Expect::{Closed, Refused, Silent};
use daemon::source::addresses::follow_local_addresses;
use engine::model::HostAddresses;
use engine::routing::Routing;
use netlink_tests::scenario::{
    Expect, Family, Lab, Manifests, NODE_PORT, Node, Protocol, Scope, ServiceCidr, WEB,
    keeps_source, masquerades, routing, slice, web_with_node_port as web,
};
use netlink_tests::{Answer, Flow, Host, Net, Process, eventually};
use tokio::sync::watch;

const ADDED: [&str; 2] = ["192.168.51.2", "fd00:192:168:51::2"];
const ADDED_NODE_PORT: &str = "192.168.51.2:30080";
const CLIENTS: [&str; 3] = ["pod", "node", "outside"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn lab(node_port_addresses: &str, own: &[&str]) -> Lab {
    let node_port_addresses = node_port_addresses.parse().unwrap();
    let mut lab = Lab::with_node_addresses(Routing { node_port_addresses, ..routing() }, own);
    lab.apply(&[&web(), &slice("a c")]);
    lab
}

/// A row for every client.
fn from_everywhere<'a>(to: &'a str, expect: &Expect) -> Vec<(&'a str, &'a str, Expect)> {
    CLIENTS.map(|client| (client, to, expect.clone())).to_vec()
}

// Addresses of the node.

/// kube-proxy takes up to an hour for that.
#[test]
fn an_address_in_a_range_serves_node_ports_until_it_is_removed() {
    let mut lab = lab("192.168.51.0/24,fd00:192:168:51::/64", &[]);
    for _ in 0..2 {
        ADDED.iter().for_each(|address| lab.world.node().add_address(ip(address)));
        lab.check(&from_everywhere(ADDED_NODE_PORT, &Closed));
        lab.proxy.look_at_addresses(lab.world.node());
        lab.check(&from_everywhere(ADDED_NODE_PORT, &masquerades("a c")));
        lab.check(&from_everywhere(NODE_PORT, &Closed));
        ADDED.iter().for_each(|address| lab.world.node().remove_address(ip(address)));
        let sent = lab.proxy.look_at_addresses(lab.world.node());
        assert!(sent.script().contains("delete element ip kube-proxy nodeport-ips"), "{sent:?}");
        // Nothing has the address now: packets to it go to the default route.
        lab.check(&[("pod", ADDED_NODE_PORT, Silent), ("outside", ADDED_NODE_PORT, Silent)]);
    }
}

fn is_served_soon(flow: &mut Flow) -> bool {
    matches!(flow.ask_hastily(), Answer::From { .. })
}

/// Flows that began before the address was the node's, and those left after its removal.
#[test]
fn udp_flows_follow_an_address_that_is_added_and_removed() {
    for ranges in ["192.168.51.0/24,fd00:192:168:51::/64", "0.0.0.0/0,::/0"] {
        let mut lab = lab(ranges, &[]);
        let ports = ADDED.map(|address| SocketAddr::from((ip(address), 30080)));
        let mut flows = ports.map(|port| lab.world.host("outside").open_udp(port));
        assert!(!flows.iter_mut().any(is_served_soon));
        ADDED.iter().for_each(|address| lab.world.node().add_address(ip(address)));
        lab.proxy.look_at_addresses(lab.world.node());
        assert!(flows.iter_mut().all(|flow| matches!(flow.ask(), Answer::From { .. })));
        ADDED.iter().for_each(|address| lab.world.node().remove_address(ip(address)));
        lab.proxy.look_at_addresses(lab.world.node());
        assert!(!flows.iter_mut().any(is_served_soon));
    }
}

#[test]
fn an_address_outside_the_ranges_changes_nothing() {
    for addresses in ["primary", "192.168.50.0/24,fd00:192:168:50::/64", "0.0.0.0/0,::/0"] {
        let mut lab = lab(addresses, &[]);
        ADDED.iter().for_each(|address| lab.world.node().add_address(ip(address)));
        let sent = lab.proxy.look_at_addresses(lab.world.node());
        assert!(sent.transactions.is_empty(), "{}", sent.script());
    }
}

/// With `primary`, and with a range that holds only one of two addresses.
#[test]
fn a_second_address_serves_only_inside_a_range() {
    let primary = lab("primary", &ADDED);
    primary.check(&from_everywhere(NODE_PORT, &masquerades("a c")));
    primary.check(&from_everywhere(ADDED_NODE_PORT, &Closed));
    let ranges = lab("192.168.51.2/32,fd00:192:168:51::2/128", &ADDED);
    ranges.check(&from_everywhere(ADDED_NODE_PORT, &masquerades("a c")));
    ranges.check(&from_everywhere(NODE_PORT, &Closed));
}

/// A broadcast address is not one of the node.
#[test]
fn a_broadcast_address_is_not_translated() {
    let lab = lab("0.0.0.0/0,::/0", &[]);
    lab.check_in(Scope::IPV4, &[("pod", "10.244.1.1:30080", masquerades("a c"))]);
    let everybody =
        lab.world.ask_hastily("pod", "255.255.255.255:30080".parse().unwrap(), Protocol::Udp);
    assert!(!matches!(everybody, Answer::From { .. }), "{everybody:?}");
}

// The Node object.

/// kube-proxy then opens every address of the other family.
#[test]
fn a_node_object_of_one_family_opens_node_ports_in_that_family() {
    let mut lab = lab("primary", &[]);
    for (address, open, closed) in [
        ("192.168.50.2", Scope::IPV4, Scope::IPV6),
        ("fd00:192:168:50::2", Scope::IPV6, Scope::IPV4),
    ] {
        lab.apply(&[&Node::new().addresses(&[ip(address)])]);
        lab.check_in(open, &from_everywhere(NODE_PORT, &masquerades("a c")));
        lab.check_in(closed, &from_everywhere(NODE_PORT, &Closed));
        lab.check(&[("pod", WEB, keeps_source("a c"))]);
    }
}

/// kube-proxy then opens every address.
#[test]
fn node_ports_are_closed_until_the_node_object_exists() {
    let mut lab = Lab::without_objects(routing());
    ADDED.iter().for_each(|address| lab.world.node().add_address(ip(address)));
    lab.apply(&[&web(), &slice("a c")]);
    lab.check(&from_everywhere(NODE_PORT, &Closed));
    lab.check(&from_everywhere(ADDED_NODE_PORT, &Closed));
    lab.check(&[("pod", WEB, keeps_source("a c"))]);
    lab.apply(&[&Node::new()]);
    lab.check(&from_everywhere(NODE_PORT, &masquerades("a c")));
    lab.check(&from_everywhere(ADDED_NODE_PORT, &Closed));
}

#[test]
fn node_ports_move_with_the_primary_address() {
    let mut lab = lab("primary", &ADDED);
    lab.apply(&[&Node::new().addresses(&ADDED.map(ip))]);
    lab.check(&from_everywhere(ADDED_NODE_PORT, &masquerades("a c")));
    lab.check(&from_everywhere(NODE_PORT, &Closed));
}

/// An address that a cloud translates to one of the node: packets that carry it are served.
#[test]
fn a_primary_address_on_no_interface_serves_node_ports() {
    let mut lab = lab("primary", &[]);
    lab.apply(&[&Node::new().addresses(&[ip("203.0.113.1"), ip("fd00:203:0:113::1")])]);
    for client in ["pod", "outside"] {
        lab.check(&[(client, "203.0.113.1:30080", masquerades("a c"))]);
    }
}

// The way to a NodePort.

#[test]
fn the_node_reaches_its_own_node_ports_and_is_refused_without_endpoints() {
    let mut lab = lab("primary", &[]);
    for endpoints in ["a c", "a", "c"] {
        lab.apply(&[&slice(endpoints)]);
        lab.check(&[("node", NODE_PORT, masquerades(endpoints))]);
    }
    lab.apply(&[&slice("")]);
    lab.check(&[("node", NODE_PORT, Refused)]);
}

/// The packet belongs to the other node; this one does not translate it.
#[test]
fn a_node_port_of_another_node_is_handled_there() {
    let mut lab = lab("0.0.0.0/0,::/0", &[]);
    let other = lab.world.host("outside").clone();
    ADDED.iter().for_each(|address| other.add_address(ip(address)));
    lab.world.serve("outside", "the other node", 30080);
    let to = |family: Family| -> SocketAddr {
        let address = if family == Family::Ipv4 { ADDED[0] } else { ADDED[1] };
        (ip(address), 30080).into()
    };
    for family in Family::ALL {
        for client in ["pod", "node"] {
            for protocol in Protocol::ALL {
                let answer = lab.world.ask(client, to(family), protocol);
                assert_eq!(answer.server(), "the other node");
            }
        }
    }
}

// The daemon.

/// How long a daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A node with the server pod `a`, the client pod `p`, and a daemon.
struct Daemon {
    net: Net,
    client: Host,
    _servers: [netlink_tests::Server; 2],
    manifests: Manifests,
    process: Process,
}

impl Daemon {
    #[track_caller]
    fn start(arguments: &[&str], node: Option<&Node>) -> Self {
        let net = Net::new();
        let pod = net.pod("a", "10.244.1.5");
        let servers = [pod.serve_tcp(8080, "a"), pod.serve_udp(8080, "a")];
        let client = net.pod("p", "10.244.1.9");
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16"]);
        let manifests = Manifests::new(&[("cidr", &cidr), ("web", &web())]);
        manifests.set_endpoints("a");
        if let Some(node) = node {
            manifests.write("node", node);
        }
        let quiet = ["--healthz-bind-address=", "--metrics-bind-address="];
        let process = manifests.run_with(net.node(), &[&quiet, arguments].concat());
        Self { net, client, _servers: servers, manifests, process }
    }

    /// Waits until the client gets an answer there, or a refusal.
    #[track_caller]
    fn wait_for(&self, to: &str, is_open: bool) {
        eventually(&format!("{to} is open: {is_open}"), SOON, || {
            let open = matches!(self.client.connect_tcp(to), Answer::From { .. });
            (open == is_open).then_some(())
        });
    }
}

/// By the notifications of the kernel.
#[test]
fn a_daemon_follows_the_addresses_of_interfaces() {
    let ranges = "--nodeport-addresses=192.168.51.0/24,fd00:192:168:51::/64";
    let daemon = Daemon::start(&[ranges], Some(&Node::new()));
    let node = daemon.net.node();
    daemon.wait_for(WEB, true);
    let ports = ADDED.map(|address| SocketAddr::from((ip(address), 30080)).to_string());
    for _ in 0..3 {
        for (address, port) in ADDED.iter().zip(&ports) {
            node.add_address(ip(address));
            daemon.wait_for(port, true);
        }
        for (address, port) in ADDED.iter().zip(&ports) {
            node.remove_address(ip(address));
            daemon.wait_for(port, false);
        }
    }
}

/// In the first mode a commit makes the address serve, in the second no commit is needed.
#[test]
fn a_daemon_ends_udp_flows_from_before_an_address_was_the_nodes() {
    for ranges in ["192.168.51.0/24,fd00:192:168:51::/64", "0.0.0.0/0,::/0"] {
        let daemon = Daemon::start(&["--nodeport-addresses", ranges], Some(&Node::new()));
        let node = daemon.net.node();
        let outside = daemon.net.outside("outside", "192.0.2.10");
        daemon.net.route_everything_to(&outside);
        daemon.wait_for(WEB, true);
        let ports = ADDED.map(|address| SocketAddr::from((ip(address), 30080)));
        let mut flows = ports.map(|port| daemon.client.open_udp(port));
        assert!(!flows.iter_mut().any(is_served_soon));
        ADDED.iter().for_each(|address| node.add_address(ip(address)));
        eventually("both flows to be served", SOON, || {
            flows.iter_mut().all(is_served_soon).then_some(())
        });
    }
}

/// The socket's buffer overflows with unread notifications: some are lost.
#[test]
fn lost_notifications_of_addresses_are_made_good() {
    let net = Net::new();
    let node = net.node();
    let many = (0..10_000_u16).map(|i| {
        let [high, low] = i.to_be_bytes();
        IpAddr::from([172, 16, high, low])
    });
    let follow = async {
        let (sender, mut addresses) = watch::channel(HostAddresses::default());
        tokio::spawn(follow_local_addresses(sender));
        addresses.changed().await.unwrap();
        // This blocks the only thread of the runtime. Adding has a separate runtime, which cannot
        // start inside of this one.
        let add = || {
            node.add_addresses(many);
            node.add_address(ip(ADDED[0]));
        };
        thread::scope(|scope| scope.spawn(add).join().unwrap());
        let found = addresses.wait_for(|all| all.local.contains(&ip(ADDED[0])));
        let found = tokio::time::timeout(Duration::from_secs(4), found).await;
        assert_eq!(found.expect("in time").unwrap().local.len(), 10_000 + BEFORE + 1);
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    node.run(|| runtime.enable_all().build().unwrap().block_on(follow));
}

/// Addresses of the lab's node without any link: its own two and two of loopback.
const BEFORE: usize = 4;

#[test]
fn a_daemon_logs_closed_node_ports_once_and_opens_them_with_the_node_object() {
    let mut daemon = Daemon::start(&[], None);
    daemon.process.wait_for_line("NodePorts are closed", SOON);
    daemon.wait_for(WEB, true);
    daemon.wait_for(NODE_PORT, false);
    daemon.manifests.write("node", &Node::new().addresses(&[ip("192.168.50.2")]));
    daemon.process.wait_for_line("IPv6 NodePorts are closed", SOON);
    daemon.wait_for(NODE_PORT, true);
    daemon.manifests.write("node", &Node::new());
    daemon.process.wait_for_line("NodePorts are open", SOON);
    daemon.wait_for("[fd00:192:168:50::2]:30080", true);
}
