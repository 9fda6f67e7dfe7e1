//! Counts of rejected and dropped packets: each packet counts once, by its reason and its service,
//! and no other packet counts.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::Duration;

use daemon::node::{can_route_localnet, route_localnet};
use engine::counters::Counters;
use engine::routing::Routing;
use netlink_tests::scenario::{
    Family, Lab, Manifests, Object, Proxy, Service, ServiceCidr, Slice, keeps_source, masquerades,
    routing,
};
use netlink_tests::{Host, deltaproxy_binary, eventually};
use serde_json::{Value, json};

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Packets of one kind.
const EACH: u64 = 7;

/// The bytes of such a packet: headers of UDP and IP, and one byte.
const BYTES: [u64; 2] = [29, 49];

const EMPTY: &str = "10.96.0.30:80";
const EMPTY_PORT: &str = "192.168.50.2:30030";
const REMOTE_PORT: &str = "192.168.50.2:30031";
const RESTRICTED: &str = "198.51.100.2:80";
const UNKNOWN_PORT: &str = "10.96.0.30:81";
const UNALLOCATED: &str = "10.96.0.77:80";

fn empty() -> Service {
    Service::new("empty", "10.96.0.30").node_port(80, 30030)
}

/// All endpoints are on another node.
fn remote() -> Service {
    Service::new("remote", "10.96.0.31").node_port(80, 30031).external_local()
}

/// For sources outside of the cluster.
fn restricted() -> Service {
    let ranges = json!(["192.0.2.0/24", "fd00:192:0:2::/64"]);
    let service = Service::new("restricted", "10.96.0.32").load_balancer_ip("198.51.100.2");
    service.port(80).spec("loadBalancerSourceRanges", ranges)
}

fn served() -> Service {
    Service::new("served", "10.96.0.33").node_port(80, 30033)
}

fn lab_with(routing: Routing) -> Lab {
    let mut lab = Lab::with(routing);
    lab.apply(&[
        &empty(),
        &remote(),
        &Slice::new("remote").endpoints("c"),
        &restricted(),
        &Slice::new("restricted").endpoints("a c"),
        &served(),
        &Slice::new("served").endpoints("a c"),
    ]);
    lab
}

fn at(to: &str, family: Family) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap();
    SocketAddr::new(family.of(*to.ip()), to.port())
}

/// Sends datagrams of one byte from one socket.
fn send(host: &Host, to: SocketAddr, count: u64) {
    host.run(|| {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        for _ in 0..count {
            // A dropped packet of this host is an error, and so is an answer to an earlier one.
            let _ = socket.send_to(b"x", to);
        }
    });
}

fn document(node: &Host, arguments: &str) -> Value {
    let arguments: Vec<_> =
        ["show", "--output", "json"].into_iter().chain(arguments.split_whitespace()).collect();
    serde_json::from_str(&node.output(deltaproxy_binary(), &arguments).ok()).unwrap()
}

/// Packets and bytes by the words of `names`, without zeros.
fn counts(list: &Value, names: &[&str]) -> BTreeMap<String, (u64, u64)> {
    let key = |it: &Value| {
        let words: Vec<_> = names.iter().map(|name| it[*name].as_str().unwrap()).collect();
        words.join(" ")
    };
    let number = |it: &Value, name: &str| it[name].as_u64().unwrap();
    let all = list.as_array().unwrap().iter();
    let counts = all.map(|it| (key(it), (number(it, "packets"), number(it, "bytes"))));
    counts.filter(|(_, (packets, _))| *packets > 0).collect()
}

/// What `show --refused` has: by reason, and by frontend and reason.
fn refused(node: &Host) -> [BTreeMap<String, (u64, u64)>; 2] {
    let found = document(node, "--refused");
    [
        counts(&found["reasons"], &["family", "reason"]),
        counts(&found["refused"], &["service", "frontend", "reason"]),
    ]
}

/// Waits until all packets are counted, and compares; packets of a kind with their key.
#[track_caller]
fn check(node: &Host, expected: [&[(String, u64)]; 2]) {
    let packets = |found: &BTreeMap<String, (u64, u64)>| -> BTreeMap<String, u64> {
        found.iter().map(|(key, (packets, _))| (key.clone(), *packets)).collect()
    };
    let expected = expected.map(|list| list.iter().cloned().collect::<BTreeMap<_, _>>());
    let sum =
        |maps: &[BTreeMap<String, u64>; 2]| -> u64 { maps.iter().flat_map(|it| it.values()).sum() };
    let found = eventually(&format!("{expected:?}"), SOON, || {
        let found = refused(node);
        let found = [packets(&found[0]), packets(&found[1])];
        (sum(&found) >= sum(&expected)).then_some(found)
    });
    assert_eq!(found, expected);
}

/// The sets of addresses where node ports are served: the primary ones, and all.
fn routings() -> [Routing; 2] {
    let everywhere = "0.0.0.0/0,::/0".parse().unwrap();
    [routing(), Routing { node_port_addresses: everywhere, ..routing() }]
}

#[test]
fn each_refused_packet_counts_once_by_its_reason_and_its_service() {
    for routing in routings() {
        let lab = lab_with(routing);
        let kinds = [
            ("pod", EMPTY, "default/empty:p80-udp", "no_endpoint"),
            ("outside", EMPTY_PORT, "default/empty:p80-udp", "no_endpoint"),
            ("node", EMPTY, "", "no_endpoint"),
            ("outside", REMOTE_PORT, "default/remote:p80-udp", "no_local_endpoint"),
            ("pod", RESTRICTED, "default/restricted:p80-udp", "source_range"),
            ("node", RESTRICTED, "", "source_range"),
            ("pod", UNKNOWN_PORT, "", "unknown_port"),
            ("pod", UNALLOCATED, "", "unallocated_address"),
        ];
        let mut totals = BTreeMap::<String, u64>::new();
        let mut frontends = BTreeMap::<String, u64>::new();
        for (nth, family) in Family::ALL.into_iter().enumerate() {
            for (more, (client, to, service, reason)) in (0..).zip(kinds) {
                let count = EACH + more;
                send(lab.world.host(client), at(to, family), count);
                let name = ["IPv4", "IPv6"][nth];
                *totals.entry(format!("{name} {reason}")).or_default() += count;
                // Those of the node itself count for the service of the pod's.
                let service = match (service, to) {
                    ("", EMPTY) => "default/empty:p80-udp",
                    ("", RESTRICTED) => "default/restricted:p80-udp",
                    (service, _) => service,
                };
                if !service.is_empty() {
                    let frontend = shown_as(lab.world.node(), at(to, family));
                    *frontends.entry(format!("{service} {frontend} {reason}")).or_default() +=
                        count;
                }
            }
        }
        let list = |map: BTreeMap<String, u64>| map.into_iter().collect::<Vec<_>>();
        check(lab.world.node(), [&list(totals), &list(frontends)]);
        let [by_reason, by_frontend] = refused(lab.world.node());
        for (key, (packets, bytes)) in by_reason {
            let each = BYTES[usize::from(key.starts_with("IPv6"))];
            assert_eq!(bytes, packets * each, "{key}");
        }
        assert!(
            by_frontend
                .values()
                .all(|(packets, bytes)| { BYTES.iter().any(|each| *bytes == packets * each) })
        );
    }
}

/// The address that `show` prints for packets to `to`.
fn shown_as(node: &Host, to: SocketAddr) -> String {
    if !(30_000..31_000).contains(&to.port()) {
        return format!("{to}/udp");
    }
    let services = document(node, "")["services"].take();
    let family = if to.is_ipv4() { "IPv4" } else { "IPv6" };
    let is_limited = services.as_array().unwrap().iter().any(|it| {
        it["family"] == family && it["kind"] == "node-port" && !it["node_addresses"].is_null()
    });
    match (is_limited, to.is_ipv4()) {
        (true, _) => format!("{to}/udp"),
        (false, true) => format!("*:{}/udp", to.port()),
        (false, false) => format!("[*]:{}/udp", to.port()),
    }
}

#[test]
fn packets_that_reach_an_endpoint_or_another_host_count_nowhere() {
    for routing in routings() {
        let mut lab = lab_with(routing);
        // A port that is an unserved node port here.
        lab.world.serve("outside", "elsewhere", 30030);
        lab.world.serve("outside", "elsewhere", 30031);
        lab.check(&[
            ("pod", "10.96.0.33:80", keeps_source("a c")),
            ("outside", "192.168.50.2:30033", masquerades("a c")),
            ("outside", RESTRICTED, masquerades("a c")),
            ("pod", "192.0.2.10:30030", keeps_source("elsewhere")),
            ("pod", "192.0.2.10:30031", keeps_source("elsewhere")),
        ]);
        check(lab.world.node(), [&[], &[]]);
    }
}

/// IPv4 only: the kernel routes no packets to the loopback address of IPv6.
#[test]
fn packets_of_other_hosts_to_loopback_addresses_count() {
    let node_port_addresses = "primary,localhost".parse().unwrap();
    let lab = lab_with(Routing { node_port_addresses, ..routing() });
    lab.world.node().run(|| {
        can_route_localnet().unwrap();
        route_localnet().unwrap();
    });
    lab.world.host("outside").give_up_loopback();
    send(lab.world.host("outside"), "127.0.0.1:7777".parse().unwrap(), EACH);
    check(lab.world.node(), [&[("IPv4 loopback".to_owned(), EACH)], &[]]);
}

#[test]
fn a_change_of_another_service_and_a_restart_reset_no_count() {
    let mut lab = lab_with(routing());
    let node = lab.world.node().clone();
    send(lab.world.host("pod"), at(EMPTY, Family::Ipv4), EACH);
    send(lab.world.host("pod"), at(RESTRICTED, Family::Ipv4), EACH);
    let totals = [("IPv4 no_endpoint".to_owned(), EACH), ("IPv4 source_range".to_owned(), EACH)];
    let empty_key = "default/empty:p80-udp 10.96.0.30:80/udp no_endpoint".to_owned();
    let restricted_key = "default/restricted:p80-udp 198.51.100.2:80/udp source_range".to_owned();
    let frontends = [(empty_key, EACH), (restricted_key.clone(), EACH)];
    check(&node, [&totals, &frontends]);

    let other = Service::new("other", "10.96.0.34").port(80);
    lab.apply(&[&other, &Slice::new("other").endpoints("a")]);
    lab.remove(&[&Slice::new("other").endpoints("a")]);
    check(&node, [&totals, &frontends]);

    // Other ranges of the same service.
    let ranges = json!(["203.0.113.0/24", "fd00:203::/32"]);
    let sent = lab.apply(&[&restricted().spec("loadBalancerSourceRanges", ranges)]);
    assert!(sent.script().contains("source-ranges"), "{}", sent.script());
    check(&node, [&totals, &frontends]);

    // What was counted is no difference.
    assert!(lab.proxy.resync().transactions.is_empty());
    let objects = lab.proxy.objects();
    lab.proxy = Proxy::start(&node, routing());
    let objects: Vec<&dyn Object> = objects.iter().map(|object| object as &dyn Object).collect();
    let sent = lab.apply(&objects);
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    check(&node, [&totals, &frontends]);

    // The element goes with the last reason to refuse; the rule stays.
    lab.apply(&[&Slice::new("empty").endpoints("a")]);
    check(&node, [&totals, &[(restricted_key.clone(), EACH)]]);
    lab.apply(&[&Slice::new("empty").endpoints("")]);
    check(&node, [&totals, &[(restricted_key, EACH)]]);
}

#[test]
fn another_service_cidr_resets_the_counts_of_addresses_and_ports_without_a_service_alone() {
    let mut lab = lab_with(routing());
    let node = lab.world.node().clone();
    for to in [EMPTY, UNKNOWN_PORT, UNALLOCATED] {
        send(lab.world.host("pod"), at(to, Family::Ipv4), EACH);
    }
    let key = |reason: &str| format!("IPv4 {reason}");
    let kept = (key("no_endpoint"), EACH);
    let reset = ["unknown_port", "unallocated_address"].map(|reason| (key(reason), EACH));
    let all = [std::slice::from_ref(&kept), &reset].concat();
    let frontends = [("default/empty:p80-udp 10.96.0.30:80/udp no_endpoint".to_owned(), EACH)];
    check(&node, [&all, &frontends]);
    lab.apply(&[&ServiceCidr::new("second", &["10.98.0.0/16"])]);
    check(&node, [&[kept], &frontends]);
}

/// The setting adds counters of connections, and leaves those of refused packets.
#[test]
fn packets_count_with_every_setting_of_counters() {
    for counters in Counters::ALL {
        let lab = lab_with(Routing { counters, ..routing() });
        send(lab.world.host("outside"), at(REMOTE_PORT, Family::Ipv4), EACH);
        let frontend = "default/remote:p80-udp 192.168.50.2:30031/udp no_local_endpoint";
        let totals = [("IPv4 no_local_endpoint".to_owned(), EACH)];
        check(lab.world.node(), [&totals, &[(frontend.to_owned(), EACH)]]);
    }
}

/// A connection attempt by TCP sends its first packet again, and each one counts.
#[test]
fn a_repeated_first_packet_of_tcp_counts_again() {
    let lab = lab_with(routing());
    let to = at(REMOTE_PORT, Family::Ipv4);
    lab.world.host("outside").run(|| {
        let _ = TcpStream::connect_timeout(&to, Duration::from_millis(2_500));
    });
    let [by_reason, _] = refused(lab.world.node());
    let (packets, _) = by_reason["IPv4 no_local_endpoint"];
    assert!((2..=3).contains(&packets), "{packets}");
}

/// An answer of the daemon; empty if there is none.
fn answer(host: &Host, path: &str) -> String {
    host.run(|| {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", 10249)) {
            let request = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_string(&mut text).unwrap();
        }
        text
    })
}

/// No commit shows that the counts changed.
#[test]
fn show_reads_the_counts_again_without_a_commit() {
    let lab = lab_with(routing());
    let arguments = "show --refused --watch --interval 100ms --output json";
    let arguments: Vec<_> = arguments.split(' ').collect();
    let mut shown = lab.world.node().spawn(deltaproxy_binary(), &arguments);
    shown.wait_for_line("\"refused\":[]", SOON);
    send(lab.world.host("pod"), at(EMPTY, Family::Ipv4), EACH);
    let line = shown.wait_for_line(&format!("\"packets\":{EACH}"), SOON);
    assert!(line.contains("\"service\":\"default/empty:p80-udp\""), "{line}");
}

/// The daemon's check, the comparison by hand, and the plan.
#[test]
fn a_count_is_no_difference() {
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let manifests = Manifests::new(&[
        ("empty", &empty()),
        ("restricted", &restricted()),
        ("slice", &Slice::new("restricted").endpoints("a c")),
    ]);
    let _daemon = manifests.run_with(node, &["--healthz-bind-address=", "--check-period=1s"]);
    let metrics = || answer(node, "/metrics");
    let rounds = |page: &str| {
        let name = "deltaproxy_check_last_round_timestamp_seconds ";
        page.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    };
    let client = lab.world.host("pod");
    for round in 0..2 {
        for to in [EMPTY, RESTRICTED] {
            Family::ALL.into_iter().for_each(|family| send(client, at(to, family), EACH));
        }
        let last = rounds(&metrics());
        eventually(&format!("round {round}"), SOON, || {
            Some(rounds(&metrics())).filter(|now| now.is_some() && *now != last)
        });
    }
    let page = metrics();
    let differences =
        page.lines().filter(|it| it.starts_with("deltaproxy_check_differences_total"));
    assert!(
        differences.clone().all(|it| it.ends_with(" 0")),
        "{:?}",
        differences.collect::<Vec<_>>()
    );
    for command in ["verify", "plan"] {
        let finished = node.output(deltaproxy_binary(), &manifests.arguments(command));
        assert_eq!(finished.code(), Some(0), "{command}: {}{}", finished.stdout, finished.stderr);
    }
}

/// Also over the replacement of the tables by those with another flag at a regular end.
#[test]
fn the_daemon_has_a_metric_and_a_line_on_its_page_and_counts_survive_its_restart() {
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let manifests = Manifests::new(&[("empty", &empty())]);
    let flags = ["--healthz-bind-address="];
    let daemon = manifests.run_with(node, &flags);
    let metric = "deltaproxy_refused_packets_total{ip_family=\"IPv4\",reason=\"no_endpoint\"}";
    let wait_for = |count: u64| {
        eventually(&format!("{metric} {count}"), SOON, || {
            answer(node, "/metrics").contains(&format!("{metric} {count}\n")).then_some(())
        });
    };
    wait_for(0);
    send(lab.world.host("pod"), at(EMPTY, Family::Ipv4), EACH);
    wait_for(EACH);
    let page = answer(node, "/status.json?draining");
    let body = page.split_once("\r\n\r\n").unwrap().1;
    let status: Value = serde_json::from_str(body).unwrap();
    assert_eq!(status["refused"]["no_endpoint"], EACH);
    let frontends = [("default/empty:p80-udp 10.96.0.30:80/udp no_endpoint".to_owned(), EACH)];
    let totals = [("IPv4 no_endpoint".to_owned(), EACH)];
    check(node, [&totals, &frontends]);
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
    check(node, [&totals, &frontends]);
    let _again = manifests.run_with(node, &flags);
    wait_for(EACH);
    check(node, [&totals, &frontends]);
}
