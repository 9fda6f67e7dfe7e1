//! Flows of UDP, and first packets of other protocols, follow their service from one port, and those
//! that are not stale go on.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "conntrack/passes.rs"]
mod passes;
#[path = "conntrack/unanswered.rs"]
mod unanswered;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use daemon::conntrack::{Cleaner, Limits, Request};
use daemon::observe::Observe;
use daemon::run::{Cleaning, Parts, Run};
use daemon::source::{Wanted, files};
use daemon::writer::Writer;
use engine::Engine;
use engine::flow::StaleFlow;
use engine::model::Target;
use netlink_tests::scenario::{
    EXTERNAL, Endpoint, Expect, Family, Lab, Manifests, NODE_NAME, NODE_PORT, Node, Object, Proxy,
    Scope, Service, ServiceCidr, Slice, WEB, keeps_source, routing, slice, web_with_node_port,
};
use netlink_tests::{Answer, Flow, Host, Net, Tracked, eventually};
use nft::TableFlags;
use nft::kernel::Nftables;
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// From where and to where a service is used.
const WAYS: [(&str, &str); 5] =
    [("pod", WEB), ("node", WEB), ("pod", EXTERNAL), ("outside", NODE_PORT), ("pod", NODE_PORT)];

fn web() -> Service {
    web_with_node_port().external_ip("198.51.100.1")
}

/// Flows of both families on these ways.
fn flows(lab: &Lab, ways: &[(&'static str, &'static str)]) -> Vec<Flow> {
    let pairs = ways.iter().flat_map(|way| Family::ALL.map(|family| (way, family)));
    let open = |((client, to), family): (&(&str, &str), Family)| {
        let to: SocketAddrV4 = to.parse().unwrap();
        let to = SocketAddr::new(family.of(*to.ip()), to.port());
        lab.world.host(client).open_udp(to)
    };
    pairs.map(open).collect()
}

/// Everyone's flow is answered by this server.
#[track_caller]
fn assert_answered(flows: &mut [Flow], server: &str) {
    for flow in flows {
        assert_eq!(flow.ask().server(), server, "from {}", flow.local_addr());
    }
}

/// How many entries of this protocol and original destination port the node tracks.
fn entries(lab: &Lab, protocol: u8, port: u16) -> usize {
    let tracked = lab.world.node().tracked();
    tracked.iter().filter(|it| it.protocol == protocol && it.sent_to.port() == port).count()
}

#[track_caller]
fn assert_all(flows: &mut [Flow], expected: &Answer) {
    for flow in flows {
        let answer = if *expected == Answer::Silent { flow.ask_hastily() } else { flow.ask() };
        assert_eq!(answer, *expected, "from {}", flow.local_addr());
    }
}

#[test]
fn a_flow_moves_at_once_when_its_endpoint_is_replaced() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut flows = flows(&lab, &WAYS);
    assert_answered(&mut flows, "a");
    lab.apply(&[&slice("b")]);
    assert_answered(&mut flows, "b");
    lab.apply(&[&slice("c")]);
    assert_answered(&mut flows, "c");
}

/// Only the flows to the endpoint that left move.
#[test]
fn a_flow_stays_when_another_endpoint_is_removed_or_added() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut flows = flows(&lab, &WAYS);
    assert_answered(&mut flows, "a");
    let sent = lab.apply(&[&slice("a b c")]);
    assert_eq!(sent.stale_flows, []);
    assert_answered(&mut flows, "a");
    lab.apply(&[&slice("a c")]);
    assert_answered(&mut flows, "a");
}

/// kube-proxy of 1.36 leaves the entries.
#[test]
fn flows_to_a_service_without_endpoints_are_refused_and_come_back() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut flows = flows(&lab, &WAYS);
    assert_answered(&mut flows, "a");
    lab.apply(&[&slice("")]);
    assert_all(&mut flows, &Answer::Refused);
    lab.apply(&[&slice("b")]);
    assert_answered(&mut flows, "b");
}

/// kube-proxy of 1.36 leaves the entries.
#[test]
fn flows_to_a_deleted_service_end() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut inside = flows(&lab, &[("pod", WEB), ("node", WEB)]);
    let mut through_port = flows(&lab, &[("outside", NODE_PORT), ("pod", NODE_PORT)]);
    assert_answered(&mut inside, "a");
    assert_answered(&mut through_port, "a");
    lab.remove(&[&web()]);
    assert_all(&mut inside, &Answer::Silent);
    assert_all(&mut through_port, &Answer::Refused);
}

#[test]
fn a_flow_moves_when_its_endpoint_changes_only_its_port() {
    let mut lab = Lab::new();
    lab.world.serve("a", "other port", 8081);
    lab.apply(&[&web(), &slice("a")]);
    let mut flows = flows(&lab, &WAYS);
    assert_answered(&mut flows, "a");
    lab.apply(&[&slice("a").target(80, 8081)]);
    assert_answered(&mut flows, "other port");
}

#[test]
fn a_flow_stays_with_an_endpoint_that_serves_until_it_ends() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut flows = flows(&lab, &WAYS);
    assert_answered(&mut flows, "a");
    let ending = |serving| Endpoint::new("a").conditions(false, serving, true);
    let sent = lab.apply(&[&slice("b").endpoint(ending(true))]);
    assert_eq!(sent.stale_flows, []);
    lab.check_in(Scope::UDP, &[("pod", WEB, keeps_source("b"))]);
    assert_answered(&mut flows, "a");
    lab.apply(&[&slice("b").endpoint(ending(false))]);
    assert_answered(&mut flows, "b");
}

/// kube-proxy leaves the entries until the next change of endpoints.
#[test]
fn a_flow_that_began_before_the_service_is_served() {
    let mut lab = Lab::new();
    let mut early = flows(&lab, &[("pod", EXTERNAL), ("outside", NODE_PORT), ("pod", NODE_PORT)]);
    lab.apply(&[&slice("a")]);
    for flow in &mut early {
        let answer = flow.ask_hastily();
        assert!(matches!(answer, Answer::Silent | Answer::Refused | Answer::Unreachable(_)));
    }
    lab.apply(&[&web()]);
    assert_answered(&mut early, "a");
}

/// kube-proxy deletes flows to the number of a node port on any host.
#[test]
fn flows_to_other_ports_and_hosts_go_on() {
    let mut lab = Lab::new();
    lab.world.serve("outside", "outside", 30080);
    lab.apply(&[&web().port(81), &slice("a").target(81, 8080)]);
    let mut stale = flows(&lab, &WAYS);
    assert_answered(&mut stale, "a");
    let mut other_host = flows(&lab, &[("pod", "192.0.2.10:30080")]);
    assert_answered(&mut other_host, "outside");
    let mut other_port = flows(&lab, &[("pod", "10.96.0.10:81")]);
    assert_answered(&mut other_port, "a");
    let before = entries(&lab, UDP, 30080);

    lab.world.serve("a", "other port", 8081);
    lab.apply(&[&slice("a").target(80, 8081).target(81, 8080)]);
    let after = entries(&lab, UDP, 30080);
    assert_eq!((before, after), (6, 2), "only those to the other host stay");
    assert_eq!(entries(&lab, UDP, 81), 2);
    assert_answered(&mut stale, "other port");
    assert_answered(&mut other_host, "outside");
    assert_answered(&mut other_port, "a");
}

#[test]
fn a_flow_stays_when_a_policy_no_longer_chooses_its_endpoint() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("c")]);
    let mut flows = flows(&lab, &WAYS);
    assert_answered(&mut flows, "c");
    let sent = lab.apply(&[&web().internal_local().external_local(), &slice("a c")]);
    assert_eq!(sent.stale_flows, []);
    lab.check_in(Scope::UDP, &[("pod", WEB, keeps_source("a"))]);
    assert_answered(&mut flows, "c");
    // The tables do not change by this, but the flows must end.
    let sent = lab.apply(&[&slice("a")]);
    assert!(!sent.stale_flows.is_empty());
    assert_answered(&mut flows, "a");
}

/// The next proxy deletes the flows that an ended proxy left.
#[test]
fn a_restart_ends_flows_to_endpoints_that_left_meanwhile() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a b")]);
    let mut flows = flows(&lab, &WAYS);
    let mut others = Vec::new();
    for mut flow in flows.drain(..) {
        let server = flow.ask().server().to_owned();
        others.push((flow, server));
    }
    let objects = lab.proxy.objects();
    let objects: Vec<_> = objects.iter().map(|object| object as &dyn Object).collect();
    lab.proxy = Proxy::start(lab.world.node(), routing());
    let sent = lab.apply(&objects);
    assert_eq!((sent.transactions.len(), sent.stale_flows), (0, vec![]));

    lab.proxy = Proxy::start(lab.world.node(), routing());
    lab.apply(&[objects.as_slice(), &[&slice("b d")]].concat());
    for (flow, server) in &mut others {
        match server.as_str() {
            "a" => assert!(["b", "d"].contains(&flow.ask().server())),
            _ => assert_eq!(flow.ask().server(), server),
        }
    }
}

/// Many at once take another way through the kernel's table.
#[test]
fn flows_of_many_services_end_together() {
    let mut lab = Lab::new();
    let services = (0..100_u8).map(|n| {
        let service = Service::new(&format!("many-{n}"), &format!("10.96.1.{n}")).port(80);
        [
            Box::new(service) as Box<dyn Object>,
            Box::new(Slice::new(&format!("many-{n}")).endpoints("a")),
        ]
    });
    let services: Vec<_> = services.flatten().collect();
    let services: Vec<_> = services.iter().map(Box::as_ref).collect();
    lab.apply(&services);
    lab.apply(&[&web(), &slice("b")]);
    let mut kept = flows(&lab, &WAYS);
    assert_answered(&mut kept, "b");
    let ways: Vec<_> = [7_u8, 50, 99].map(|n| ("pod", Ipv4Addr::new(10, 96, 1, n))).into();
    let mut stale: Vec<_> = ways
        .into_iter()
        .flat_map(|(client, ip)| Family::ALL.map(|family| (client, family.of(ip))))
        .map(|(client, ip)| lab.world.host(client).open_udp((ip, 80)))
        .collect();
    assert_answered(&mut stale, "a");
    let changed = (0..100_u8).map(|n| Slice::new(&format!("many-{n}")).endpoints("c"));
    let changed: Vec<_> = changed.collect();
    let changed: Vec<_> = changed.iter().map(|slice| slice as &dyn Object).collect();
    let sent = lab.apply(&changed);
    assert_eq!(sent.stale_flows.len(), 200);
    assert!(sent.stale_flows.iter().all(|flow| flow.address.is_some() && flow.endpoint.is_some()));
    assert_answered(&mut stale, "c");
    assert_answered(&mut kept, "b");
}

/// Answered connections of TCP and SCTP stay; `changes.rs` tests that TCP connections survive.
#[test]
fn only_flows_of_udp_are_deleted() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut connection = lab.world.host("pod").open_tcp(WEB).unwrap();
    lab.check_in(Scope::SCTP, &[("pod", WEB, keeps_source("a"))]);
    let before = (entries(&lab, TCP, 80), entries(&lab, SCTP, 80));
    assert!(before.0 > 0 && before.1 > 0);
    lab.apply(&[&slice("")]);
    assert_eq!((entries(&lab, TCP, 80), entries(&lab, SCTP, 80)), before);
    assert_eq!(connection.ask().server(), "a");
    lab.check_in(Scope::UDP, &[("pod", WEB, Expect::Refused)]);
}

/// How long the daemon may take to notice something, on a busy machine. The entry of a UDP flow
/// would stay for half a minute after each packet.
const SOON: Duration = Duration::from_secs(10);

/// The daemon deletes in a separate thread, after the commits.
#[test]
fn a_daemon_ends_flows_to_endpoints_that_left() {
    let net = Net::new();
    let pods = [net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6")];
    let _servers = [pods[0].serve_udp(8080, "a"), pods[1].serve_udp(8080, "b")];
    let client = net.pod("p", "10.244.1.9");
    // Service addresses have a way out of the node.
    let outside = net.outside("outside", "192.0.2.10");
    net.route_everything_to(&outside);
    let manifests =
        Manifests::new(&[("node", &Node::new()), ("web", &web()), ("slice", &slice("a"))]);
    let _daemon = manifests.run(net.node());
    let answers = |flow: &mut Flow, expected: &str| {
        eventually(&format!("an answer of {expected}"), SOON, || {
            format!("{:?}", flow.ask_hastily()).contains(expected).then_some(())
        });
    };
    // It begins before the service, perhaps.
    let mut flow = client.open_udp(WEB);
    answers(&mut flow, "\"a\"");
    manifests.set_endpoints("b");
    answers(&mut flow, "\"b\"");
    manifests.set_endpoints("");
    answers(&mut flow, "Refused");
    manifests.set_endpoints("a");
    answers(&mut flow, "\"a\"");
}

/// UDP flows of both families, by destination and server.
fn tracked(rows: &[(&str, &str)]) -> Vec<Tracked> {
    let of = |text: &str, family: Family| {
        let address: SocketAddrV4 = text.parse().unwrap();
        SocketAddr::new(family.of(*address.ip()), address.port())
    };
    let pairs = rows.iter().flat_map(|row| Family::ALL.map(|family| (row, family)));
    let mut entries: Vec<_> = pairs
        .map(|((sent_to, answered_by), family)| Tracked {
            protocol: UDP,
            sent_to: of(sent_to, family),
            answered_by: of(answered_by, family),
        })
        .collect();
    entries.sort();
    entries
}

/// Waits until the node tracks these flows and no other ones of UDP.
#[track_caller]
fn wait_until_tracked(node: &Host, expected: &[Tracked]) {
    eventually(&format!("exactly these flows: {expected:?}"), LATER, || {
        let found = node.tracked();
        let found: Vec<_> = found.into_iter().filter(|entry| entry.protocol == UDP).collect();
        (found == expected).then_some(())
    });
}

/// How long a cleaner may take that pauses after each list, on a busy machine.
const LATER: Duration = Duration::from_secs(30);

fn cluster(hosts: &str) -> Manifests {
    let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
    let node = Node::new();
    Manifests::new(&[("node", &node), ("cidrs", &cidrs), ("web", &web()), ("slice", &slice(hosts))])
}

const A: &str = "10.244.1.5:8080";
const B: &str = "10.244.1.6:8080";

/// Flows that no proxy may end while `b` serves `web`.
const RIGHT: [(&str, &str); 7] = [
    (WEB, B),
    (EXTERNAL, B),
    (NODE_PORT, B),
    // Another program's.
    ("203.0.113.1:80", A),
    ("192.168.50.2:53", A),
    // Not translated.
    ("203.0.113.2:80", "203.0.113.2:80"),
    ("10.96.0.99:80", "10.96.0.99:80"),
];

/// Flows that a proxy leaves behind that is killed before it deletes them: the tables do not tell
/// of them.
const LEFT: [(&str, &str); 6] = [
    (WEB, A),
    (WEB, WEB),
    (EXTERNAL, A),
    (NODE_PORT, A),
    (NODE_PORT, NODE_PORT),
    // The service was deleted.
    ("10.96.0.98:80", A),
];

/// Waits until the daemon has written its tables.
#[track_caller]
fn wait_for_tables(node: &Host) {
    eventually("tables", SOON, || node.read_table(netlink_tests::reader::Family::Ip6));
}

#[test]
fn a_start_ends_the_flows_that_a_killed_daemon_left() {
    let net = Net::new();
    let manifests = cluster("b");
    let daemon = manifests.run(net.node());
    wait_for_tables(net.node());
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let right = tracked(&RIGHT);
    net.node().track(&[right.clone(), tracked(&LEFT)].concat());
    let _daemon = manifests.run(net.node());
    wait_until_tracked(net.node(), &right);
}

#[test]
fn apply_ends_the_flows_that_an_interrupted_one_left() {
    let net = Net::new();
    let manifests = cluster("b");
    let _ = manifests.once(net.node(), "apply").ok();
    let right = tracked(&RIGHT);
    net.node().track(&[right.clone(), tracked(&LEFT)].concat());
    let _ = manifests.once(net.node(), "apply").ok();
    wait_until_tracked(net.node(), &right);
}

/// The daemon's loop and cleaner on manifests, in this process. It ends when this is dropped.
struct Daemon {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Daemon {
    fn start(node: &Host, manifests: &Manifests, limits: Limits) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = node.run(|| {
            let kernel = Nftables::open().unwrap();
            let flags = TableFlags { owner: false, persist: false };
            let mut engine = Engine::new(routing(), flags);
            let local = daemon::source::addresses::local_addresses().unwrap();
            engine.set_local_addresses(local);
            let writer = Writer::spawn(kernel).unwrap();
            let (sender, events) = mpsc::channel(256);
            let (problems, _) = mpsc::channel(1);
            let routing = routing();
            let wanted = Wanted::new(NODE_NAME, &routing);
            files::follow(manifests.path(), wanted, sender, problems).unwrap();
            let (cleaner, lists) = Cleaner::spawn(limits, |_| {}).unwrap();
            let cleaning = Cleaning::new(move |request| cleaner.handle(request), lists);
            let parts = Parts { cleaning: Some(cleaning), ..Parts::default() };
            let run = Run::new(engine, writer, events, Observe::new(), parts);
            thread::spawn(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_time().build().unwrap();
                let stopped = async { drop(stopped.await) };
                runtime.block_on(run.until(stopped)).unwrap();
            })
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// As a packet that passed the former tables does while their change is committed.
#[test]
fn a_flow_that_begins_late_ends_in_the_background() {
    let net = Net::new();
    let manifests = cluster("b");
    let list_interval = Duration::from_millis(100);
    let _daemon =
        Daemon::start(net.node(), &manifests, Limits { list_interval, ..Limits::default() });
    wait_for_tables(net.node());
    let left = tracked(&LEFT[..5]);
    net.node().track(&left);
    wait_until_tracked(net.node(), &[]);
    net.node().track(&[tracked(&RIGHT), left].concat());
    wait_until_tracked(net.node(), &tracked(&RIGHT));
}

#[test]
fn flows_that_were_dropped_are_found_and_deleted() {
    let net = Net::new();
    let manifests = cluster("a b");
    let limits = Limits {
        waiting: 3,
        list_rest: Duration::from_millis(10),
        list_interval: Duration::from_secs(3600),
    };
    let _daemon = Daemon::start(net.node(), &manifests, limits);
    wait_for_tables(net.node());
    let stale = [(WEB, A), (EXTERNAL, A), (NODE_PORT, A)];
    net.node().track(&[tracked(&RIGHT), tracked(&stale)].concat());
    manifests.set_endpoints("b");
    wait_until_tracked(net.node(), &tracked(&RIGHT));
    // Also those to frontends that are no more.
    manifests.write("web", &Service::new("web", "10.96.0.10").port(80));
    let gone = |(sent_to, _): &&(&str, &str)| ![EXTERNAL, NODE_PORT].contains(sent_to);
    let right: Vec<_> = RIGHT.iter().filter(gone).copied().collect();
    wait_until_tracked(net.node(), &tracked(&right));
}

#[test]
fn a_cleaner_that_stops_deletes_all_queued_flows_at_once() {
    let net = Net::new();
    let node = net.node();
    let (cleaner, _lists) = node.run(|| Cleaner::spawn(Limits::default(), |_| {}).unwrap());
    let flow = |entry: &Tracked| {
        let (address, port) = (entry.sent_to.ip(), entry.sent_to.port().try_into().unwrap());
        StaleFlow::to(Target { address, port })
    };
    // Passes over many entries take time, and then the cleaner rests a hundred times as long.
    let many: Vec<_> = (1..100).map(|n| format!("203.0.113.{n}:53")).collect();
    let many: Vec<_> = many.iter().map(|to| (to.as_str(), A)).collect();
    node.track(&tracked(&many));
    let (first, second) = (tracked(&[(WEB, A)]), tracked(&[(EXTERNAL, A)]));
    node.track(&[first.clone(), second.clone()].concat());
    cleaner.handle(Request::Delete(first.iter().map(flow).collect()));
    wait_until_tracked(node, &{
        let mut left = [second.clone(), tracked(&many)].concat();
        left.sort();
        left
    });
    cleaner.handle(Request::Delete(second.iter().map(flow).collect()));
    assert!(cleaner.finish(SOON));
    assert_eq!(entries_to(node, &second), 0);
    // Nothing is left to do.
    assert!(cleaner.finish(Duration::ZERO));
}

fn entries_to(node: &Host, entries: &[Tracked]) -> usize {
    node.tracked().iter().filter(|found| entries.contains(found)).count()
}
