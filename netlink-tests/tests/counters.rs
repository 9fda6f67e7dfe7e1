//! Counters of connections in the elements: each new connection counts once, and nothing else does.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use engine::counters::Counters;
use engine::routing::Routing;
use engine::ruleset::SetId;
use netlink_tests::scenario::{
    Family, Lab, Manifests, NODE_PORT, Object, Protocol, Proxy, Race, Sent, Service, Slice, WEB,
    Way, objects_for_every_chain, routing, slice, web_everywhere, web_with_node_port,
};
use netlink_tests::{
    Answer, Host, Net, deltaproxy_binary, eventually, ip6_of, nft_available, reader,
};
use nft::kernel::{ElementRead, Kernel, Nftables, Release};
use nft::{Counter, MessageKind, TableRef};
use serde_json::{Value, json};

/// Connections of one kind.
const EACH: u64 = 6;

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn counting(counters: Counters) -> Routing {
    Routing { counters, ..routing() }
}

/// The counters of a set, in both tables; `None` for elements without one.
fn counters(node: &Host, set: SetId) -> Vec<Option<Counter>> {
    let mut kernel = node.run(Nftables::open).unwrap();
    let mut all = Vec::new();
    for family in nft::Family::ALL {
        let table = TableRef::new(family, "kube-proxy");
        let mut found = Vec::new();
        let mut each = |read: ElementRead<'_>| match read {
            ElementRead::Start => found.clear(),
            ElementRead::Element(view) => found.push(view.counter),
        };
        kernel.read_elements(&table, set.name(), &mut each).unwrap();
        all.extend(found);
    }
    all
}

/// The sum of what a set has counted.
fn sum(node: &Host, set: SetId) -> Counter {
    let mut sum = Counter::default();
    counters(node, set).into_iter().flatten().for_each(|counter| sum += counter);
    sum
}

/// Connections that `services`, `nodeports`, `endpoints` and `affinity-endpoints` have counted.
fn counted(node: &Host) -> [u64; 4] {
    let sets = [SetId::Services, SetId::NodePorts, SetId::Endpoints, SetId::AffinityEndpoints];
    sets.map(|set| sum(node, set).packets)
}

fn destination(to: &str, family: Family) -> SocketAddr {
    let to: std::net::SocketAddrV4 = to.parse().unwrap();
    SocketAddr::new(family.of(*to.ip()), to.port())
}

/// Opens [`EACH`] connections by TCP and by UDP, in both families; returns how many were answered.
#[track_caller]
fn connect(lab: &Lab, client: &str, to: &str) -> u64 {
    for family in Family::ALL {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for _ in 0..EACH {
                let answer = lab.world.ask_fast(client, destination(to, family), protocol);
                assert!(!answer.server().is_empty());
            }
        }
    }
    4 * EACH
}

/// Makes connections and compares what was counted meanwhile.
#[track_caller]
fn check(lab: &Lab, client: &str, to: &str, expected: impl Fn(u64) -> [u64; 4]) {
    let before = counted(lab.world.node());
    let made = connect(lab, client, to);
    let after = counted(lab.world.node());
    let grown: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(grown, expected(made), "{client} -> {to}");
}

fn many_address(nth: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 250, 0, nth)
}

/// So many endpoints of `web` on the node's own addresses, without those of SCTP.
fn many(count: u8) -> Slice {
    let addresses: Vec<_> = (1..=count).map(|nth| many_address(nth).to_string()).collect();
    slice(&addresses.join(" "))
        .without_ports()
        .named_target("p80-tcp", Protocol::Tcp, 8080)
        .named_target("p80-udp", Protocol::Udp, 8080)
}

fn sticky(service: Service) -> Service {
    service.spec("sessionAffinity", json!("ClientIP"))
}

/// Above eight endpoints a draw may miss, and is repeated.
#[test]
fn a_connection_counts_once_whatever_the_size_of_its_list() {
    let mut lab = Lab::with(counting(Counters::Endpoints));
    let node = lab.world.node().clone();
    let addresses = (1..=200).map(many_address);
    node.add_addresses(addresses.flat_map(|ip| [IpAddr::from(ip), ip6_of(ip).into()]));
    lab.world.serve("node", "many", 8080);
    for size in [1, 5, 9, 200] {
        lab.apply(&[&web_with_node_port(), &many(size)]);
        check(&lab, "pod", WEB, |made| [made, 0, made, 0]);
        check(&lab, "node", WEB, |made| [made, 0, made, 0]);
        check(&lab, "outside", NODE_PORT, |made| [0, made, made, 0]);
    }
}

#[test]
fn bytes_are_those_of_the_first_packets() {
    let mut lab = Lab::with(counting(Counters::Services));
    lab.apply(&[&web_with_node_port(), &slice("a")]);
    let node = lab.world.node();
    let to = destination(WEB, Family::Ipv4);
    let mut lengths = Vec::new();
    for count in 1..4 {
        let before = sum(node, SetId::Services);
        let _ = lab.world.ask_fast("pod", to, Protocol::Udp);
        let after = sum(node, SetId::Services);
        assert_eq!(after.packets, count);
        lengths.push(after.bytes - before.bytes);
    }
    // An IP header, a UDP header and a few bytes.
    assert!((29..128).contains(&lengths[0]), "{lengths:?}");
    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
}

#[test]
fn later_packets_of_a_connection_count_nothing() {
    let mut lab = Lab::with(counting(Counters::Endpoints));
    lab.apply(&[&web_with_node_port(), &slice("a c")]);
    let mut tcp = lab.world.host("pod").open_tcp(WEB).unwrap();
    let mut udp = lab.world.host("pod").open_udp(WEB);
    for _ in 0..5 {
        assert!(!tcp.ask().server().is_empty());
        assert!(!udp.ask().server().is_empty());
    }
    assert_eq!(counted(lab.world.node()), [2, 0, 2, 0]);
}

/// Pods and the node look such a frontend up twice.
#[test]
fn a_connection_to_a_frontend_of_policy_local_counts_once() {
    let mut lab = Lab::with(counting(Counters::Endpoints));
    lab.apply(&[&web_everywhere().external_local(), &slice("a c")]);
    for client in ["pod", "node", "outside"] {
        check(&lab, client, NODE_PORT, |made| [0, made, made, 0]);
        check(&lab, client, "198.51.100.2:80", |made| [made, 0, made, 0]);
    }
}

#[test]
fn a_connection_with_affinity_counts_once_for_new_and_known_clients() {
    let mut lab = Lab::with(counting(Counters::Endpoints));
    lab.apply(&[&sticky(web_with_node_port()), &slice("a b c d")]);
    for _ in 0..2 {
        check(&lab, "pod", WEB, |made| [made, 0, 0, made]);
        check(&lab, "outside", NODE_PORT, |made| [0, made, 0, made]);
    }
    let row = shown(lab.world.node(), "10.96.0.10:80/tcp");
    let of_endpoints = row["endpoints"].as_array().unwrap().iter();
    let shown_by_endpoint = of_endpoints.filter_map(|it| it["counted"]["connections"].as_u64());
    assert!(shown_by_endpoint.sum::<u64>() > 0, "{row}");
    // The endpoint of a known client is gone.
    lab.apply(&[&slice("")]);
    lab.apply(&[&slice("d")]);
    check(&lab, "pod", WEB, |made| [made, 0, 0, made]);
}

/// With node ports at every local address, a port that is a node port here may be that of another
/// host.
#[test]
fn a_connection_to_another_host_counts_for_no_node_port() {
    let node_port_addresses = "0.0.0.0/0,::/0".parse().unwrap();
    let routing = Routing { node_port_addresses, ..counting(Counters::Services) };
    let mut lab = Lab::with(routing);
    lab.world.serve("outside", "elsewhere", 30080);
    lab.apply(&[&web_with_node_port(), &slice("a c")]);
    check(&lab, "pod", "192.0.2.10:30080", |_| [0, 0, 0, 0]);
    check(&lab, "outside", NODE_PORT, |made| [0, made, 0, 0]);
    check(&lab, "pod", WEB, |made| [made, 0, 0, 0]);
}

#[test]
fn only_the_sets_of_the_setting_have_counters() {
    for setting in Counters::ALL {
        let net = Net::new();
        let _ = apply_all(&mut Proxy::start(net.node(), counting(setting)));
        for set in SetId::ALL.into_iter().filter(|set| *set != SetId::EndedEndpoints) {
            let is_frontend =
                matches!(set, SetId::Services | SetId::NodePorts | SetId::RangeServices);
            let is_endpoint =
                matches!(set, SetId::Endpoints | SetId::AffinityEndpoints | SetId::RangeEndpoints);
            let is_refusing = matches!(
                set,
                SetId::UnservedServices
                    | SetId::UnservedNodePorts
                    | SetId::SourceRefusals
                    | SetId::UnservedRangeServices
                    | SetId::RangeSourceRefusals
            );
            let is_counted = is_refusing
                || is_frontend && setting >= Counters::Services
                || is_endpoint && setting >= Counters::Endpoints;
            let found = counters(net.node(), set);
            assert!(found.iter().all(|it| it.is_some() == is_counted), "{setting}: {set:?}");
            assert!(!found.is_empty() || set == SetId::AffinityClients, "{set:?} is empty");
        }
    }
}

#[test]
fn nft_lists_what_was_counted() {
    if !nft_available() {
        return;
    }
    let mut lab = Lab::with(counting(Counters::Endpoints));
    lab.apply(&[&Service::new("web", "10.96.0.10").port(80), &slice("a")]);
    for _ in 0..3 {
        let _ = lab.world.ask_fast("pod", destination(WEB, Family::Ipv4), Protocol::Udp);
    }
    let node = lab.world.node();
    let packets = |set: &str| {
        let listed = node.nft(&format!("list map ip kube-proxy {set}"));
        listed.matches("counter packets 3 bytes ").count()
    };
    assert_eq!((packets("services"), packets("endpoints")), (1, 1));
}

fn apply_all(proxy: &mut Proxy) -> Sent {
    let objects = objects_for_every_chain();
    let objects: Vec<_> = objects.iter().map(AsRef::as_ref).collect();
    proxy.apply(&objects)
}

#[test]
fn tables_with_other_counters_are_replaced_whole_in_one_transaction_each() {
    let net = Net::new();
    let mut last = None;
    let settings = [Counters::Off, Counters::Services, Counters::Endpoints, Counters::Off];
    for setting in settings {
        let mut proxy = Proxy::start(net.node(), counting(setting));
        let sent = apply_all(&mut proxy);
        assert_eq!(sent.transactions.len(), 2, "one for each table: {}", sent.script());
        let deleted = sent.messages.get(&MessageKind::DelTable).copied();
        assert_eq!(deleted, last.map(|_| 2), "{last:?} to {setting}");
        assert_eq!(proxy.resync().transactions.len(), 0);
        let mut again = Proxy::start(net.node(), counting(setting));
        let sent = apply_all(&mut again);
        assert!(sent.transactions.is_empty(), "{}", sent.script());
        last = Some(setting);
    }
}

/// What was counted is no difference.
#[test]
fn a_restart_after_connections_changes_nothing() {
    let mut lab = Lab::with(counting(Counters::Endpoints));
    lab.apply(&[&sticky(web_with_node_port()), &slice("a b c d")]);
    let other = Service::new("other", "10.96.0.11").port(80);
    lab.apply(&[&other, &Slice::new("other").endpoints("a c")]);
    connect(&lab, "pod", WEB);
    connect(&lab, "pod", "10.96.0.11:80");
    let before = counted(lab.world.node());
    assert!(lab.proxy.resync().transactions.is_empty());
    let objects = lab.proxy.objects();
    lab.proxy = Proxy::start(lab.world.node(), counting(Counters::Endpoints));
    let objects: Vec<&dyn Object> = objects.iter().map(|object| object as &dyn Object).collect();
    let sent = lab.apply(&objects);
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    assert_eq!(counted(lab.world.node()), before);
}

#[test]
fn no_flow_is_lost_while_the_setting_changes() {
    let lab = Lab::without_objects(counting(Counters::Off));
    let node = lab.world.node().clone();
    let ways = [("pod", WEB), ("node", WEB), ("outside", NODE_PORT)];
    let ways = ways.map(|(client, to)| Way::new(client, to, &["a b c"]));
    let race = Race { ways: &ways, commits: 12, burst: 1, replaces_tables: true };
    race.run(lab, |proxy, state| {
        *proxy = Proxy::start(&node, counting(Counters::ALL[state % 3]));
        proxy.leave_flows();
        apply_all(proxy)
    });
}

/// An answer of the daemon; empty if there is none.
fn metrics(host: &Host) -> String {
    host.run(|| {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", 10249)) {
            let request = "GET /metrics HTTP/1.1\r\nconnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_string(&mut text).unwrap();
        }
        text
    })
}

/// The value of a metric.
fn value(page: &str, metric: &str) -> Option<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// The only row of `show` for this address.
fn shown(node: &Host, address: &str) -> Value {
    let finished = node.output(deltaproxy_binary(), &["show", address, "--output", "json"]);
    let mut document: Value = serde_json::from_str(&finished.ok()).unwrap();
    document["services"][0].take()
}

const OF_WEB: &str = "{namespace=\"default\",service=\"web\",port=\"p80-udp\"";

/// Waits until the metric of `web` over UDP has this value.
#[track_caller]
fn wait_for(node: &Host, name: &str, more: &str, expected: u64) -> String {
    let metric = format!("deltaproxy_{name}_total{OF_WEB}{more}}}");
    eventually(&format!("{metric} {expected}"), SOON, || {
        Some(metrics(node)).filter(|page| value(page, &metric) == Some(expected))
    })
}

#[test]
fn the_daemon_has_metrics_of_services_and_endpoints_which_never_become_less() {
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let manifests = Manifests::new(&[("web", &web_with_node_port()), ("slice", &slice("a"))]);
    let flags = ["--healthz-bind-address=", "--counters", "endpoints"];
    let _daemon = manifests.run_with(node, &flags);
    let udp = |count: u64| {
        for _ in 0..count {
            let to = destination(WEB, Family::Ipv4);
            assert!(!lab.world.ask_fast("pod", to, Protocol::Udp).server().is_empty());
        }
    };
    let serves = || value(&metrics(node), "deltaproxy_counted_connections_total");
    eventually("counters of the first commit", SOON, || serves().filter(|count| *count == 0));
    udp(3);
    let page = wait_for(node, "service_connections", "", 3);
    let bytes = format!("deltaproxy_service_first_packet_bytes_total{OF_WEB}}}");
    let counted = shown(node, "10.96.0.10:80/udp");
    assert_eq!(value(&page, &bytes), counted["counted"]["bytes"].as_u64());
    assert_eq!(counted["counted"]["connections"], 3);
    assert_eq!(counted["endpoints"][0]["counted"]["connections"], 3);
    wait_for(node, "endpoint_connections", ",endpoint=\"10.244.1.5:8080\"", 3);

    // The size class is in the frontend's element, which begins at zero.
    manifests.set_endpoints("a c");
    let row = eventually("two endpoints", SOON, || {
        let row = shown(node, "10.96.0.10:80/udp");
        (row["endpoints"].as_array()?.len() == 2).then_some(row)
    });
    assert_eq!(row["counted"]["connections"], 0);
    udp(2);
    let page = wait_for(node, "service_connections", "", 5);
    assert_eq!(value(&page, "deltaproxy_counted_connections_total"), Some(5));
}

#[test]
fn connections_to_port_ranges_count_by_service_and_endpoint() {
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let ranges = Service::new("ranges", "10.96.0.30");
    let ranges = ranges.annotation("deltaproxy.io/port-ranges", "udp/8000-9000");
    let slice = Slice::new("ranges").endpoints("a");
    let manifests = Manifests::new(&[("ranges", &ranges), ("slice", &slice)]);
    let _daemon = manifests.run_with(node, &["--healthz-bind-address=", "--counters", "endpoints"]);
    let to = destination("10.96.0.30:8080", Family::Ipv4);
    let serves = || matches!(lab.world.ask_fast("pod", to, Protocol::Udp), Answer::From { .. });
    eventually("the service", SOON, || serves().then_some(()));
    let labels = "{namespace=\"default\",service=\"ranges\",port=\"*\"";
    let of_endpoint = ",endpoint=\"10.244.1.5:0\"";
    for metric in [
        format!("deltaproxy_service_connections_total{labels}}}"),
        format!("deltaproxy_endpoint_connections_total{labels}{of_endpoint}}}"),
    ] {
        eventually(&metric, SOON, || value(&metrics(node), &metric).filter(|count| *count == 1));
    }
    let row = shown(node, "default/ranges");
    assert_eq!(row["counted"]["connections"], 1, "{row}");
    assert_eq!(row["endpoints"][0]["counted"]["connections"], 1, "{row}");
    assert!(row["endpoints"][0].get("port").is_none() && row.get("port").is_none(), "{row}");
    assert_eq!(row["port_ranges"], json!(["8000-9000"]));
}

/// `nft reset rules` and `nft reset element` need no ownership of the table.
#[test]
fn the_metrics_do_not_become_less_when_another_program_resets_the_counters() {
    // Before that the kernel cannot reset those of elements.
    if Release::running() < Release::parse("6.5") {
        return;
    }
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let empty = Service::new("empty", "10.96.0.30").port(80);
    let manifests = Manifests::new(&[
        ("web", &web_with_node_port()),
        ("slice", &slice("a")),
        ("empty", &empty),
    ]);
    let _daemon = manifests.run_with(node, &["--healthz-bind-address=", "--counters", "endpoints"]);
    let pod = lab.world.host("pod");
    let metrics_are = |expected: u64| {
        let page = wait_for(node, "service_connections", "", expected);
        assert_eq!(value(&page, "deltaproxy_counted_connections_total"), Some(expected));
        wait_for(node, "endpoint_connections", ",endpoint=\"10.244.1.5:8080\"", expected);
        let refused = "deltaproxy_refused_packets_total{ip_family=\"IPv4\",reason=\"no_endpoint\"}";
        eventually(refused, SOON, || {
            (value(&metrics(node), refused) == Some(expected)).then_some(())
        });
    };
    let send = |count| {
        for _ in 0..count {
            assert!(!pod.send_udp(WEB).server().is_empty());
            assert_eq!(pod.send_udp("10.96.0.30:80"), Answer::Refused);
        }
    };
    metrics_are(0);
    send(5);
    metrics_are(5);
    node.reset_counters(reader::Family::Ip);
    assert_eq!(counted(node), [0; 4]);
    metrics_are(5);
    send(2);
    metrics_are(7);
}

#[test]
fn without_the_option_there_are_neither_counters_nor_metrics_of_them() {
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let manifests = Manifests::new(&[("web", &web_with_node_port()), ("slice", &slice("a"))]);
    let _daemon = manifests.run_with(node, &["--healthz-bind-address="]);
    eventually("the first commit", SOON, || {
        metrics(node).contains("deltaproxy_programmed{ip_family=\"IPv4\"} 1").then_some(())
    });
    let page = metrics(node);
    assert!(!page.contains("first_packet") && !page.contains("service_connections"), "{page}");
    assert_eq!(shown(node, "10.96.0.10:80/udp")["counted"], Value::Null);
}
