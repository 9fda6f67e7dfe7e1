//! Established connections of services skip the forwarding path, and lose nothing by it.
//!
//! All tests but the first need flowtables. Where the kernel lacks them, they end with a message;
//! `make test-kernel KERNEL_TESTS=flowtable` runs them on a kernel of Debian.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use conntrack::ConntrackTable;
use engine::flowtable::Offload;
use engine::routing::Routing;
use engine::ruleset;
use netlink_tests::reader::Family;
use netlink_tests::scenario::{
    EXTERNAL, Endpoint, Manifests, NODE_PORT, Proxy, Service, WEB, routing, slice,
    web_with_node_port,
};
use netlink_tests::{
    Answer, Connection, Flow, Host, Net, Process, Server, eventually, kernel_has_flowtables,
    nft_available,
};
use nft::expression::Immediate;
use nft::kernel::{Kernel, Nftables, Release};
use nft::{
    self, BaseChain, Chain, HookPoint, Operation, Rule, Table, TableRef, Transaction, Verdict,
};
use nix::sys::signal::Signal;

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// Questions after which a connection is larger than [`AFTER`].
const QUESTIONS: usize = 12;

const ON: [&str; 4] = [
    "--healthz-bind-address=",
    "--metrics-bind-address=",
    "--flowtable=on",
    "--flowtable-after=8packets",
];

/// A node with pods, a pod of another node and a client outside, and a daemon with a flowtable.
struct Lab {
    // Servers end before their hosts.
    servers: Vec<(&'static str, [Server; 2])>,
    a: Option<Host>,
    pod: Host,
    outside: Host,
    manifests: Manifests,
    daemon: Process,
    net: Net,
    _others: Vec<Host>,
}

fn web() -> Service {
    web_with_node_port().external_ip("198.51.100.1")
}

impl Lab {
    /// A lab whose daemon has further arguments, and a service with these endpoints.
    fn start(endpoints: &str, more: &[&str]) -> Self {
        let net = Net::new();
        let (a, b) = (net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6"));
        let c = net.remote_pod("c", "10.244.2.7");
        let serve =
            |name, host: &Host| (name, [host.serve_tcp(8080, name), host.serve_udp(8080, name)]);
        let servers = vec![serve("a", &a), serve("b", &b), serve("c", &c)];
        let (pod, outside) =
            (net.pod("client", "10.244.1.9"), net.outside("outside", "192.0.2.10"));
        net.route_everything_to(&outside);
        let manifests = Manifests::new(&[
            ("node", &netlink_tests::scenario::Node::new()),
            ("web", &web()),
            ("slice", &slice(endpoints)),
        ]);
        let daemon = manifests.run_with(net.node(), &[&ON, more].concat());
        let _others = vec![b, c];
        let lab = Self { servers, a: Some(a), pod, outside, manifests, daemon, net, _others };
        lab.wait_for_service();
        lab
    }

    /// Starts if the kernel has flowtables.
    fn new(endpoints: &str) -> Option<Self> {
        Self::with(endpoints, &[])
    }

    /// As [`Self::new`], with further arguments of the daemon.
    fn with(endpoints: &str, more: &[&str]) -> Option<Self> {
        if !kernel_has_flowtables() {
            let hint = "make test-kernel KERNEL_TESTS=flowtable";
            eprintln!("left out: this kernel has no flowtables; run {hint}");
            return None;
        }
        let lab = Self::start(endpoints, more);
        lab.wait_for_devices();
        Some(lab)
    }

    #[track_caller]
    fn wait_for_service(&self) {
        let pod = self.pod.hasty();
        for to in [at(WEB, Family::Ip), at(WEB, Family::Ip6)] {
            eventually("a service", SOON, || {
                matches!(pod.send_udp(to), Answer::From { .. }).then_some(())
            });
        }
    }

    /// Waits until the flowtables have all devices but the loopback.
    #[track_caller]
    fn wait_for_devices(&self) {
        let present = || {
            let links = network::list_links().unwrap();
            let mut names: Vec<_> =
                links.into_iter().filter(|link| !link.is_loopback).map(|link| link.name).collect();
            names.sort_unstable();
            names
        };
        for family in [nft::Family::Ip, nft::Family::Ip6] {
            eventually("the devices of the node", SOON, || {
                (self.devices(family) == self.net.node().run(present)).then_some(())
            });
        }
    }

    /// The devices of a flowtable, sorted.
    fn devices(&self, family: nft::Family) -> Vec<String> {
        let contents = self.net.node().run(|| {
            Nftables::open().unwrap().read_table(&ruleset::table(family)).unwrap().unwrap()
        });
        let devices = contents.flowtables.first().map(|it| it.devices.clone()).unwrap_or_default();
        let mut names: Vec<_> = devices.into_iter().map(|it| it.to_string()).collect();
        names.iter_mut().for_each(|name| *name = name.trim_matches('"').to_owned());
        names.sort_unstable();
        names
    }

    fn is_offloaded(&self, protocol: u8, to: SocketAddr) -> bool {
        let entries = self.net.node().offloaded();
        entries.iter().any(|entry| entry.protocol == protocol && entry.sent_to == to)
    }

    /// Asks until the kernel forwards the flow by its flowtable; an unanswered question fails.
    #[track_caller]
    fn offload(&self, talk: &mut dyn Talk, to: &str, family: Family) -> String {
        let to = at(to, family);
        let mut server = String::new();
        (0..QUESTIONS).for_each(|_| server = talk.question().server().to_owned());
        let protocol = talk.protocol();
        assert!(self.is_offloaded(protocol, to), "protocol {protocol} to {to} is not offloaded");
        server
    }

    fn restart(&mut self, signal: Signal) {
        self.restart_with(signal, &ON);
    }

    fn restart_with(&mut self, signal: Signal, arguments: &[&str]) {
        self.daemon.signal(signal);
        eventually("the end of the daemon", SOON, || (!self.daemon.is_running()).then_some(()));
        self.daemon = self.manifests.run_with(self.net.node(), arguments);
    }
}

/// A TCP connection or a UDP flow.
trait Talk {
    fn question(&mut self) -> Answer;
    fn protocol(&self) -> u8;
}

impl Talk for Connection {
    fn question(&mut self) -> Answer {
        self.ask()
    }
    fn protocol(&self) -> u8 {
        6
    }
}

impl Talk for Flow {
    fn question(&mut self) -> Answer {
        self.ask()
    }
    fn protocol(&self) -> u8 {
        17
    }
}

fn at(to: &str, family: Family) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap();
    let ip = match family {
        Family::Ip => IpAddr::V4(*to.ip()),
        Family::Ip6 => netlink_tests::ip6_of(*to.ip()).into(),
    };
    SocketAddr::new(ip, to.port())
}

fn open(host: &Host, to: &str, family: Family) -> [Box<dyn Talk>; 2] {
    let to = at(to, family);
    let connection = host.open_tcp(to).unwrap_or_else(|answer| panic!("TCP to {to}: {answer:?}"));
    [Box::new(connection), Box::new(host.open_udp(to))]
}

/// Whether the kernel has flowtables, tried in a namespace of its own.
/// Drops all forwarded packets after our own chain, as a network policy of another program does.
fn drop_forwarded(node: &Host) {
    node.run(|| {
        let mut kernel = Nftables::open().unwrap();
        for family in [nft::Family::Ip, nft::Family::Ip6] {
            let table = Table::new(family, "policies");
            let base = BaseChain::new("filter", HookPoint::Forward, 10);
            let chain = Chain::at_hook("forward", base);
            let expressions = vec![Immediate::verdict(Verdict::Drop)];
            let rule = Rule { chain: "forward".into(), expressions, comment: None };
            let reference: TableRef = table.reference();
            let operations = vec![
                Operation::AddTable(table),
                Operation::AddChain(reference.clone(), chain),
                Operation::AddRule(reference, rule),
            ];
            kernel.commit(&Transaction { operations }).unwrap();
        }
    });
}

#[test]
fn a_kernel_without_flowtables_serves_all_the_same_and_one_line_reports_it() {
    if kernel_has_flowtables() {
        eprintln!("left out: this kernel has flowtables");
        return;
    }
    let lab = Lab::start("a c", &[]);
    for family in [Family::Ip, Family::Ip6] {
        for to in [WEB, NODE_PORT, EXTERNAL] {
            for mut talk in open(&lab.pod, to, family) {
                (0..QUESTIONS).for_each(|_| drop(talk.question().server().to_owned()));
            }
        }
        let table = lab.net.node().read_table(family).unwrap();
        assert!(!table.chains.contains_key("established"), "{:?}", table.chains.keys());
    }
    let verified = lab.manifests.once(lab.net.node(), "verify").ok();
    assert!(verified.contains("as desired"), "{verified}");
    let with_flowtable = [&lab.manifests.arguments("verify")[..], &["--flowtable=on"]].concat();
    let verified = lab.net.node().output(netlink_tests::deltaproxy_binary(), &with_flowtable).ok();
    assert!(verified.contains("as desired"), "{verified}");
    lab.manifests.set_endpoints("b");
    eventually("the new endpoint", SOON, || {
        (lab.pod.connect_tcp(WEB).server() == "b").then_some(())
    });
    let output = lab.daemon.output();
    assert_eq!(output.matches("this kernel has no flowtables").count(), 1, "{output}");
}

#[test]
fn apply_works_without_flowtables() {
    if kernel_has_flowtables() {
        eprintln!("left out: this kernel has flowtables");
        return;
    }
    let net = Net::new();
    let manifests = Manifests::new(&[("web", &web()), ("slice", &slice("a"))]);
    let arguments = [&manifests.arguments("apply")[..], &["--flowtable=on"]].concat();
    let _ = net.node().output(netlink_tests::deltaproxy_binary(), &arguments).ok();
    assert!(net.node().read_table(Family::Ip6).is_some());
}

#[test]
fn connections_to_every_address_of_a_service_are_offloaded_and_skip_forward_rules() {
    let Some(lab) = Lab::new("a c") else { return };
    let mut talks = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        for to in [WEB, NODE_PORT, EXTERNAL] {
            for client in [&lab.pod, &lab.outside] {
                for mut talk in open(client, to, family) {
                    let server = lab.offload(&mut *talk, to, family);
                    talks.push((talk, server));
                }
            }
        }
    }
    drop_forwarded(lab.net.node());
    for (talk, server) in &mut talks {
        (0..3).for_each(|_| assert_eq!(talk.question().server(), *server));
    }
    let late = lab.net.pod("late", "10.244.1.77").hasty();
    assert_eq!(late.connect_tcp(WEB), Answer::Silent, "the rule applies to new connections");
}

#[test]
fn short_connections_and_those_of_others_are_not_offloaded() {
    let Some(lab) = Lab::new("a") else { return };
    let mut short = lab.pod.open_udp(at(WEB, Family::Ip));
    (0..3).for_each(|_| assert_eq!(short.ask().server(), "a"));
    let mut direct = lab.outside.open_udp("10.244.1.5:8080");
    (0..QUESTIONS).for_each(|_| assert_eq!(direct.ask().server(), "a"));
    assert_eq!(lab.net.node().offloaded(), []);
}

#[test]
fn a_udp_flow_moves_at_once_when_its_endpoint_is_removed_under_traffic() {
    let Some(lab) = Lab::new("a") else { return };
    let client = lab.net.pod("flows", "10.244.1.10");
    lab.wait_for_devices();
    let mut flows: Vec<_> = [Family::Ip, Family::Ip6]
        .into_iter()
        .flat_map(|family| [WEB, NODE_PORT].map(|to| (client.open_udp(at(to, family)), to, family)))
        .collect();
    for (flow, to, family) in &mut flows {
        assert_eq!(lab.offload(flow, to, *family), "a");
    }
    lab.manifests.set_endpoints("b");
    for (flow, to, _) in &mut flows {
        // The answer to a question that is under way is lost.
        let mut unanswered = 0;
        eventually(&format!("an answer of b from {to}"), SOON, || {
            let answer = flow.ask();
            if answer == Answer::Silent {
                unanswered += 1;
                assert_eq!(unanswered, 1, "{to}");
                return None;
            }
            (answer.server() == "b").then_some(())
        });
    }
    for (flow, to, family) in &mut flows {
        assert_eq!(lab.offload(flow, to, *family), "b");
    }
}

#[test]
fn a_tcp_connection_stays_while_its_endpoint_terminates_or_leaves_the_service() {
    let Some(lab) = Lab::new("a") else { return };
    let mut connection = lab.pod.open_tcp(WEB).unwrap();
    assert_eq!(lab.offload(&mut connection, WEB, Family::Ip), "a");
    let terminating = slice("b").endpoint(Endpoint::new("a").conditions(false, true, true));
    lab.manifests.write("slice", &terminating);
    eventually("only b for new connections", SOON, || {
        let all_are_of_b = (0..6).all(|_| lab.pod.connect_tcp(WEB).server() == "b");
        all_are_of_b.then_some(())
    });
    assert_eq!(connection.ask().server(), "a");
    lab.manifests.set_endpoints("b");
    (0..QUESTIONS).for_each(|_| assert_eq!(connection.ask().server(), "a"));
}

/// Both times: soon after the first replacement of the flowtable, the second one has to wait.
#[test]
fn connections_of_ended_endpoints_leave_the_flowtable_and_end_and_others_return_to_it() {
    let Some(lab) = Lab::with("a c", &["--ended-connections=reset"]) else { return };
    let open_all = || {
        let both = [Family::Ip, Family::Ip6].into_iter();
        let all = both.flat_map(|family| (0..8).map(move |_| (family, at(WEB, family))));
        let open = |(family, to)| {
            let mut connection = lab.pod.open_tcp(to).unwrap();
            let server = lab.offload(&mut connection, WEB, family);
            (connection, server)
        };
        all.map(open).partition::<Vec<_>, _>(|(_, server)| server == "a")
    };
    let (mut of_a, mut of_c) = open_all();
    assert!(!of_a.is_empty() && !of_c.is_empty());
    let end_all = |connections: &mut [(Connection, String)]| {
        for (connection, server) in connections {
            eventually("the end of a connection", SOON, || {
                let answer = connection.ask();
                if answer == Answer::Refused {
                    return Some(());
                }
                assert_eq!(answer.server(), *server);
                None
            });
        }
    };
    lab.manifests.set_endpoints("a b");
    end_all(&mut of_c);
    for (connection, _) in &mut of_a {
        assert_eq!(connection.ask().server(), "a");
    }
    lab.manifests.set_endpoints("b");
    end_all(&mut of_a);
    lab.wait_for_devices();
    let mut of_b = lab.pod.open_tcp(WEB).unwrap();
    assert_eq!(lab.offload(&mut of_b, WEB, Family::Ip), "b");
}

#[test]
fn a_connection_ends_with_its_pod() {
    let Some(mut lab) = Lab::new("a") else { return };
    let mut connection = lab.pod.open_tcp(WEB).unwrap();
    assert_eq!(lab.offload(&mut connection, WEB, Family::Ip), "a");
    drop(lab.servers.remove(0));
    drop(lab.a.take());
    let web = at(WEB, Family::Ip);
    eventually("the end of the flow", SOON, || (!lab.is_offloaded(6, web)).then_some(()));
    assert!(!matches!(connection.ask(), Answer::From { .. }));
    lab.wait_for_devices();
}

#[test]
fn connections_survive_kills_and_restarts_of_the_daemon() {
    let Some(mut lab) = Lab::new("a c") else { return };
    let mut talks: Vec<(Box<dyn Talk>, &str, String)> = Vec::new();
    for (client, to) in [(&lab.pod, WEB), (&lab.outside, NODE_PORT)] {
        for mut talk in open(client, to, Family::Ip) {
            let server = lab.offload(&mut *talk, to, Family::Ip);
            talks.push((talk, to, server));
        }
    }
    let check = |talks: &mut [(Box<dyn Talk>, &str, String)]| {
        for (talk, _, server) in talks {
            assert_eq!(talk.question().server(), *server);
        }
    };
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL] {
        lab.daemon.signal(signal);
        eventually("the end of the daemon", SOON, || {
            check(&mut talks);
            (!lab.daemon.is_running()).then_some(())
        });
        // No daemon runs, and the tables forward.
        (0..5).for_each(|_| check(&mut talks));
        lab.daemon = lab.manifests.run_with(lab.net.node(), &ON);
        check(&mut talks);
        lab.wait_for_devices();
        check(&mut talks);
        for (talk, to, server) in &mut talks {
            assert_eq!(lab.offload(&mut **talk, to, Family::Ip), *server);
        }
    }
}

#[test]
fn connections_go_on_when_the_flowtable_is_turned_off_and_on() {
    let Some(mut lab) = Lab::new("a") else { return };
    let mut connection = lab.pod.open_tcp(WEB).unwrap();
    assert_eq!(lab.offload(&mut connection, WEB, Family::Ip), "a");
    lab.restart_with(Signal::SIGTERM, &ON[..2]);
    eventually("tables without a flowtable", SOON, || {
        assert_eq!(connection.ask().server(), "a");
        let table = lab.net.node().read_table(Family::Ip6).unwrap();
        (!table.chains.contains_key("established")).then_some(())
    });
    (0..QUESTIONS).for_each(|_| assert_eq!(connection.ask().server(), "a"));
    assert_eq!(lab.net.node().offloaded(), []);
    lab.restart(Signal::SIGTERM);
    lab.wait_for_devices();
    assert_eq!(lab.offload(&mut connection, WEB, Family::Ip), "a");
}

#[test]
fn a_replaced_table_breaks_no_connection() {
    let Some(mut lab) = Lab::new("a") else { return };
    let mut connection = lab.pod.open_tcp(WEB).unwrap();
    assert_eq!(lab.offload(&mut connection, WEB, Family::Ip), "a");
    // Other counters: the table is replaced as a whole.
    lab.restart_with(Signal::SIGTERM, &[&ON[..], &["--counters=endpoints"]].concat());
    lab.wait_for_devices();
    assert_eq!(lab.offload(&mut connection, WEB, Family::Ip), "a");
    lab.daemon.signal(Signal::SIGTERM);
    eventually("the end of the daemon", SOON, || (!lab.daemon.is_running()).then_some(()));
    let _ = lab.net.node().output(netlink_tests::deltaproxy_binary(), &["cleanup"]).ok();
    assert!(lab.net.node().read_table(Family::Ip).is_none());
}

#[test]
fn pods_come_and_go_while_connections_run() {
    let Some(lab) = Lab::new("a c") else { return };
    let mut talks: Vec<_> = open(&lab.pod, WEB, Family::Ip).into_iter().collect();
    let servers: Vec<_> =
        talks.iter_mut().map(|talk| lab.offload(&mut **talk, WEB, Family::Ip)).collect();
    let (is_over, node) = (AtomicBool::new(false), lab.net.node());
    thread::scope(|scope| {
        let churn = scope.spawn(|| {
            for round in 0..20 {
                // Five come and five go in a tenth of a second: 50 a second.
                for i in 0..5 {
                    node.add_pair(&format!("pod{round}x{i}"), &format!("peer{round}x{i}"));
                }
                for i in 0..5 {
                    node.remove_device(&format!("pod{round}x{i}"));
                }
                lab.manifests.set_endpoints(if round % 2 == 0 { "a b c" } else { "a c" });
                thread::sleep(Duration::from_millis(80));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) && !churn.is_finished() {
            for (talk, server) in talks.iter_mut().zip(&servers) {
                assert_eq!(talk.question().server(), *server);
            }
        }
    });
    lab.wait_for_devices();
    for (talk, server) in talks.iter_mut().zip(&servers) {
        assert_eq!(lab.offload(&mut **talk, WEB, Family::Ip), *server);
    }
    lab.manifests.set_endpoints("b");
    eventually("the last change", SOON, || {
        (lab.pod.connect_tcp(WEB).server() == "b").then_some(())
    });
    let output = lab.daemon.output();
    assert!(!output.contains("refused"), "{output}");
}

#[test]
fn a_hairpin_connection_and_its_answers_pass() {
    let Some(lab) = Lab::new("a") else { return };
    let a = lab.a.as_ref().unwrap();
    for family in [Family::Ip, Family::Ip6] {
        for mut talk in open(a, WEB, family) {
            (0..3 * QUESTIONS).for_each(|_| assert_eq!(talk.question().server(), "a"));
        }
    }
}

/// The timeouts of conntrack are shorter than the flow, which only the flowtable sees.
#[test]
fn a_flow_in_the_flowtable_outlives_the_timeouts_of_conntrack() {
    let Some(lab) = Lab::new("a") else { return };
    let node = lab.net.node();
    for name in ["udp_timeout", "udp_timeout_stream"] {
        node.sysctl(&format!("netfilter/nf_conntrack_{name}"), "2");
    }
    let mut flow = lab.pod.open_udp(at(WEB, Family::Ip));
    assert_eq!(lab.offload(&mut flow, WEB, Family::Ip), "a");
    let id = |lab: &Lab| {
        let mut ids = Vec::new();
        lab.net.node().run(|| {
            let each = |it: conntrack::Connection| {
                ids.extend(it.is_offloaded.then_some(it.id));
            };
            ConntrackTable::open().unwrap().connections(each).unwrap();
        });
        ids
    };
    let before = id(&lab);
    assert_eq!(before.len(), 1);
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(400));
        assert_eq!(flow.ask().server(), "a");
    }
    assert_eq!(id(&lab), before);
}

#[test]
fn large_packets_of_an_offloaded_connection_find_the_path_mtu() {
    let Some(lab) = Lab::new("a") else { return };
    let a = lab.a.as_ref().unwrap();
    a.set_link_mtu(1_300);
    let listener = a.run(|| TcpListener::bind("[::]:8081")).unwrap();
    lab.manifests.write("slice", &slice("a").target(80, 8081));
    /// Up to 64 kB count as one packet.
    const LENGTH: usize = 2_000_000;
    const GREETING: &[u8] = b"large";
    let reader = thread::spawn(move || {
        let mut held = Vec::new();
        for _ in 0..2 {
            let (mut connection, _) = listener.accept().unwrap();
            connection.write_all(GREETING).unwrap();
            let mut bytes = vec![0; LENGTH];
            connection.read_exact(&mut bytes).unwrap();
            connection.write_all(b"done").unwrap();
            // The end of a connection ends its flow.
            held.push(connection);
        }
        held
    });
    let mut connections = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        let to = at(WEB, family);
        let mut connection = eventually("the new port", SOON, || {
            let connection = lab.pod.run(|| TcpStream::connect_timeout(&to, SOON)).ok()?;
            connection.set_read_timeout(Some(SOON * 4)).unwrap();
            // The server of port 8080 has another greeting.
            let mut greeting = [0; 64];
            let length = (&connection).read(&mut greeting).unwrap();
            (&greeting[..length] == GREETING).then_some(connection)
        });
        connection.write_all(&vec![7; LENGTH]).unwrap();
        let mut answer = [0; 4];
        connection.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"done");
        assert!(lab.is_offloaded(6, to), "{to} is not offloaded");
        connections.push(connection);
    }
    drop(reader.join().unwrap());
}

#[test]
fn devices_are_selected_by_patterns() {
    if !kernel_has_flowtables() {
        return;
    }
    let lab = Lab::start("a", &["--flowtable-devices=vetha,out*"]);
    let expected = |devices: &[&str]| {
        for family in [nft::Family::Ip, nft::Family::Ip6] {
            eventually("the selected devices", SOON, || {
                let found = lab.devices(family);
                let has_prefix = |device: &&str| found.contains(&format!("{}*", &device[..3]));
                let all =
                    devices.iter().all(|it| found.contains(&(*it).to_owned()) || has_prefix(it));
                (all && found.len() <= devices.len()).then_some(())
            });
        }
    };
    expected(&["outoutside", "vetha"]);
    let second = lab.net.outside("second", "192.0.2.11");
    expected(&["outoutside", "outsecond", "vetha"]);
    drop(second);
    expected(&["outoutside", "vetha"]);
    // Nothing else changed a flowtable.
    let args = ["history", "--output", "json"];
    let history = lab.net.node().output(netlink_tests::deltaproxy_binary(), &args).ok();
    let history: serde_json::Value = serde_json::from_str(&history).unwrap();
    let commits = history["commits"].as_array().unwrap().iter();
    let of_devices = commits.filter(|it| it["causes"] == serde_json::json!(["devices"]));
    let sum = |field| of_devices.clone().filter_map(|it| it[field].as_u64()).sum::<u64>();
    let selected = 2 * lab.devices(nft::Family::Ip).len() as u64;
    let release = lab.net.node().run(|| Nftables::open().unwrap().release());
    // Older kernels remove the device that is gone from both.
    let vanished = if release >= Some(Release::DEVICE_NAMES) { 0 } else { 2 };
    assert_eq!(sum("added") - sum("removed") - vanished, selected, "{history}");
}

/// nft 1.0.6 does not load the listing: it has no length for `ct original proto-dst` in a key.
#[test]
fn nft_lists_the_flowtable_and_its_rules() {
    if !kernel_has_flowtables() || !nft_available() {
        return;
    }
    for (after, printed) in [("20packets", "ct packets > 20"), ("65536bytes", "ct bytes > 65536")] {
        let offload = Offload { after: after.parse().unwrap(), ..Offload::default() };
        let net = Net::new();
        let routing = Routing { flowtable: Some(offload), ..routing() };
        let mut proxy = Proxy::start(net.node(), routing);
        assert_eq!(proxy.apply(&[&web(), &slice("a c")]).problems, [""; 0]);
        let listed = net.node().nft("list ruleset");
        for part in [
            &format!("ct status dnat ct state established {printed} jump established"),
            "meta priority set ct original ip daddr . meta l4proto . ct original proto-dst map \
             @services meta priority set none flow add @established",
        ] {
            assert!(listed.contains(part), "{part} is not in {listed}");
        }
    }
}
