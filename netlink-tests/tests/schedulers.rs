//! Schedulers and weights: who gets a connection, on every node, while endpoints come and go.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use netlink_tests::scenario::{
    Endpoint, Family, Lab, NODE_PORT, Object, Protocol, Service, Slice, VIP, WEB, World,
    assert_weighted, web_everywhere,
};
use netlink_tests::{Answer, PATIENCE, deltaproxy_binary, eventually};

const SCHEDULER: &str = "deltaproxy.io/scheduler";
const WEIGHTS: &str = "deltaproxy.io/weights";

/// Addresses of clients beyond the node, of one family.
const CLIENTS: u8 = 40;

fn hashed(scheduler: &str) -> Service {
    web_everywhere().annotation(SCHEDULER, scheduler)
}

fn slice(endpoints: &str) -> Slice {
    Slice::new("web").endpoints(endpoints)
}

fn destination(to: &str, family: Family) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap();
    SocketAddr::new(family.of(*to.ip()), to.port())
}

/// The address of a client of a number, beyond the node.
fn client(number: u8, family: Family) -> IpAddr {
    family.of(Ipv4Addr::new(203, 0, 113, number))
}

/// A lab with many clients beyond the node.
fn lab() -> Lab {
    let lab = Lab::new();
    let outside = lab.world.host("outside");
    outside.add_range(client(0, Family::Ipv4), 24);
    // A range of IPv6 is no host's own.
    (1..=CLIENTS).for_each(|number| outside.add_address(client(number, Family::Ipv6)));
    lab
}

/// Who answers each of the clients.
#[track_caller]
fn answers(lab: &Lab, to: &str, protocol: Protocol) -> BTreeMap<IpAddr, String> {
    let outside = lab.world.host("outside");
    let clients = Family::ALL
        .into_iter()
        .flat_map(|family| (1..=CLIENTS).map(move |number| (client(number, family), family)));
    let ask = |(address, family): (IpAddr, Family)| {
        let (source, to) = (SocketAddr::new(address, 0), destination(to, family));
        let answer = match protocol {
            Protocol::Tcp => outside.connect_tcp_from(source, to),
            Protocol::Udp | Protocol::Sctp => outside.send_udp_from(source, to),
        };
        (address, answer.server().to_owned())
    };
    clients.map(ask).collect()
}

/// Both nodes have the same endpoints in the end: one had them at once, the other after others came
/// and went, in other slices, and it was restarted.
#[test]
fn nodes_with_different_histories_choose_the_same_endpoint_for_a_client() {
    let [mut one, mut other] = [lab(), lab()];
    one.apply(&[&hashed("mh"), &slice("a b c d")]);
    other.apply(&[&web_everywhere(), &slice("d c")]);
    other.apply(&[&hashed("sh"), &slice("d c"), &Slice::new("web").suffix("2").endpoints("a")]);
    other.apply(&[&slice("10.244.9.9 c"), &Slice::new("web").suffix("2").endpoints("b d a")]);
    for (to, protocol) in [(WEB, Protocol::Tcp), (VIP, Protocol::Udp), (NODE_PORT, Protocol::Tcp)] {
        other.apply(&[&slice("c"), &Slice::new("web").suffix("2").endpoints("b d a")]);
        let expected = answers(&one, to, protocol);
        assert_eq!(answers(&other, to, protocol), expected, "{to}");
        assert_eq!(answers(&one, to, protocol), expected, "{to} again");
        let mut servers: Vec<_> = expected.values().map(String::as_str).collect();
        servers.sort_unstable();
        servers.dedup();
        assert_eq!(servers, ["a", "b", "c", "d"], "{to}");
    }
}

#[test]
fn an_endpoint_that_goes_moves_its_own_clients_and_few_others() {
    let mut lab = lab();
    lab.apply(&[&hashed("mh"), &slice("a b c d")]);
    let before = answers(&lab, WEB, Protocol::Udp);
    lab.apply(&[&slice("a b d")]);
    let after = answers(&lab, WEB, Protocol::Udp);
    assert!(after.values().all(|server| server != "c"));
    let stayed = before.iter().filter(|(client, server)| after[*client] == **server).count();
    let of_others = before.values().filter(|server| *server != "c").count();
    assert!(stayed + 12 > of_others, "{stayed} of {of_others} stayed");
    lab.apply(&[&slice("b c d a")]);
    assert_eq!(answers(&lab, WEB, Protocol::Udp), before);
}

/// The pods of clients of which each sends a datagram.
const PODS: u16 = 1_024;

/// The endpoints of a service, all at addresses of the node.
struct Endpoints(Vec<(IpAddr, UdpSocket)>);

impl Endpoints {
    fn serve(lab: &Lab, count: u8) -> Self {
        let addresses = (0..count).map(Self::address);
        let addresses: Vec<_> =
            addresses.flat_map(|ip| Family::ALL.map(|family| family.of(ip))).collect();
        lab.world.node().add_addresses(addresses.iter().copied());
        let bind = |address| {
            let bound = || lab.world.node().run(|| UdpSocket::bind((address, 8080)).ok());
            let socket = eventually("an address of the node", PATIENCE, bound);
            socket.set_nonblocking(true).unwrap();
            (address, socket)
        };
        Self(addresses.into_iter().map(bind).collect())
    }

    fn address(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 250, 0, number)
    }

    fn slice(numbers: impl Iterator<Item = u8>) -> Slice {
        let addresses: Vec<_> = numbers.map(|number| Self::address(number).to_string()).collect();
        let slice = Slice::new("web").without_ports();
        slice.named_target("p80-udp", Protocol::Udp, 8080).endpoints(&addresses.join(" "))
    }

    /// The endpoint that gets the datagram of each pod.
    fn by_pod(&self, lab: &Lab, family: Family) -> BTreeMap<IpAddr, IpAddr> {
        let pods = (0..PODS).map(|number| {
            let [block, last] = number.to_be_bytes();
            family.of(Ipv4Addr::new(10, 244, 100 + block, last))
        });
        lab.world.host("pod").spoof_udp(pods, destination(WEB, family));
        let mut found = BTreeMap::new();
        eventually("every datagram", PATIENCE, || {
            for (endpoint, socket) in &self.0 {
                while let Ok((_, pod)) = socket.recv_from(&mut [0; 16]) {
                    assert_eq!(found.insert(pod.ip(), *endpoint), None, "{pod} sent once");
                }
            }
            (found.len() == usize::from(PODS)).then_some(())
        });
        found
    }
}

/// Addresses and the seed are fixed, so each run moves the same clients.
#[test]
fn one_of_100_endpoints_moves_no_more_clients_than_published() {
    let mut lab = Lab::new();
    let endpoints = Endpoints::serve(&lab, 100);
    for family in Family::ALL {
        lab.apply(&[&hashed("mh"), &Endpoints::slice(0..100)]);
        let before = endpoints.by_pod(&lab, family);
        let gone = family.of(Endpoints::address(50));
        lab.apply(&[&Endpoints::slice((0..100).filter(|number| *number != 50))]);
        let after = endpoints.by_pod(&lab, family);
        assert!(after.values().all(|endpoint| *endpoint != gone));
        let own = before.values().filter(|endpoint| **endpoint == gone).count();
        let moved = before.iter().filter(|(pod, endpoint)| after[*pod] != **endpoint).count();
        let of_others = moved - own;
        eprintln!("{family:?}: {own} clients of its own moved, and {of_others} of others");
        assert!((1..=30).contains(&own), "{own}");
        let published = usize::from(PODS) * 33 / 1_000;
        assert!((1..=published).contains(&of_others), "{of_others}");
    }
}

/// Every way and protocol leads where `explain` predicts, which computes the hash by itself.
#[test]
fn each_client_has_its_endpoint_by_every_way_and_policy() {
    let mut lab = Lab::new();
    for scheduler in ["mh", "mh-port"] {
        lab.apply(&[&hashed(scheduler), &slice("a b c d")]);
        for (client, to) in [("pod", WEB), ("node", WEB), ("outside", VIP), ("outside", NODE_PORT)]
        {
            for family in Family::ALL {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    let ask = || lab.world.ask(client, destination(to, family), protocol);
                    let server = ask().server().to_owned();
                    let same = (0..5).filter(|_| ask().server() == server).count();
                    if scheduler == "mh" {
                        assert_eq!(same, 5, "{client} {to} {protocol:?}");
                    }
                }
            }
        }
    }
    lab.apply(&[&hashed("mh").external_local(), &slice("a b c d")]);
    for _ in 0..5 {
        let answer = lab.world.ask("outside", destination(NODE_PORT, Family::Ipv4), Protocol::Tcp);
        assert!(["a", "b"].contains(&answer.server()), "{answer:?}");
    }
}

#[test]
fn with_the_port_one_client_reaches_every_endpoint_alike() {
    let mut lab = Lab::new();
    lab.apply(&[&hashed("mh-port"), &slice("a b c d")]);
    for family in Family::ALL {
        let shares = lab.world.shares("outside", WEB, (family, Protocol::Udp), 400);
        // Ports in a row spread more evenly than by chance.
        assert_weighted(&shares, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    }
}

#[test]
fn shares_follow_weights_and_change_with_them() {
    let mut lab = Lab::new();
    let pods = |slice: Slice| {
        let slice = slice.label("deltaproxy.io/weighted", "true");
        slice.endpoint(Endpoint::new("a").pod("web-1")).endpoint(Endpoint::new("c").pod("canary-1"))
    };
    let weighted = |weights: &str| {
        web_everywhere().annotation(WEIGHTS, weights).label("deltaproxy.io/weighted", "true")
    };
    lab.apply(&[&weighted("pod/canary-*=1,*=9"), &pods(Slice::new("web"))]);
    for family in Family::ALL {
        let shares = lab.world.shares("pod", WEB, (family, Protocol::Udp), 400);
        assert_weighted(&shares, &[("a", 9), ("c", 1)]);
    }
    let sent = lab.apply(&[&weighted("pod/canary-*=2,*=9")]);
    let elements = sent.script().lines().filter(|line| line.contains(" element ")).count();
    assert!(elements <= 4, "{}", sent.script());
    let shares = lab.world.shares("outside", NODE_PORT, (Family::Ipv4, Protocol::Tcp), 400);
    assert_weighted(&shares, &[("a", 9), ("c", 2)]);
    lab.apply(&[&weighted("pod/canary-*=2,*=9").annotation(SCHEDULER, "mh-port")]);
    let shares = lab.world.shares("outside", NODE_PORT, (Family::Ipv6, Protocol::Tcp), 400);
    assert_weighted(&shares, &[("a", 9), ("c", 2)]);
}

#[test]
fn an_endpoint_of_weight_0_keeps_its_connections_and_gets_no_new_one() {
    let mut lab = Lab::new();
    let weighted = |weights: &str| web_everywhere().annotation(WEIGHTS, weights);
    let slice = slice("a").label("deltaproxy.io/weighted", "");
    lab.apply(&[&weighted("*=1"), &slice]);
    let to = destination(WEB, Family::Ipv4);
    let pod = lab.world.host("pod");
    let mut connection = pod.open_tcp(to).unwrap();
    let mut flow = pod.open_udp(to);
    assert_eq!((connection.ask().server(), flow.ask().server()), ("a", "a"));
    let more = Slice::new("web").suffix("2").endpoints("c");
    lab.apply(&[&weighted("node/node-a=0"), &slice, &more]);
    assert_eq!((connection.ask().server(), flow.ask().server()), ("a", "a"));
    let shares = lab.world.shares("pod", WEB, (Family::Ipv4, Protocol::Tcp), 20);
    assert_eq!(shares.keys().collect::<Vec<_>>(), ["c"]);
    // All of them: as if there were no weights.
    lab.apply(&[&weighted("*=0")]);
    let shares = lab.world.shares("pod", WEB, (Family::Ipv4, Protocol::Tcp), 40);
    assert_eq!(shares.len(), 2, "{shares:?}");
}

/// Ends traffic when it is dropped, also by a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Clients that connect without a pause, and who answered them with each of some weights.
#[derive(Default)]
struct Traffic {
    /// The last weights that are committed, and the last whose commit has begun.
    committed: AtomicUsize,
    begun: AtomicUsize,
    ended: AtomicBool,
    answers: Mutex<BTreeMap<usize, BTreeMap<String, usize>>>,
    failures: Mutex<Vec<Answer>>,
}

impl Traffic {
    /// Connects until the end; an answer between two weights counts for neither.
    fn connect(&self, world: &World, client: &str, to: &str) {
        let (_end, to) = (End(&self.ended), destination(to, Family::Ipv4));
        while !self.ended.load(SeqCst) {
            let state = self.committed.load(SeqCst);
            let answer = world.ask_fast(client, to, Protocol::Tcp);
            if !matches!(answer, Answer::From { .. }) {
                self.failures.lock().unwrap().push(answer);
                return;
            }
            if self.begun.load(SeqCst) == state {
                let mut answers = self.answers.lock().unwrap();
                let server = answer.server().to_owned();
                *answers.entry(state).or_default().entry(server).or_default() += 1;
            }
        }
    }

    /// The shares with the weights that are committed, of so many connections or more.
    #[track_caller]
    fn shares(&self, connections: usize) -> BTreeMap<String, usize> {
        eventually("many connections", PATIENCE * 10, || {
            let state = self.committed.load(SeqCst);
            let shares = self.answers.lock().unwrap().get(&state).cloned().unwrap_or_default();
            let enough = shares.values().sum::<usize>() >= connections;
            (enough || self.ended.load(SeqCst)).then_some(shares)
        })
    }
}

#[test]
fn under_traffic_shares_follow_weights_and_no_connection_fails() {
    const STATES: [(&str, &[(&str, usize)]); 5] = [
        ("*=1", &[("a", 1), ("c", 1), ("d", 1)]),
        ("node/node-a=6,*=1", &[("a", 6), ("c", 1), ("d", 1)]),
        ("node/node-a=0,*=1", &[("c", 1), ("d", 1)]),
        ("node/node-a=1,*=4", &[("a", 1), ("c", 4), ("d", 4)]),
        ("*=200", &[("a", 1), ("c", 1), ("d", 1)]),
    ];
    let Lab { world, mut proxy } = Lab::new();
    let slice = slice("a c d").label("deltaproxy.io/weighted", "");
    let service = |weights| web_everywhere().annotation(WEIGHTS, weights);
    let to = destination(WEB, Family::Ipv4);
    let pod = world.host("pod").clone();
    // The only endpoint at first, so that both are its own.
    proxy.apply(&[&service("*=1"), &Slice::new("web").endpoints("a")]);
    let mut connection = pod.open_tcp(to).unwrap();
    let mut flow = pod.open_udp(to);
    assert_eq!((connection.ask().server(), flow.ask().server()), ("a", "a"));
    proxy.apply(&[&slice]);
    let traffic = Traffic::default();
    thread::scope(|threads| {
        let _end = End(&traffic.ended);
        threads.spawn(|| traffic.connect(&world, "pod", WEB));
        threads.spawn(|| traffic.connect(&world, "outside", NODE_PORT));
        for (state, (weights, expected)) in STATES.iter().enumerate() {
            traffic.begun.store(state, SeqCst);
            proxy.apply(&[&service(weights)]);
            traffic.committed.store(state, SeqCst);
            let shares = traffic.shares(250);
            assert!(traffic.failures.lock().unwrap().is_empty(), "{:?}", traffic.failures);
            assert_weighted(&shares, expected);
            assert_eq!((connection.ask().server(), flow.ask().server()), ("a", "a"), "{weights}");
        }
    });
    assert!(traffic.failures.lock().unwrap().is_empty(), "{:?}", traffic.failures);
}

#[test]
fn clients_with_affinity_begin_where_the_hash_leads_them_and_stay_there() {
    let mut lab = lab();
    lab.apply(&[&hashed("mh"), &slice("a b c d")]);
    let by_hash = answers(&lab, WEB, Protocol::Udp);
    let sticky = hashed("mh").spec("sessionAffinity", serde_json::json!("ClientIP"));
    lab.apply(&[&sticky, &slice("a b c d")]);
    assert_eq!(answers(&lab, WEB, Protocol::Tcp), by_hash);
    lab.apply(&[&slice("a b c d 10.244.9.9")]);
    assert_eq!(answers(&lab, WEB, Protocol::Tcp), by_hash);
}

/// One endpoint of 5,000 changes the slots of its own and few others.
#[test]
fn a_table_of_5000_endpoints_has_65521_slots_of_which_few_change() {
    let mut lab = Lab::new();
    let addresses: Vec<_> =
        (0..5_000_u32).map(|i| Ipv4Addr::from(0x0af5_0000 + i).to_string()).collect();
    let service = Service::new("large", "10.96.0.77").only(Family::Ipv4);
    let service = service.named_port("p80-tcp", Protocol::Tcp, 80, 0).annotation(SCHEDULER, "mh");
    let slices: Vec<_> = addresses
        .chunks(1_000)
        .enumerate()
        .map(|(i, chunk)| {
            let slice = Slice::new("large").suffix(&i.to_string()).only(Family::Ipv4);
            slice.endpoints(&chunk.join(" "))
        })
        .collect();
    let mut objects: Vec<&dyn Object> = vec![&service];
    objects.extend(slices.iter().map(|slice| slice as &dyn Object));
    lab.apply(&objects);
    let slots = |lab: &Lab| {
        let table = lab.world.node().read_table(netlink_tests::reader::Family::Ip).unwrap();
        table.sets["endpoints"].elements.clone()
    };
    let before = slots(&lab);
    assert_eq!(before.len(), 65_521);
    let one_less = Slice::new("large").suffix("0").only(Family::Ipv4);
    lab.apply(&[&one_less.endpoints(&addresses[1..1_000].join(" "))]);
    let after = slots(&lab);
    assert_eq!(after.len(), 65_521);
    let known: std::collections::HashSet<_> = before.iter().map(|it| format!("{it:?}")).collect();
    let changed = after.iter().filter(|it| !known.contains(&format!("{it:?}"))).count();
    assert!((13..400).contains(&changed), "{changed}");
}

/// What ipvsadm users look at.
#[test]
fn show_names_schedulers_and_weights() {
    let mut lab = Lab::new();
    let weighted = Service::new("other", "10.96.0.20").named_port("p80-tcp", Protocol::Tcp, 80, 0);
    let weighted = weighted.only(Family::Ipv4).annotation(WEIGHTS, "*=1");
    let heavy = Slice::new("other").only(Family::Ipv4).endpoints("a");
    let heavy = heavy.annotation("deltaproxy.io/weight", "3");
    let light = Slice::new("other").suffix("2").only(Family::Ipv4).endpoints("c");
    lab.apply(&[&hashed("mh-port"), &slice("a b"), &weighted, &heavy, &light]);
    let show = |args: &[&str]| {
        let args = [&["show"], args].concat();
        lab.world.node().output(deltaproxy_binary(), &args).ok()
    };
    let text = show(&["default/web:p80-tcp", "--output", "ipvsadm"]);
    assert!(text.contains("TCP  10.96.0.10:80 mh-port\n"), "{text}");
    assert!(text.contains(":8080              Masq    1 "), "{text}");
    let text = show(&["default/other", "--output", "ipvsadm"]);
    assert!(text.contains("TCP  10.96.0.20:80 wrr\n"), "{text}");
    assert!(text.contains("Masq    3 ") && text.contains("Masq    1 "), "{text}");
    let text = show(&["default/other"]);
    assert!(text.contains("wrr") && text.contains("75.0%") && text.contains("25.0%"), "{text}");
}
