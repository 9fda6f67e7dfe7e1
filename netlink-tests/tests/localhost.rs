//! NodePorts at 127.0.0.1, and the protection of 127.0.0.0/8 from other hosts.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use Expect::{Closed, Refused, Silent};
use daemon::node::{can_route_localnet, route_localnet};
use engine::routing::Routing;
use netlink_tests::reader;
use netlink_tests::scenario::{
    Expect, Lab, Manifests, NODE_PORT, Node, Protocol, Scope, ServiceCidr, WEB, keeps_source,
    masquerades, routing, slice, web_with_node_port as web,
};
use netlink_tests::{Answer, Host, Net, Process, deltaproxy_binary, eventually, nft_available};

/// The node port of `web` at the loopback address.
const LOCALHOST: &str = "127.0.0.1:30080";
/// Where a program on the node serves, for the node alone.
const LISTENER: &str = "127.0.0.1:7777";
/// The chain whose first rule protects loopback addresses.
const PRE_DNAT: &str = "filter-prerouting-pre-dnat";

/// A lab where the kernel routes loopback addresses.
fn lab(node_port_addresses: &str) -> Lab {
    let node_port_addresses = node_port_addresses.parse().unwrap();
    let mut lab = Lab::with(Routing { node_port_addresses, ..routing() });
    lab.apply(&[&web(), &slice("a c")]);
    lab.world.node().run(|| {
        can_route_localnet().unwrap();
        route_localnet().unwrap();
    });
    lab
}

#[test]
fn the_node_reaches_node_ports_at_localhost() {
    for addresses in [
        "primary,localhost",
        "localhost",
        "all,localhost",
        "10.0.0.0/8,localhost",
        "primary,127.0.0.0/8",
        "all,127.0.0.1/32",
        "0.0.0.0/0,127.0.0.0/8",
    ] {
        let mut lab = lab(addresses);
        let open = !matches!(addresses, "localhost" | "10.0.0.0/8,localhost");
        let at_node = if open { masquerades("a c") } else { Closed };
        for endpoints in ["a", "c", "a c"] {
            lab.apply(&[&slice(endpoints)]);
            lab.check_in(Scope::IPV4, &[("node", LOCALHOST, masquerades(endpoints))]);
        }
        lab.check(&[
            ("node", NODE_PORT, at_node.clone()),
            ("pod", NODE_PORT, at_node.clone()),
            ("outside", NODE_PORT, at_node),
            ("pod", WEB, keeps_source("a c")),
        ]);
        lab.apply(&[&slice("")]);
        lab.check_in(Scope::IPV4, &[("node", LOCALHOST, Refused)]);
    }
}

/// Distributions check that the way back to the source is by the same interface.
#[test]
fn answers_come_back_to_localhost_where_reverse_paths_are_checked() {
    let lab = lab("primary,localhost");
    lab.world.node().sysctl("ipv4/conf/all/rp_filter", "1");
    lab.check_in(Scope::IPV4, &[("node", LOCALHOST, masquerades("a c"))]);
}

#[test]
fn policy_local_is_for_clients_outside_and_the_node_reaches_all_endpoints() {
    let mut lab = lab("primary,localhost");
    lab.apply(&[&web().external_local()]);
    for endpoints in ["a c", "c"] {
        lab.apply(&[&slice(endpoints)]);
        lab.check_in(Scope::IPV4, &[("node", LOCALHOST, masquerades(endpoints))]);
    }
    lab.check(&[("outside", NODE_PORT, Silent)]);
}

#[test]
fn an_endpoint_in_the_network_of_the_node_is_reached() {
    let mut lab = lab("primary,localhost");
    lab.world.serve("node", "node", 8080);
    lab.apply(&[&slice("node")]);
    for protocol in Protocol::ALL {
        let answer = lab.world.ask("node", LOCALHOST.parse().unwrap(), protocol);
        assert_eq!(answer.server(), "node", "{protocol:?}");
    }
}

#[test]
fn all_alone_does_not_serve_localhost_even_with_route_localnet() {
    for addresses in ["primary", "all", "0.0.0.0/0", "primary,0.0.0.0/0", "primary,::1/128"] {
        let lab = lab(addresses);
        lab.check_in(Scope::IPV4, &[("node", LOCALHOST, Closed)]);
        assert!(!has_guard(lab.world.node()), "{addresses}");
    }
}

/// As for kube-proxy, a family without an entry has node ports at all of its addresses.
#[test]
fn a_range_of_loopback_addresses_alone_serves_localhost_and_closes_all_else_of_its_family() {
    for addresses in ["127.0.0.0/8", "127.0.0.1/32"] {
        let lab = lab(addresses);
        assert!(has_guard(lab.world.node()), "{addresses}");
        lab.check_in(
            Scope::IPV4,
            &[("node", LOCALHOST, masquerades("a c")), ("outside", NODE_PORT, Closed)],
        );
        lab.check_in(Scope::IPV6, &[("outside", NODE_PORT, masquerades("a c"))]);
    }
}

#[test]
fn the_loopback_address_of_ipv6_is_closed_and_its_other_node_ports_are_as_without_the_keyword() {
    for (addresses, at_node) in [
        ("primary,localhost", masquerades("a c")),
        ("localhost", Closed),
        ("all", masquerades("a")),
    ] {
        let mut lab = lab(addresses);
        if addresses == "all" {
            lab.apply(&[&slice("a")]);
        }
        lab.check_in(Scope::IPV6, &[("node", NODE_PORT, at_node.clone())]);
        lab.check_in(Scope::IPV6, &[("outside", NODE_PORT, at_node)]);
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let answer = lab.world.ask("node", "[::1]:30080".parse().unwrap(), protocol);
            assert_eq!(answer, Answer::Refused, "{addresses} {protocol:?}");
        }
    }
}

#[test]
fn udp_flows_to_localhost_leave_endpoints_that_go() {
    let mut lab = lab("primary,localhost");
    lab.apply(&[&slice("a")]);
    let mut flow = lab.world.node().open_udp(LOCALHOST);
    assert_eq!(flow.ask().server(), "a");
    lab.apply(&[&slice("c")]);
    assert_eq!(flow.ask().server(), "c");
    // From before anything served there.
    lab.remove(&[&web()]);
    let mut early = lab.world.node().open_udp(LOCALHOST);
    assert!(!matches!(early.ask(), Answer::From { .. }));
    lab.apply(&[&web()]);
    assert_eq!(early.ask().server(), "c");
}

// Other hosts.

/// A host that sends packets to 127.0.0.0/8 to the node, and a program on the node that serves there.
fn attacked(node_port_addresses: &str) -> Lab {
    let mut lab = lab(node_port_addresses);
    lab.world.serve("node", "listener", 7777);
    for attacker in ["outside", "pod"] {
        lab.world.host(attacker).give_up_loopback();
    }
    lab
}

fn from_attackers(to: &'static str, expect: &Expect) -> [(&'static str, &'static str, Expect); 2] {
    ["outside", "pod"].map(|attacker| (attacker, to, expect.clone()))
}

#[test]
fn packets_of_other_hosts_to_loopback_addresses_are_dropped() {
    for addresses in ["primary,localhost", "localhost", "all,localhost", "127.0.0.0/8"] {
        let lab = attacked(addresses);
        lab.check_in(Scope::IPV4, &from_attackers(LISTENER, &Silent));
        lab.check_in(Scope::IPV4, &from_attackers("127.1.2.3:7777", &Silent));
        lab.check_in(Scope::IPV4, &from_attackers(LOCALHOST, &Silent));
        lab.check_in(Scope::IPV4, &[("node", LOCALHOST, masquerades("a c"))]);
        check_listener(&lab);
    }
}

/// The behaviour of a kernel that routes loopback addresses without protection.
#[test]
fn without_the_rule_packets_of_other_hosts_reach_listeners_and_node_ports_at_localhost() {
    let reaches_listener = |lab: &Lab| {
        for attacker in ["outside", "pod"] {
            for protocol in Protocol::ALL {
                let answer = lab.world.ask(attacker, LISTENER.parse().unwrap(), protocol);
                assert_eq!(answer.server(), "listener", "{attacker} {protocol:?}");
            }
        }
    };
    reaches_listener(&attacked("primary"));
    if nft_available() {
        let lab = attacked("primary,localhost");
        lab.world.node().nft(&format!("flush chain ip kube-proxy {PRE_DNAT}"));
        reaches_listener(&lab);
        lab.check_in(Scope::IPV4, &from_attackers(LOCALHOST, &masquerades("a c")));
    }
}

/// A listener at a loopback address serves the node, from whichever of its addresses.
#[track_caller]
fn check_listener(lab: &Lab) {
    let node = lab.world.node();
    for source in ["127.0.0.1:0", "192.168.50.2:0"] {
        for answer in
            [node.connect_tcp_from(source, LISTENER), node.send_udp_from(source, LISTENER)]
        {
            assert_eq!(answer.server(), "listener", "from {source}");
        }
        let tcp = node.connect_tcp_from(source, LOCALHOST);
        assert!(matches!(tcp, Answer::From { .. }), "from {source}: {tcp:?}");
    }
}

#[test]
fn the_rule_exists_exactly_while_the_keyword_is_set() {
    let mut lab = lab("primary,localhost");
    assert!(has_guard(lab.world.node()));
    for (addresses, is_guarded) in [("primary", false), ("localhost", true), ("all", false)] {
        let node_port_addresses = addresses.parse().unwrap();
        let routing = Routing { node_port_addresses, ..routing() };
        lab.proxy = netlink_tests::scenario::Proxy::start(lab.world.node(), routing);
        lab.apply(&[&Node::new(), &web(), &slice("a c")]);
        assert_eq!(has_guard(lab.world.node()), is_guarded, "{addresses}");
        let expect = if is_guarded { masquerades("a c") } else { Closed };
        lab.check_in(Scope::IPV4, &[("node", LOCALHOST, expect)]);
    }
}

/// Whether the first chain has a rule before the two for source ranges, or is there for it alone.
fn has_guard(node: &Host) -> bool {
    let table = node.read_table(reader::Family::Ip).unwrap();
    match table.chains.get(PRE_DNAT).map(|chain| chain.rules.len()) {
        None | Some(2) => false,
        Some(1 | 3) => true,
        Some(other) => panic!("{other} rules"),
    }
}

// The commands.

/// How long a daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
const QUIET: [&str; 2] = ["--healthz-bind-address=", "--metrics-bind-address="];
const WITH_LOCALHOST: &str = "--nodeport-addresses=primary,localhost";
const LEFT_OUT: &str = "localhost NodePorts are left out: \
                        /proc/sys/net/ipv4/conf/all/route_localnet stays as it is, expected 1: \
                        Read-only file system";
const UNGUARDED: &str = "packets of other hosts to 127.0.0.0/8 are no longer dropped; set \
                         net.ipv4.conf.all.route_localnet to 0, unless another program needs 1";

/// A node with the pod `a` that serves.
struct World {
    net: Net,
    manifests: Manifests,
    _servers: [netlink_tests::Server; 2],
}

impl World {
    fn new() -> Self {
        let net = Net::new();
        let pod = net.pod("a", "10.244.1.5");
        let servers = [pod.serve_tcp(8080, "a"), pod.serve_udp(8080, "a")];
        let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16"]);
        let manifests = Manifests::new(&[("cidr", &cidr), ("web", &web()), ("node", &Node::new())]);
        manifests.set_endpoints("a");
        Self { net, manifests, _servers: servers }
    }

    fn daemon(&self, addresses: &str) -> Process {
        self.manifests.run_with(self.net.node(), &[&QUIET[..], &[addresses]].concat())
    }

    /// Runs the program where /proc/sys is read-only, as in most containers.
    fn spawn_read_only(&self, command: &str, more: &[&str]) -> Process {
        self.start_read_only(&[&self.manifests.arguments(command)[..], more].concat())
    }

    fn start_read_only(&self, arguments: &[&str]) -> Process {
        let binary = deltaproxy_binary();
        let script = "mount --rbind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && \
                      exec \"$@\"";
        let start = ["--mount", "sh", "-c", script, "sh", binary.to_str().unwrap()];
        self.net.node().spawn("unshare", &[&start, arguments].concat())
    }

    #[track_caller]
    fn wait_for(&self, to: &str, is_open: bool) {
        eventually(&format!("{to} is open: {is_open}"), SOON, || {
            let answer = self.net.node().connect_tcp(to);
            (matches!(answer, Answer::From { .. }) == is_open).then_some(())
        });
    }

    fn route_localnet(&self) -> String {
        let path = "/proc/sys/net/ipv4/conf/all/route_localnet";
        self.net.node().run(|| fs::read_to_string(path).unwrap()).trim().to_owned()
    }
}

#[test]
fn a_daemon_serves_localhost_and_reports_the_remaining_sysctl() {
    let world = World::new();
    let node = world.net.node();
    let mut daemon = world.daemon(WITH_LOCALHOST);
    daemon.wait_for_line("localhost NodePorts are served", SOON);
    let ipv6 = "localhost NodePorts of IPv6 are served at [::1], for TCP alone";
    assert!(daemon.output().contains(ipv6), "{}", daemon.output());
    world.wait_for(LOCALHOST, true);
    assert_eq!(node.send_udp(LOCALHOST).server(), "a");
    assert_eq!((world.route_localnet().as_str(), has_guard(node)), ("1", true));
    let _ = daemon.terminate(SOON);
    assert_eq!(node.connect_tcp(LOCALHOST).server(), "a");

    let again = world.daemon(WITH_LOCALHOST);
    world.wait_for(LOCALHOST, true);
    assert_eq!(again.terminate(SOON).warnings(), [""; 0]);

    let mut without = world.daemon("--nodeport-addresses=primary");
    without.wait_for_line(UNGUARDED, SOON);
    world.wait_for(LOCALHOST, false);
    world.wait_for(NODE_PORT, true);
    assert_eq!((world.route_localnet().as_str(), has_guard(node)), ("1", false));
    let _ = without.terminate(SOON);
    let cleanup = || node.output(deltaproxy_binary(), &["cleanup"]).ok();
    assert!(!cleanup().contains(UNGUARDED));

    let _ = world.apply(0);
    assert!(cleanup().contains(UNGUARDED));
    assert_eq!(world.route_localnet(), "1");
}

#[test]
fn a_range_is_enough_for_a_daemon_and_the_gate_closes_localhost() {
    let world = World::new();
    let mut daemon = world.daemon("--nodeport-addresses=primary,127.0.0.0/8");
    daemon.wait_for_line("localhost NodePorts are served", SOON);
    world.wait_for(LOCALHOST, true);
    let _ = daemon.terminate(SOON);
    let gate = "--feature-gates=KubeProxyNFTablesLocalhostNodePorts=false";
    let arguments = [&QUIET[..], &[WITH_LOCALHOST, gate]].concat();
    let _daemon = world.manifests.run_with(world.net.node(), &arguments);
    world.wait_for(LOCALHOST, false);
    world.wait_for(NODE_PORT, true);
}

impl World {
    #[track_caller]
    fn apply(&self, code: i32) -> String {
        let arguments = [&self.manifests.arguments("apply")[..], &[WITH_LOCALHOST]].concat();
        let finished = self.net.node().output(deltaproxy_binary(), &arguments);
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        finished.stderr
    }
}

#[test]
fn apply_serves_localhost() {
    let world = World::new();
    let _ = world.apply(0);
    let node = world.net.node();
    assert_eq!((world.route_localnet().as_str(), has_guard(node)), ("1", true));
    assert_eq!(node.connect_tcp(LOCALHOST).server(), "a");
}

/// Those of kube-proxy's defaults differ from the kernel's.
#[test]
fn sysctls_on_a_read_only_proc_are_one_line_of_the_log_and_the_start_goes_on() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("conntrack.conf");
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                mode: nftables\nhostnameOverride: node-a\nconntrack: {tcpEstablishedTimeout: 7m, udpTimeout: 77s}\n";
    fs::write(&config, text).unwrap();
    let (config, manifests) = (config.to_str().unwrap(), world.manifests.path().to_str().unwrap());
    let daemon = world.start_read_only(&["run", "--manifests", manifests, "--config", config]);
    world.wait_for(NODE_PORT, true);
    let finished = daemon.terminate(SOON);
    let warnings = finished.warnings();
    let about: Vec<_> = warnings.iter().filter(|it| it.contains("stays as it is")).collect();
    let [line] = about[..] else { panic!("{warnings:?}") };
    for sysctl in ["tcp_timeout_established", "udp_timeout"] {
        assert!(line.contains(&format!("nf_conntrack_{sysctl} stays as it is")), "{line}");
    }
}

#[test]
fn where_the_sysctl_cannot_be_written_localhost_is_left_out_and_all_else_works() {
    let world = World::new();
    let node = world.net.node();
    for (command, code) in [("plan", 2), ("apply", 1)] {
        let finished = world.spawn_read_only(command, &[WITH_LOCALHOST]).finish(SOON);
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        assert!(finished.stderr.contains(LEFT_OUT), "{}", finished.stderr);
    }
    let mut daemon = world.spawn_read_only("run", &[&QUIET[..], &[WITH_LOCALHOST]].concat());
    daemon.wait_for_line(LEFT_OUT, SOON);
    world.wait_for(NODE_PORT, true);
    world.wait_for(LOCALHOST, false);
    assert_eq!((world.route_localnet().as_str(), has_guard(node)), ("0", false));
    let _ = daemon.terminate(SOON);

    // Something else has set it.
    node.sysctl("ipv4/conf/all/route_localnet", "1");
    let daemon = world.spawn_read_only("run", &[&QUIET[..], &[WITH_LOCALHOST]].concat());
    world.wait_for(LOCALHOST, true);
    assert!(has_guard(node));
    assert_eq!(daemon.terminate(SOON).warnings(), [""; 0]);
}

/// The daemon serves those of IPv6; without it, nothing does.
#[test]
fn localhost_alone_closes_the_other_addresses_and_without_a_daemon_all_of_ipv6() {
    let world = World::new();
    let daemon = world.daemon("--nodeport-addresses=localhost");
    world.wait_for(LOCALHOST, true);
    world.wait_for(NODE_PORT, false);
    let node_port: SocketAddr = "[fd00:192:168:50::2]:30080".parse().unwrap();
    assert_eq!(world.net.node().connect_tcp(node_port), Answer::Refused);
    assert!(!daemon.output().contains("NodePorts are closed"), "{}", daemon.output());
    let _ = daemon.terminate(SOON);
    let arguments = [&world.manifests.arguments("apply")[..], &["--nodeport-addresses=localhost"]];
    let finished = world.net.node().output(deltaproxy_binary(), &arguments.concat());
    let line = "they are for localhost alone, which serves no IPv6 NodePorts without the daemon";
    assert!(finished.stderr.contains(line), "{}", finished.stderr);
}
