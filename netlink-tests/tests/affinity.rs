//! Session affinity: the endpoint of a returning client, the timeout, and the changes that end it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use netlink_tests::scenario::{
    Endpoint, Expect, Family, Lab, Object, Protocol, Proxy, Sent, Service, Slice, World, routing,
};
use netlink_tests::{Answer, Deadline, deltaproxy_binary, eventually};
use nft::TableRef;
use nft::kernel::{ElementRead, Kernel, Nftables};
use serde_json::json;

const WEB: &str = "10.96.0.10:80";
const SECOND_PORT: &str = "10.96.0.10:81";
const NODE_PORT: &str = "192.168.50.2:30080";
const VIP: &str = "198.51.100.1:80";

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Hosts whose packets to a service pass the node, whichever endpoint answers.
const CLIENTS: [&str; 5] = ["pod", "a", "b", "node", "outside"];

/// The server that answered each client, by family and protocol.
type Answers = BTreeMap<(&'static str, &'static str, &'static str), String>;

fn web() -> Service {
    Service::new("web", "10.96.0.10").port(80)
}

fn web_with_node_port() -> Service {
    Service::new("web", "10.96.0.10").node_port(80, 30080)
}

fn sticky(service: Service, seconds: u32) -> Service {
    let config = json!({"clientIP": {"timeoutSeconds": seconds}});
    service.spec("sessionAffinity", json!("ClientIP")).spec("sessionAffinityConfig", config)
}

fn slice(endpoints: &str) -> Slice {
    Slice::new("web").endpoints(endpoints)
}

/// Sends one probe by every protocol and family from each client.
#[track_caller]
fn ask(world: &World, clients: &[&'static str], to: &str) -> Answers {
    let mut answers = Answers::new();
    for family in Family::ALL {
        let to: SocketAddrV4 = to.parse().unwrap();
        let to = SocketAddr::new(family.of(*to.ip()), to.port());
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            for client in clients {
                let server = world.ask(client, to, protocol).server().to_owned();
                answers.insert((*client, family.name(), protocol.name()), server);
            }
        }
    }
    answers
}

/// Addresses of each family that the node gets beside its own. Of so many clients each of four
/// endpoints gets one, and after a change one gets another endpoint: chance fails both less than once
/// in a billion times.
const MANY: u8 = 40;

fn many() -> impl Iterator<Item = IpAddr> {
    (1..=MANY).flat_map(|i| Family::ALL.map(|family| family.of([10, 252, 0, i].into())))
}

/// Sends a datagram from each of these addresses; returns the servers that answered.
#[track_caller]
fn ask_from_many(world: &World, to: &str) -> Vec<String> {
    let answer = |source: IpAddr| {
        let family = Family::of_address(source);
        world.node().send_udp_from((source, 0), destination(to, family))
    };
    many().map(|source| answer(source).server().to_owned()).collect()
}

fn destination(to: &str, family: Family) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap();
    SocketAddr::new(family.of(*to.ip()), to.port())
}

fn servers(answers: &Answers) -> BTreeSet<&str> {
    answers.values().map(String::as_str).collect()
}

/// Whether one server answers the client by every protocol and family, and sees its own address.
#[track_caller]
fn keeps_address(world: &World, client: &'static str, to: &str) -> bool {
    let host = world.host(client);
    let sees = |family: Family| {
        let to: SocketAddrV4 = to.parse().unwrap();
        let to = SocketAddr::new(family.of(*to.ip()), to.port());
        match world.ask(client, to, Protocol::Tcp) {
            Answer::From { seen, .. } => {
                [IpAddr::from(host.ip()), host.ip6().into()].contains(&seen.ip())
            }
            answer @ (Answer::Echoed
            | Answer::Refused
            | Answer::Silent
            | Answer::Unreachable(_)) => {
                panic!("{client} -> {to}: {answer:?}")
            }
        }
    };
    Family::ALL.into_iter().all(sees)
}

/// The clients that the kernel remembers: timeout and remaining time of each.
fn remembered(world: &World) -> Vec<(Duration, Duration)> {
    let mut kernel = world.node().run(Nftables::open).unwrap();
    let table = TableRef::new(nft::Family::Ip, "kube-proxy");
    let mut clients = Vec::new();
    kernel
        .read_elements(&table, "affinity-clients", &mut |read| match read {
            ElementRead::Start => clients.clear(),
            ElementRead::Element(view) => {
                clients.push((view.timeout.unwrap(), view.expires.unwrap()));
            }
        })
        .unwrap();
    clients
}

/// A new proxy on the tables of the former one, with the same objects.
fn restart(lab: &mut Lab) -> Sent {
    let objects = lab.proxy.objects();
    lab.proxy = Proxy::start(lab.world.node(), routing());
    let objects: Vec<&dyn Object> = objects.iter().map(|object| object as &dyn Object).collect();
    lab.apply(&objects)
}

/// Each pod has an endpoint of its own choice, though a node port masquerades
/// them all.
#[test]
fn a_client_gets_the_same_endpoint_by_cluster_ip_node_port_and_load_balancers_ip() {
    let mut lab = Lab::new();
    let service = sticky(web_with_node_port().load_balancer_ip("198.51.100.1"), 10_800);
    lab.apply(&[&service, &slice("a b c d")]);
    lab.world.node().add_addresses(many());
    let first = ask(&lab.world, &CLIENTS, WEB);
    let first_of_many = ask_from_many(&lab.world, WEB);
    assert_eq!(first_of_many.iter().collect::<BTreeSet<_>>().len(), 4, "{first_of_many:?}");
    for to in [WEB, NODE_PORT, VIP, WEB] {
        assert_eq!(ask(&lab.world, &CLIENTS, to), first, "{to}");
        assert_eq!(ask_from_many(&lab.world, to), first_of_many, "{to}");
    }
    assert!(keeps_address(&lab.world, "pod", WEB));
    assert!(!keeps_address(&lab.world, "pod", VIP));
}

#[test]
fn ports_of_a_service_are_remembered_each_by_itself() {
    let mut lab = Lab::new();
    let two_ports = |service: Service| {
        service.named_port("one", Protocol::Tcp, 80, 0).named_port("two", Protocol::Tcp, 81, 0)
    };
    let service = sticky(two_ports(Service::new("web", "10.96.0.10")), 60);
    let targets = Slice::new("web").without_ports().endpoints("a b c d");
    let targets =
        targets.named_target("one", Protocol::Tcp, 8080).named_target("two", Protocol::Tcp, 8080);
    lab.apply(&[&service, &targets]);
    let tcp = |to: &str| {
        let to: std::net::SocketAddr = to.parse().unwrap();
        let server = |client| lab.world.ask(client, to, Protocol::Tcp).server().to_owned();
        CLIENTS.map(server)
    };
    let (one, two) = (tcp(WEB), tcp(SECOND_PORT));
    assert_eq!((&one, &two), (&tcp(WEB), &tcp(SECOND_PORT)));
    assert_eq!(remembered(&lab.world).len(), 2 * CLIENTS.len());
}

/// As kubernetes/kubernetes#103000 asks.
#[test]
fn with_the_scope_of_the_service_a_client_gets_one_pod_by_all_ports() {
    let mut lab = Lab::new();
    let hosts = ["a", "b", "c", "d"];
    let _servers = hosts.map(|name| lab.world.host(name).serve_udp(8081, name));
    let service = sticky(Service::new("web", "10.96.0.10"), 60)
        .named_port("one", Protocol::Udp, 80, 30080)
        .named_port("two", Protocol::Udp, 81, 0)
        .annotation("deltaproxy.io/affinity-scope", "service");
    let targets = |hosts: &str| {
        let slice = Slice::new("web").without_ports().endpoints(hosts);
        slice.named_target("one", Protocol::Udp, 8080).named_target("two", Protocol::Udp, 8081)
    };
    lab.world.node().add_addresses(many());
    for hosts in ["a b c", "a b c d", "b c d", "a c"] {
        lab.apply(&[&service, &targets(hosts)]);
        let of_one = ask_from_many(&lab.world, WEB);
        for to in [SECOND_PORT, NODE_PORT] {
            assert_eq!(ask_from_many(&lab.world, to), of_one, "{to} with {hosts}");
        }
        let servers: BTreeSet<_> = of_one.iter().map(String::as_str).collect();
        assert_eq!(servers, hosts.split(' ').collect(), "each has clients");
    }
    assert!(remembered(&lab.world).is_empty());
}

#[test]
fn the_timeout_starts_again_at_each_new_connection_and_then_the_client_is_forgotten() {
    let mut lab = Lab::new();
    let long = Duration::from_secs(600);
    lab.apply(&[&sticky(web(), 600), &slice("a b c d")]);
    let ask = || lab.world.ask("pod", WEB.parse().unwrap(), Protocol::Tcp).server().to_owned();
    let left = || {
        let [(timeout, left)] = remembered(&lab.world)[..] else { panic!("one client") };
        assert_eq!(timeout, long);
        left
    };
    let server = ask();
    let before = eventually("less of the timeout", SOON, || {
        Some(left()).filter(|left| *left < long - Duration::from_millis(300))
    });
    // Far less than the timeout passes meanwhile, also on a slow machine.
    eventually("a timeout that starts again", SOON, || {
        assert_eq!(ask(), server);
        (left() > before).then_some(())
    });
    // The next connection has the shorter timeout.
    lab.proxy.apply(&[&sticky(web(), 1)]);
    assert_eq!(ask(), server);
    eventually("the client is forgotten", SOON, || remembered(&lab.world).is_empty().then_some(()));
}

#[test]
fn clients_of_an_endpoint_that_goes_get_others_and_do_not_return_with_it() {
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web(), 10_800), &slice("a c")]);
    lab.world.node().add_addresses(many());
    let first = ask(&lab.world, &CLIENTS, WEB);
    assert_eq!(servers(&first).len(), 2, "{first:?}");
    let first_of_many = ask_from_many(&lab.world, WEB);
    // Both changes are over before most clients send again.
    lab.apply(&[&slice("c")]);
    let alone = ask(&lab.world, &["pod"], WEB);
    assert_eq!(servers(&alone), BTreeSet::from(["c"]));
    lab.apply(&[&slice("c a")]);
    assert_eq!(ask(&lab.world, &["pod"], WEB), alone, "who got another keeps it");
    let then = ask(&lab.world, &CLIENTS, WEB);
    let then_of_many = ask_from_many(&lab.world, WEB);
    let others = first.iter().filter(|(client, _)| client.0 != "pod");
    let others = others.map(|(client, was)| (was, &then[client]));
    let all: Vec<_> = others.chain(first_of_many.iter().zip(&then_of_many)).collect();
    let stayed = |server: &str| {
        let of = all.iter().filter(|(was, _)| *was == server);
        of.map(|(_, is)| *is == server).collect::<Vec<_>>()
    };
    assert!(stayed("c").iter().all(|stayed| *stayed), "clients of c had no reason to leave");
    assert!(stayed("a").iter().any(|stayed| !stayed), "a remembers who it had before");
    assert_eq!(ask(&lab.world, &CLIENTS, WEB), then);
}

/// As kubernetes/kubernetes#110302 asks.
#[test]
fn clients_of_an_endpoint_that_is_not_ready_any_more_get_others_and_keep_them() {
    for (ready, serving, terminating) in [(false, false, false), (false, true, true)] {
        let mut lab = Lab::new();
        lab.apply(&[&sticky(web(), 10_800), &slice("a c")]);
        assert_eq!(servers(&ask(&lab.world, &CLIENTS, WEB)).len(), 2);
        let with = |host| Endpoint::new(host).conditions(ready, serving, terminating);
        let only_c = |lab: &Lab| servers(&ask(&lab.world, &CLIENTS, WEB)) == BTreeSet::from(["c"]);
        lab.apply(&[&slice("c").endpoint(with("a"))]);
        assert!(only_c(&lab), "{serving}");
        lab.apply(&[&slice("a c")]);
        assert!(only_c(&lab), "{serving}");
        if serving {
            lab.apply(&[&slice("").endpoint(with("a")).endpoint(with("c"))]);
            assert!(only_c(&lab), "both serve while they terminate");
        }
    }
}

#[test]
fn clients_are_remembered_over_restarts_and_full_syncs() {
    let mut lab = Lab::new();
    let service = sticky(web_with_node_port().external_local(), 10_800);
    // After added and removed endpoints, numbers differ from those of a first start.
    for endpoints in ["a", "b", "c d", "b c", "a b c d"] {
        lab.apply(&[&service, &slice(endpoints)]);
    }
    let first = [ask(&lab.world, &CLIENTS, WEB), ask(&lab.world, &["outside"], NODE_PORT)];
    for sent in [restart(&mut lab), lab.proxy.resync()] {
        assert!(sent.transactions.is_empty(), "{}", sent.script());
        let again = [ask(&lab.world, &CLIENTS, WEB), ask(&lab.world, &["outside"], NODE_PORT)];
        assert_eq!(again, first);
    }
    // The change does not affect other services.
    let mut other = sticky(Service::new("other", "10.96.0.11").port(80), 60);
    lab.apply(&[&other, &Slice::new("other").endpoints("a b")]);
    restart(&mut lab);
    other = sticky(Service::new("other", "10.96.0.11").port(80), 90);
    lab.apply(&[&other, &slice("a b c d 10.244.2.99")]);
    lab.apply(&[&slice("a b c d")]);
    assert_eq!(ask(&lab.world, &CLIENTS, WEB), first[0]);
}

#[test]
fn a_new_timeout_applies_to_new_connections_and_keeps_all_clients() {
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web(), 10_800), &slice("a b c d")]);
    let first = ask(&lab.world, &["pod", "a"], WEB);
    lab.apply(&[&sticky(web(), 60)]);
    let new: BTreeSet<_> = ask(&lab.world, &["b"], WEB).into_values().collect();
    let timeouts: BTreeSet<_> = remembered(&lab.world).iter().map(|(whole, _)| *whole).collect();
    assert_eq!(timeouts, [60, 10_800].map(Duration::from_secs).into(), "{new:?}");
    assert_eq!(ask(&lab.world, &["pod", "a"], WEB), first);
    let left = remembered(&lab.world).iter().map(|(_, left)| *left).max();
    assert!(left <= Some(Duration::from_secs(60)), "{left:?}");
}

#[test]
fn switching_affinity_under_load_refuses_no_connection() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a b c d")]);
    let Lab { world, proxy } = &mut lab;
    let (done, answers) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|threads| {
        for (client, protocol) in [("pod", Protocol::Tcp), ("node", Protocol::Udp)] {
            let (world, done, answers) = (&*world, &done, &answers);
            threads.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let _ = world.ask(client, WEB.parse().unwrap(), protocol).server();
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let limit = Deadline::after(SOON);
        for round in 0.. {
            let is_enough = round >= 30 && answers.load(Ordering::Relaxed) > 10;
            if is_enough || limit.left().is_none() {
                break;
            }
            let service = if round % 2 == 0 { sticky(web(), 60 + round) } else { web() };
            let endpoints = if round % 3 == 0 { "a b c d" } else { "d b a c 10.244.1.5" };
            let _ = proxy.apply(&[&service, &slice(endpoints)]);
            thread::sleep(Duration::from_millis(10));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(answers.into_inner() > 10);
    lab.apply(&[&web(), &slice("a b c d")]);
    let shares = lab.world.shares("pod", WEB, (Family::Ipv4, Protocol::Udp), 60);
    assert_eq!(shares.len(), 4, "without affinity all endpoints serve: {shares:?}");
}

/// Spoofed sources fill the elements of the service that they are sent to and no others, and
/// no client of either service is forgotten or left out.
#[test]
fn a_flood_of_sources_takes_one_list_s_share_and_every_client_is_remembered() {
    let mut lab = Lab::new();
    let other = Service::new("other", "10.96.0.11").port(80);
    lab.apply(&[&sticky(web(), 10_800), &slice("a b c d")]);
    lab.apply(&[&sticky(other, 10_800), &Slice::new("other").endpoints("a b c d")]);
    let [early, late] = [&CLIENTS[..2], &CLIENTS[2..]];
    let ask_both = |clients| [WEB, "10.96.0.11:80"].map(|to| ask(&lab.world, clients, to));
    let before = ask_both(early);
    for (family, count) in [(Family::Ipv4, FLOOD), (Family::Ipv6, FLOOD / 8)] {
        let sources = (0..count).map(|nth| spoofed(nth, family));
        lab.world.host("pod").spoof_udp(sources, destination(WEB, family));
    }
    let lists = remembered_by_list(&lab.world);
    let flooded = lists.values().copied().max().unwrap();
    assert!((FLOOD / 4..=CLIENT_HASHES).contains(&flooded), "{lists:?}");
    let others: usize = lists.values().filter(|count| **count != flooded).sum();
    assert!(others <= 3 * 2 * CLIENTS.len(), "{lists:?}");
    assert_eq!(ask_both(early), before);
    let after = ask_both(late);
    assert_eq!(ask_both(late), after);
    assert_eq!(lab.world.shares("outside", WEB, (Family::Ipv4, Protocol::Tcp), 10).len(), 1);
}

/// Sources of a flood, twice as many as a list has client hashes.
const FLOOD: usize = 2 * CLIENT_HASHES;

/// The client hashes of a list, see docs/limits.md.
const CLIENT_HASHES: usize = 32_768;

fn spoofed(nth: usize, family: Family) -> IpAddr {
    let nth = u32::try_from(nth).unwrap();
    match family {
        Family::Ipv4 => Ipv4Addr::from(0x0b00_0001 + nth).into(),
        Family::Ipv6 => Ipv6Addr::from(0xfd11_u128 << 112 | u128::from(nth)).into(),
    }
}

/// How many client hashes each list with affinity has recorded, in the IPv4 table.
fn remembered_by_list(world: &World) -> BTreeMap<Vec<u8>, usize> {
    let table = world.node().read_table(netlink_tests::reader::Family::Ip).unwrap();
    let mut lists = BTreeMap::new();
    for element in &table.sets["affinity-clients"].elements {
        *lists.entry(element.key[..4].to_vec()).or_default() += 1;
    }
    lists
}

#[test]
fn the_daemon_reports_how_many_client_hashes_are_recorded() {
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web(), 10_800), &slice("a b c d")]);
    let _ = ask(&lab.world, &CLIENTS, WEB);
    let clients = remembered(&lab.world).len();
    let folder = tempfile::tempdir().unwrap();
    for (nth, object) in lab.proxy.objects().into_iter().enumerate() {
        let path = folder.path().join(format!("{nth}.json"));
        std::fs::write(path, object.documents()[0].to_string()).unwrap();
    }
    let node = lab.world.node();
    let manifests = format!("--manifests={}", folder.path().display());
    let arguments = ["run", &manifests, "--hostname-override=node-a", "--healthz-bind-address="];
    let cidrs = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48";
    let _daemon = node.spawn(deltaproxy_binary(), &[&arguments[..], &[cidrs]].concat());
    let [v4, v6] = ["IPv4", "IPv6"]
        .map(|family| format!("deltaproxy_affinity_clients{{ip_family=\"{family}\"}} {clients}\n"));
    let table = TableRef::new(nft::Family::Ip, "kube-proxy");
    let mut kernel = node.run(Nftables::open).unwrap();
    let is_reported = kernel.count_elements(&table, "affinity-clients").unwrap().is_some();
    eventually("the metric", SOON, || {
        let metrics = node.run(metrics).ok()?;
        let is_there = metrics.contains(&v4) && metrics.contains(&v6);
        (is_there == is_reported && metrics.contains("affinity_clients_max 1048576")).then_some(())
    });
}

fn metrics() -> std::io::Result<String> {
    let mut stream = TcpStream::connect("127.0.0.1:10249")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn clients_are_remembered_by_rules_that_nft_has_loaded_from_a_listing() {
    if !netlink_tests::nft_can_load() {
        return;
    }
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web(), 10_800), &slice("a b c d")]);
    let node = lab.world.node();
    let listed = node.nft("list ruleset");
    node.nft_script(&format!("flush ruleset\n{listed}"));
    let first = ask(&lab.world, &CLIENTS, WEB);
    assert!(servers(&first).len() > 1);
    assert_eq!(ask(&lab.world, &CLIENTS, WEB), first);
}

#[test]
fn with_policy_local_clients_outside_stick_to_endpoints_on_the_node() {
    let mut lab = Lab::new();
    let service = sticky(web_with_node_port().external_local(), 10_800);
    lab.apply(&[&service, &slice("a b c d")]);
    let first = ask(&lab.world, &["outside"], NODE_PORT);
    assert_eq!(ask(&lab.world, &["outside"], NODE_PORT), first);
    assert!(servers(&first).is_subset(&BTreeSet::from(["a", "b"])), "{first:?}");
    assert!(keeps_address(&lab.world, "outside", NODE_PORT));
    let inside = ask(&lab.world, &["pod", "node"], NODE_PORT);
    assert_eq!(ask(&lab.world, &["pod", "node"], WEB), inside, "pods and the node use all");
    lab.apply(&[&slice("c d")]);
    lab.check(&[("outside", NODE_PORT, Expect::Silent)]);
}

#[test]
fn with_internal_policy_local_pods_stick_to_endpoints_on_the_node() {
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web().internal_local(), 10_800), &slice("a b c d")]);
    let first = ask(&lab.world, &CLIENTS, WEB);
    assert_eq!(servers(&first), BTreeSet::from(["a", "b"]));
    assert_eq!(ask(&lab.world, &CLIENTS, WEB), first);
}

#[test]
fn a_deleted_service_with_affinity_leaves_only_elements_that_expire() {
    let mut lab = Lab::new();
    let service = sticky(web_with_node_port().external_local(), 10_800);
    let before = lab.world.node().read_table(netlink_tests::reader::Family::Ip);
    lab.apply(&[&service, &slice("a b c d")]);
    ask(&lab.world, &CLIENTS, WEB);
    lab.remove(&[&service, &slice("a b c d")]);
    let mut after = lab.world.node().read_table(netlink_tests::reader::Family::Ip).unwrap();
    after.sets.get_mut("affinity-clients").unwrap().elements.clear();
    let names = |table: &netlink_tests::reader::Table| {
        let sets = table.sets.iter().map(|(name, set)| (name.clone(), set.elements.clone()));
        (table.chains.keys().cloned().collect::<Vec<_>>(), sets.collect::<Vec<_>>())
    };
    assert_eq!(names(&after), names(&before.unwrap()));
}

/// Numbers that rules note in a packet's priority must not choose a queue.
#[test]
fn the_priority_of_a_packet_is_as_if_there_were_no_affinity() {
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web(), 60), &slice("a b c d")]);
    for (client, family) in [("node", Family::Ipv4), ("node", Family::Ipv6), ("pod", Family::Ipv6)]
    {
        lab.world.node().nft_script(
            "table inet watch {
               set seen { type classid; flags dynamic; }
               chain leaving {
                 type filter hook postrouting priority 300;
                 meta l4proto tcp ct status dnat add @seen { meta priority }
               }
             }",
        );
        let to = std::net::SocketAddr::new(family.of([10, 96, 0, 10].into()), 80);
        let _ = lab.world.ask(client, to, Protocol::Tcp).server();
        let seen = lab.world.node().nft("list set inet watch seen");
        assert!(seen.contains("elements = { none }"), "{client} {}: {seen}", family.name());
        lab.world.node().nft("delete table inet watch");
    }
}

/// Other programs may change the tables where the kernel has no owners for them.
#[test]
fn elements_that_another_program_deletes_come_back_and_clients_are_remembered() {
    let mut lab = Lab::new();
    lab.apply(&[&sticky(web(), 60), &slice("a b c d")]);
    for map in ["affinity-endpoints", "affinity-slots", "affinity-lists", "services"] {
        lab.world.node().nft(&format!("flush map ip kube-proxy {map}"));
        let sent = lab.proxy.resync();
        assert_eq!(sent.transactions.len(), 1, "{map}: {}", sent.script());
        let first = ask(&lab.world, &CLIENTS, WEB);
        assert_eq!(ask(&lab.world, &CLIENTS, WEB), first, "{map}");
    }
}
