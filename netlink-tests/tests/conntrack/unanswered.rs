//! First packets that are repeated from one port follow the tables, as long as nothing answers them.

use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use conntrack::{Connection, ConntrackTable, Stage};
use engine::flow::Flow;
use engine::model::{Protocol, Target};
use netlink_tests::scenario::{
    EXTERNAL, Manifests, Node, Service, Slice, WEB, slice, web_with_node_port,
};
use netlink_tests::{Host, Net, Process, Tracked, eventually};

use super::passes::time;
use super::{A, SCTP, TCP};

/// A client repeats its first packet after 1, 2, 3, 4, 5 and 7 seconds, or 1, 3, 7 and 15.
const REPEATED: Duration = Duration::from_secs(60);

/// No host has it: its packets are lost outside.
const SILENT: &str = "10.244.2.7:8080";

/// A second service, at 10.96.0.20:80.
const OTHER: &str = "10.96.0.20:80";

fn web() -> Service {
    web_with_node_port().external_ip("198.51.100.1")
}

/// Connects once, however often the kernel repeats the first packet. Returns the server that answers.
fn try_to_connect(client: &Host, to: &str) -> io::Result<String> {
    let to: SocketAddr = to.parse().unwrap();
    let stream = client.run(|| TcpStream::connect_timeout(&to, REPEATED))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.split(' ').next().unwrap().to_owned())
}

fn connect(client: &Host, to: &str) -> String {
    try_to_connect(client, to).expect("an answer")
}

fn entry(sent_to: &str, answered_by: &str) -> Tracked {
    let (sent_to, answered_by) = (sent_to.parse().unwrap(), answered_by.parse().unwrap());
    Tracked { protocol: TCP, sent_to, answered_by }
}

#[track_caller]
fn wait_for_entry(node: &Host, sent_to: &str, answered_by: &str) {
    let wanted = entry(sent_to, answered_by);
    eventually(&format!("{wanted:?}"), REPEATED, || node.tracked().contains(&wanted).then_some(()));
}

/// The identifiers of the translated connections to an address, by stage.
fn connections(node: &Host, sent_to: &str) -> Vec<(u32, Stage)> {
    let sent_to: SocketAddr = sent_to.parse().unwrap();
    let mut found = Vec::new();
    let goes_there = |it: &Connection| {
        (it.sent_to.address, it.sent_to.port.get()) == (sent_to.ip(), sent_to.port())
    };
    let each = |it: Connection| found.extend(goes_there(&it).then_some((it.id, it.stage)));
    node.run(|| ConntrackTable::open().unwrap().connections(each)).unwrap();
    found
}

struct World {
    net: Net,
    pods: [Host; 2],
    client: Host,
    outside: Host,
}

impl World {
    /// Two pods and a client on the node; what has no other route is lost outside.
    fn new() -> Self {
        let net = Net::new();
        let pods = [net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6")];
        let client = net.pod("p", "10.244.1.9");
        let outside = net.outside("outside", "192.0.2.10");
        net.route_everything_to(&outside);
        Self { net, pods, client, outside }
    }

    /// The kernel tracks connections only where tables need it.
    #[track_caller]
    fn track(&self) -> (Manifests, Process) {
        let manifests = Manifests::new(&[("node", &Node::new())]);
        let daemon = manifests.run(self.net.node());
        super::wait_for_tables(self.net.node());
        (manifests, daemon)
    }
}

/// A cluster IP refuses a packet that is repeated before the entry is deleted: then all is tried again.
#[test]
fn a_client_that_repeats_its_syn_connects_once_the_service_exists() {
    let ways =
        [("pod", WEB), ("pod", "[fd00:10:96::10]:80"), ("pod", EXTERNAL), ("node", EXTERNAL)];
    for (from, to) in ways {
        let server = eventually(&format!("a connection of {from} to {to}"), REPEATED, || {
            let world = World::new();
            let from = if from == "pod" { &world.client } else { world.net.node() };
            let _server = world.pods[0].serve_tcp(8080, "a");
            let manifests = Manifests::new(&[("node", &Node::new()), ("slice", &slice("a"))]);
            let _daemon = manifests.run(world.net.node());
            super::wait_for_tables(world.net.node());
            thread::scope(|scope| {
                let early = scope.spawn(|| try_to_connect(from, to));
                wait_for_entry(world.net.node(), to, to);
                // The flows that were there before the start were looked for meanwhile.
                thread::sleep(3 * ConntrackTable::ANSWERED_WITHIN);
                manifests.write("web", &web());
                early.join().unwrap().ok()
            })
        });
        assert_eq!(server, "a");
    }
}

#[test]
fn a_client_that_repeats_its_syn_reaches_the_endpoint_that_replaced_a_silent_one() {
    let world = World::new();
    let (node, client) = (world.net.node(), &world.client);
    let _servers = [world.pods[0].serve_tcp(8080, "a"), world.pods[1].serve_tcp(8080, "b")];
    let other = Service::new("other", "10.96.0.20").port(80);
    let silent = Slice::new("other").endpoints("c");
    let manifests = Manifests::new(&[
        ("node", &Node::new()),
        ("web", &web()),
        ("slice", &slice("a")),
        ("other", &other),
        ("other-slice", &silent),
    ]);
    let _daemon = manifests.run(node);
    eventually("a connection", REPEATED, || (connect(client, WEB) == "a").then_some(()));
    let mut established = client.open_tcp(WEB).expect("a connection");
    manifests.set_endpoints("c");
    thread::scope(|scope| {
        let right = scope.spawn(|| {
            let to: SocketAddr = OTHER.parse().unwrap();
            client.run(|| TcpStream::connect_timeout(&to, REPEATED)).is_err()
        });
        wait_for_entry(node, OTHER, SILENT);
        // Until the endpoint is replaced, connections still reach the former one.
        let stale = scope.spawn(|| {
            loop {
                let server = connect(client, WEB);
                if server != "a" {
                    return server;
                }
            }
        });
        wait_for_entry(node, WEB, SILENT);
        let kept = connections(node, OTHER);
        assert!(matches!(kept[..], [(_, Stage::New)]), "{kept:?}");
        manifests.set_endpoints("b");
        assert_eq!(stale.join().unwrap(), "b");
        assert_eq!(connections(node, OTHER), kept, "the tables translate it the same way");
        assert_eq!(established.ask().server(), "a");
        assert!(node.tracked().contains(&entry(WEB, A)));
        // Then a client does not wait any longer.
        manifests.write("other-slice", &Slice::new("other").endpoints("b"));
        assert!(!right.join().unwrap(), "its endpoint was replaced as well");
    });
}

#[test]
fn a_client_that_repeats_its_syn_is_refused_once_the_service_has_no_endpoints() {
    let world = World::new();
    let (node, client) = (world.net.node(), &world.client);
    let manifests =
        Manifests::new(&[("node", &Node::new()), ("web", &web()), ("slice", &slice("c"))]);
    let _daemon = manifests.run(node);
    for (from, to) in [(client, WEB), (&world.outside, "192.168.50.2:30080")] {
        manifests.set_endpoints("c");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                // It may begin before the endpoint is there.
                eventually("no answer for a while", REPEATED, || {
                    let start = time();
                    let to: SocketAddr = to.parse().unwrap();
                    let error = from.run(|| TcpStream::connect_timeout(&to, REPEATED)).unwrap_err();
                    let has_waited = time() - start >= Duration::from_millis(500);
                    has_waited.then_some(error.kind())
                })
            });
            wait_for_entry(node, to, SILENT);
            manifests.set_endpoints("");
            assert_eq!(waiting.join().unwrap(), io::ErrorKind::ConnectionRefused, "{to}");
        });
    }
}

/// A look at the connections without an answer, so many seconds after the first one.
fn look(node: &Host, table: &mut ConntrackTable, after: u64) -> Vec<Flow> {
    let now = *START + Duration::from_secs(after);
    node.run(|| table.unanswered(now)).unwrap().0
}

#[allow(clippy::disallowed_methods)]
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn flow(protocol: Protocol, sent_to: &str, answered_by: &str) -> Flow {
    let target = |text: &str| {
        let socket: SocketAddr = text.parse().unwrap();
        Target { address: socket.ip(), port: socket.port().try_into().unwrap() }
    };
    Flow { protocol, sent_to: target(sent_to), answered_by: target(answered_by) }
}

#[test]
fn only_first_packets_that_wait_for_an_answer_are_found_and_deleted() {
    let world = World::new();
    let (node, client) = (world.net.node(), &world.client);
    let _tracking = world.track();
    let mut table = node.run(ConntrackTable::open).unwrap();
    let _server = world.pods[0].serve_tcp(8080, "a");
    let mut established = client.open_tcp(A).expect("a connection");
    let _ = client.hasty().open_udp(SILENT).ask_hastily();
    assert_eq!(look(node, &mut table, 0), [], "an answered connection, and a datagram");

    let stale = flow(Protocol::Sctp, SILENT, SILENT);
    // Conntrack keeps an INIT without an answer for ten seconds.
    eventually("an INIT that is deleted", REPEATED, || {
        let _ = client.hasty().send_sctp_from(4000, SILENT);
        let found = look(node, &mut table, 0);
        let patterns = found.iter().map(Flow::pattern).collect();
        let deleted = node.run(|| table.delete(&patterns)).unwrap();
        (found == [stale] && deleted == [1, 0]).then_some(())
    });
    assert!(node.tracked().iter().all(|it| it.protocol != SCTP));
    assert_eq!(established.ask().server(), "a");
}

/// An endpoint may answer late, and even after the last look.
#[test]
fn a_connection_that_is_answered_after_a_look_is_kept() {
    let world = World::new();
    let (node, client) = (world.net.node(), &world.client);
    let manifests =
        Manifests::new(&[("node", &Node::new()), ("web", &web()), ("slice", &slice("c"))]);
    let _daemon = manifests.run(node);
    super::wait_for_tables(node);
    let mut table = node.run(ConntrackTable::open).unwrap();
    thread::scope(|scope| {
        let late = scope.spawn(|| connect(client, WEB));
        wait_for_entry(node, WEB, SILENT);
        let waiting = flow(Protocol::Tcp, WEB, SILENT);
        assert_eq!(look(node, &mut table, 0), [], "the endpoint may answer");
        assert_eq!(look(node, &mut table, 1), [waiting]);
        let pod = world.net.remote_pod("c", "10.244.2.7");
        let _server = pod.serve_tcp(8080, "c");
        assert_eq!(late.join().unwrap(), "c");
        let stale = [waiting.pattern()].into_iter().collect();
        assert_eq!(node.run(|| table.delete(&stale)).unwrap(), [0, 0]);
        assert!(node.tracked().contains(&entry(WEB, SILENT)));
    });
}
