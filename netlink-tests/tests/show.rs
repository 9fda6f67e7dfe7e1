//! `show`: what it says of tables, connections and clients that packets made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::routing::Routing;
use engine::ruleset::{self, Layouts, SetId};
use netlink_tests::apiserver::{ApiServer, object};
use netlink_tests::scenario::{
    Family, Lab, Manifests, NODE_PORT, Object, Raw, Service, WEB, routing, slice, web_everywhere,
    web_with_node_port,
};
use netlink_tests::{Answer, Finished, Host, Net, deltaproxy_binary, eventually, nft_available};
use nft::kernel::{Kernel, Nftables};
use nft::{Element, Operation, Set, TableRef, Transaction, Value};
use nix::sys::signal::Signal;
use serde_json::{Value as Json, json};

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn show(node: &Host, arguments: &str) -> Finished {
    let arguments: Vec<_> = ["show"].into_iter().chain(arguments.split_whitespace()).collect();
    node.output(deltaproxy_binary(), &arguments)
}

/// The rows of `services` or `draining`.
#[track_caller]
fn rows(node: &Host, arguments: &str) -> Vec<Json> {
    let finished = show(node, &format!("{arguments} --output json"));
    assert_ne!(finished.code(), Some(2), "{}", finished.stderr);
    let mut document: Json = serde_json::from_str(&finished.stdout).unwrap();
    let name = if arguments.contains("--draining") { "draining" } else { "services" };
    let Json::Array(rows) = document[name].take() else { panic!("{document}") };
    rows
}

/// The only row.
#[track_caller]
fn row(node: &Host, arguments: &str) -> Json {
    let rows = rows(node, arguments);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.into_iter().next().unwrap()
}

/// The endpoint of a row with this address.
#[track_caller]
fn endpoint<'a>(row: &'a Json, address: &str) -> &'a Json {
    let endpoints = row["endpoints"].as_array().unwrap();
    endpoints.iter().find(|it| it["address"] == address).unwrap_or_else(|| panic!("{row}"))
}

#[track_caller]
fn assert_trouble(finished: &Finished, text: &str) {
    assert_eq!(finished.code(), Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains(text), "{}", finished.stderr);
    assert_eq!((finished.stderr.lines().count(), &*finished.stdout), (1, ""));
}

#[test]
fn trouble_is_one_line_and_code_2() {
    let net = Net::new();
    assert_trouble(&show(net.node(), ""), "deltaproxy has not programmed this node");
    assert_trouble(&show(net.node(), "--draining"), "deltaproxy has not programmed this node");
    if nft_available() {
        net.node().nft("add table ip kube-proxy");
        assert_trouble(&show(net.node(), ""), "table ip kube-proxy is not of this deltaproxy");
    }
    let binary = deltaproxy_binary();
    let arguments =
        ["--bounding-set=-all", "--inh-caps=-all", "--", binary.to_str().unwrap(), "show"];
    assert_trouble(&net.node().output("setpriv", &arguments), "CAP_NET_ADMIN is missing");
}

#[test]
fn a_service_has_the_kinds_policies_and_endpoints_of_its_addresses() {
    let mut lab = Lab::new();
    let node = lab.world.node().clone();
    lab.apply(&[&web_everywhere(), &slice("a c")]);
    let kind = |kind: &str, policy: Option<&str>| (json!(kind), json!(policy));
    let kinds = |address: &str| {
        let row = row(&node, address);
        (row["kind"].clone(), row["policy"].clone())
    };
    assert_eq!(kinds("10.96.0.10:80/tcp"), kind("cluster-ip", Some("Cluster")));
    assert_eq!(kinds("192.168.50.2:30080/udp"), kind("node-port", Some("Cluster")));
    assert_eq!(kinds("198.51.100.1:80/sctp"), kind("external", Some("Cluster")));
    assert_eq!(rows(&node, "default/web:p80-tcp").len(), 8, "four addresses of two families");
    let web = row(&node, "[fd00:10:96::10]:80/tcp");
    assert_eq!((&web["service"], &web["port_name"]), (&json!("default/web"), &json!("p80-tcp")));
    let place = |address| (&endpoint(&web, address)["local"], &endpoint(&web, address)["chance"]);
    assert_eq!(place("fd00:10:244:1::5"), (&json!(true), &json!(0.5)));
    assert_eq!(place("fd00:10:244:2::7"), (&json!(false), &json!(0.5)));

    let ranges = json!(["192.0.2.0/24"]);
    let local = web_everywhere().external_local().internal_local();
    lab.apply(&[&local.spec("loadBalancerSourceRanges", ranges)]);
    assert_eq!(kinds("10.96.0.10:80/tcp"), kind("cluster-ip", Some("Local")));
    assert_eq!(kinds("198.51.100.2:80/tcp"), kind("load-balancer", Some("Local")));
    let limited = row(&node, "198.51.100.2:80/tcp");
    assert_eq!(limited["source_ranges"], json!(["192.0.2.0/24"]));
    let detail = show(&node, "198.51.100.2:80/tcp").ok();
    assert!(detail.contains("for sources 192.0.2.0/24 only"), "{detail}");
    let port = row(&node, "0.0.0.0:30080/tcp");
    let chances = |address| {
        let endpoint = endpoint(&port, address);
        (endpoint["chance"].clone(), endpoint["chance_from_pods"].clone())
    };
    assert_eq!(chances("10.244.1.5"), (json!(1.0), json!(0.5)));
    assert_eq!(chances("10.244.2.7"), (json!(0.0), json!(0.5)));

    lab.apply(&[&web_everywhere(), &slice("")]);
    for address in ["10.96.0.10:80/tcp", "198.51.100.1:80/tcp", "192.168.50.2:30080/tcp"] {
        let row = row(&node, address);
        assert_eq!((&row["scheduler"], &row["endpoints"]), (&json!("refuse"), &json!([])));
    }
    assert_eq!(row(&node, "10.96.0.10:80/tcp")["kind"], "cluster-ip");
    assert_eq!(row(&node, "198.51.100.1:80/tcp")["kind"], "external");
    assert_trouble(&show(&node, "default/other"), "the tables have no service default/other");
}

#[test]
fn node_ports_are_closed_where_no_address_of_the_node_serves_them() {
    for (ranges, of_ipv4, of_ipv6) in [
        ("192.168.50.0/24,fd00:51::/64", "node-port", "closed-node-port"),
        ("192.168.51.0/24,fd00:51::/64", "closed-node-port", "closed-node-port"),
    ] {
        let node_port_addresses = ranges.parse().unwrap();
        let mut lab = Lab::with(Routing { node_port_addresses, ..routing() });
        let node = lab.world.node().clone();
        lab.apply(&[&web_everywhere(), &slice("a c")]);
        let node_port = |row: &&Json| row["port"] == 30080 && row["protocol"] == "tcp";
        let rows = rows(&node, "default/web");
        let kinds = rows.iter().filter(node_port).map(|row| (&row["family"], &row["kind"]));
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_by_key(|(family, _)| family.to_string());
        let expected = [(&json!("IPv4"), &json!(of_ipv4)), (&json!("IPv6"), &json!(of_ipv6))];
        assert_eq!(kinds, expected, "{ranges}");
        let is_open = of_ipv4 == "node-port";
        let of_ipv4 = rows.iter().filter(node_port).find(|row| row["family"] == "IPv4").unwrap();
        let (json, text) = if is_open {
            (json!(["192.168.50.2"]), "192.168.50.2:30080/tcp ")
        } else {
            (json!([]), "*:30080/tcp ")
        };
        assert_eq!(of_ipv4["node_addresses"], json);
        let listing = show(&node, "").ok();
        assert!(listing.contains(text), "{listing}");
    }
}

#[test]
fn endpoints_of_long_lists_are_all_there() {
    let mut lab = Lab::new();
    let many: Vec<_> = (0..300).map(|n| format!("10.250.{}.{}", n / 250, n % 250 + 1)).collect();
    lab.apply(&[&web_with_node_port(), &slice(&many.join(" "))]);
    let web = row(lab.world.node(), "10.96.0.10:80/udp");
    let mut addresses: Vec<_> =
        web["endpoints"].as_array().unwrap().iter().map(|it| it["address"].clone()).collect();
    addresses.sort_by_key(ToString::to_string);
    let mut expected: Vec<_> = many.iter().map(|it| json!(it)).collect();
    expected.sort_by_key(ToString::to_string);
    assert_eq!(addresses, expected);
}

#[test]
fn connections_are_counted_by_address_and_endpoint() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a")]);
    let (node, pod) = (lab.world.node().clone(), lab.world.host("pod").clone());
    let mut open: Vec<_> = (0..3).map(|_| pod.open_tcp(WEB).unwrap()).collect();
    let outside = lab.world.host("outside").open_tcp(NODE_PORT).unwrap();
    assert_eq!(pod.send_udp(WEB).server(), "a");
    let counts = |address: &str| {
        let row = row(&node, address);
        let connections = endpoint(&row, "10.244.1.5")["connections"].clone();
        assert_eq!(connections, row["connections"]);
        ["active", "new", "ended"].map(|it| connections[it].as_u64().unwrap())
    };
    assert_eq!(counts("10.96.0.10:80/tcp"), [3, 0, 0]);
    assert_eq!(counts("192.168.50.2:30080/tcp"), [1, 0, 0]);
    assert_eq!(counts("10.96.0.10:80/udp"), [1, 0, 0]);
    drop((open.pop(), outside));
    eventually("closed connections", SOON, || {
        let is_closed = counts("10.96.0.10:80/tcp") == [2, 0, 1];
        (is_closed && counts("192.168.50.2:30080/tcp") == [0, 0, 1]).then_some(())
    });

    lab.apply(&[&slice("a").target(80, 9999)]);
    assert_eq!(pod.send_udp(WEB), Answer::Refused);
    assert_eq!(counts("10.96.0.10:80/udp"), [0, 1, 0], "an answer other than a packet of the flow");
    let text = show(&node, "--output ipvsadm").ok();
    let line = text.lines().skip_while(|line| !line.starts_with("TCP  10.96.0.10:80 ")).nth(2);
    assert_eq!(
        line.unwrap().trim_end(),
        "  -> 10.244.1.5:8080              Masq    0      2          1"
    );
}

#[test]
fn watching_counts_what_began_and_ends_with_ctrl_c() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a")]);
    let _before = lab.world.host("pod").open_tcp(WEB).unwrap();
    let arguments = ["show", "10.96.0.10:80/tcp", "--watch", "--interval=100ms", "--output=json"];
    let mut watch = lab.world.node().spawn(deltaproxy_binary(), &arguments);
    watch.wait_for_line("\"began\":0", SOON);
    let pod = lab.world.host("pod");
    let answers: Vec<_> = (0..5).map(|_| pod.connect_tcp(WEB)).collect();
    assert!(answers.iter().all(|answer| answer.server() == "a"));
    let began = |text: &str| -> u64 {
        // The first count of a line is that of the frontend, the second that of its only endpoint.
        let counts = text.lines().filter_map(|line| line.split("\"began\":").nth(1));
        counts.map(|rest| rest.split([',', '}']).next().unwrap().parse::<u64>().unwrap()).sum()
    };
    eventually("five connections that began", SOON, || (began(&watch.output()) == 5).then_some(()));
    watch.signal(Signal::SIGINT);
    let finished = watch.finish(SOON);
    assert_eq!((finished.code(), &*finished.stderr), (Some(0), ""));
    assert_eq!(began(&finished.stdout), 5);

    let sample = show(lab.world.node(), "default/web --sample 100ms");
    assert!(sample.ok().contains("OF-BEGAN"));
}

#[test]
fn an_endpoint_drains_until_its_connections_end() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a")]);
    let (node, pod) = (lab.world.node().clone(), lab.world.host("pod").clone());
    let connection = pod.open_tcp(WEB).unwrap();
    let draining = |arguments: &str| show(&node, &format!("--draining {arguments}"));
    assert_eq!(draining("").ok(), "no endpoint is draining\n");

    lab.apply(&[&slice("c"), &Service::new("other", "10.96.0.11").port(80)]);
    let finished = draining("default/web");
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert_eq!(draining("").stdout, finished.stdout);
    let line = finished.stdout.lines().nth(1).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    let expected = ["default/web:p80-tcp", "10.96.0.10:80/tcp", "10.244.1.5:8080", "1", "-"];
    assert_eq!(words, expected, "conntrack keeps no times");
    assert_eq!(draining("default/other").code(), Some(0));
    assert_trouble(&draining("default/unheard"), "the tables have no service");
    let web = row(&node, "10.96.0.10:80/tcp");
    let former = endpoint(&web, "10.244.1.5");
    assert_eq!((&former["state"], &former["local"]), (&json!("draining"), &json!(null)));

    let arguments = ["show", "--draining", "--watch", "--interval", "100ms"];
    let mut watch = node.spawn(deltaproxy_binary(), &arguments);
    watch.wait_for_line("10.244.1.5:8080", SOON);
    drop(connection);
    let finished = watch.finish(SOON);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    assert!(finished.stdout.ends_with("no endpoint is draining\n"), "{}", finished.stdout);

    node.sysctl("netfilter/nf_conntrack_timestamp", "1");
    let connection = pod.open_tcp(WEB).unwrap();
    lab.apply(&[&slice("a")]);
    let old = rows(&node, "--draining");
    assert_eq!(old.len(), 1);
    assert!(old[0]["oldest_seconds"].as_u64().unwrap() < 3600, "{old:?}");
    drop(connection);
}

#[test]
fn services_are_found_by_endpoint_namespace_text_and_address() {
    let mut lab = Lab::new();
    let other = Service::new("other", "10.96.0.11").port(80);
    lab.apply(&[&web_with_node_port(), &slice("a"), &other]);
    let node = lab.world.node();
    let names = |arguments: &str| {
        let rows = rows(node, arguments).into_iter();
        let mut names: Vec<_> = rows.map(|it| it["service"].as_str().unwrap().to_owned()).collect();
        names.dedup();
        names
    };
    for arguments in ["--endpoint 10.244.1.5", "--endpoint 10.244.1.0/24", "--search WEB"] {
        assert_eq!(names(arguments), ["default/web"], "{arguments}");
    }
    assert_eq!(names("10.96.0.11 --namespace default"), ["default/other"]);
    assert_eq!(names("--endpoint 10.244.9.9 --endpoint 10.244.1.5:8080"), ["default/web"]);
    let nothing = show(node, "--namespace kube-system");
    assert_eq!((nothing.code(), &*nothing.stderr), (Some(0), "no service matches\n"));
    assert_trouble(&show(node, "10.96.0.12"), "the tables have no service at 10.96.0.12");
}

#[test]
fn connections_are_listed_with_their_clients() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a")]);
    let (node, pod) = (lab.world.node().clone(), lab.world.host("pod").clone());
    node.sysctl("netfilter/nf_conntrack_acct", "1");
    let _former = pod.open_tcp(WEB).unwrap();
    lab.apply(&[&slice("c")]);
    let _present = pod.open_tcp(WEB).unwrap();
    let listed = |arguments: &str| {
        let finished = show(&node, &format!("default/web --connections -o json {arguments}"));
        let document: Json = serde_json::from_str(&finished.stdout).unwrap();
        let listed = document["connections"].as_array().unwrap().clone();
        (finished.code(), listed)
    };
    let (code, all) = listed("");
    assert_eq!(code, Some(0));
    let endpoints: Vec<_> = all.iter().map(|it| it["endpoint"].as_str().unwrap()).collect();
    assert_eq!(endpoints, ["10.244.1.5:8080", "10.244.2.7:8080"]);
    for connection in &all {
        assert!(connection["client"].as_str().unwrap().starts_with("10.244.1.9:"), "{connection}");
        assert!(connection["bytes"].as_u64().unwrap() > 0, "{connection}");
        assert_eq!(
            (&connection["state"], &connection["age_seconds"]),
            (&json!("active"), &json!(null))
        );
    }
    assert_eq!(listed("--draining"), (Some(1), vec![all[0].clone()]));
}

/// An endpoint of another port of the service, or one that a policy passes over, does not drain.
#[test]
fn an_endpoint_that_a_policy_passes_over_does_not_drain() {
    let mut lab = Lab::new();
    lab.apply(&[&web_with_node_port(), &slice("a c")]);
    let (node, pod) = (lab.world.node().clone(), lab.world.host("pod").clone());
    let _open: Vec<_> = (0..20).map(|_| pod.open_tcp(WEB).unwrap()).collect();
    lab.apply(&[&web_with_node_port().internal_local()]);
    assert_eq!(show(&node, "--draining").code(), Some(0));
    let web = row(&node, "10.96.0.10:80/tcp");
    assert_eq!(endpoint(&web, "10.244.2.7")["state"], "elsewhere");
}

#[test]
fn clients_of_session_affinity_are_counted() {
    let mut lab = Lab::new();
    let config = json!({"clientIP": {"timeoutSeconds": 600}});
    let sticky = web_with_node_port()
        .spec("sessionAffinity", json!("ClientIP"))
        .spec("sessionAffinityConfig", config);
    lab.apply(&[&sticky, &slice("c")]);
    for client in ["pod", "a", "outside"] {
        assert_eq!(lab.world.host(client).connect_tcp(WEB).server(), "c");
    }
    let web = row(lab.world.node(), "10.96.0.10:80/tcp");
    assert_eq!((&web["scheduler"], &web["affinity_seconds"]), (&json!("affinity"), &json!(600)));
    let clients = &endpoint(&web, "10.244.2.7")["affinity_clients"];
    // Two of the three may share a place.
    assert!([2, 3].contains(&clients.as_u64().unwrap()), "{web}");
    assert_eq!(*clients, web["affinity_clients"]);
}

/// A slice of a service with an endpoint on each of these nodes.
fn slice_on(service: &str, endpoints: &[(&str, &str)]) -> Json {
    let addresses: Vec<_> = endpoints.iter().map(|(_, address)| *address).collect();
    let name = format!("default/{service}-1");
    let mut slice = object::endpoint_slice(&name, service, &addresses, 8080);
    for (place, (node, _)) in endpoints.iter().enumerate() {
        slice["endpoints"][place]["nodeName"] = json!(node);
    }
    slice
}

#[test]
fn services_are_found_by_the_node_of_an_endpoint() {
    let net = Net::new();
    let node = net.node();
    let api = node.run(ApiServer::with_web);
    let objects = [
        object::service("default/other", "10.96.0.11", 80),
        slice_on("web", &[("n7", "10.244.7.5"), ("n8", "10.244.8.5")]),
        slice_on("other", &[("n8", "10.244.8.6")]),
        object::node("n9", "192.168.50.9"),
    ];
    api.push_all(objects.clone());
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let arguments = ["run", &kubeconfig, "--hostname-override=node1", "--healthz-bind-address="];
    let daemon = node.spawn(deltaproxy_binary(), &arguments);
    let names = |arguments: &str| -> Vec<String> {
        let rows = rows(node, arguments).into_iter();
        rows.map(|row| row["service"].as_str().unwrap().to_owned()).collect()
    };
    eventually("both services", SOON, || {
        let finished = show(node, "--output json --endpoint 10.244.8.6");
        finished.stdout.contains("default/other").then_some(())
    });
    // By the running daemon's API server, and by that of a flag.
    for more in ["", &kubeconfig] {
        assert_eq!(names(&format!("--node n7 {more}")), ["default/web"]);
        assert_eq!(names(&format!("--node n8 {more}")), ["default/other", "default/web"]);
        assert_eq!(names(&format!("--node n8 --search oth {more}")), ["default/other"]);
        assert!(names(&format!("--node n9 {more}")).is_empty(), "it has no endpoint");
        let unknown = show(node, &format!("--node n6 {more}"));
        assert_trouble(&unknown, "--node: the API server has no Node n6, and no endpoint on it");
    }
    let manifests = Manifests::new(&[]);
    let documents: Vec<_> = objects.iter().map(|it| format!("---\n{it}\n")).collect();
    manifests.write_text("objects", &documents.concat().replace("10.244.8.6", "10.244.8.7"));
    let path = manifests.path().display().to_string();
    assert_eq!(names(&format!("--node n8 --manifests {path}")), ["default/web"]);
    let unknown = show(node, &format!("--node n6 --manifests {path}"));
    assert_trouble(&unknown, &format!("--node: {path} has no Node n6, and no endpoint on it"));

    api.stop();
    let at = api.address();
    let away = show(node, "--node n7");
    assert_trouble(&away, &format!("--node: {at}: the API server cannot be reached"));
    let _ = daemon.terminate(SOON);
    let without = "--node: no daemon runs in this network namespace: give --kubeconfig FILE or";
    assert_trouble(&show(node, "--node n7"), without);
}

/// A Service and its slice for each number, as manifests.
fn many(services: u32) -> String {
    let mut text = String::new();
    for n in 0..services {
        let (a, b) = (n / 250 % 250, n % 250 + 1);
        let name = format!("service-{n}");
        let service = Service::new(&name, &format!("10.{}.{a}.{b}", 97 + n / 62_500));
        let service = service.named_port("http", netlink_tests::scenario::Protocol::Tcp, 80, 0);
        let endpoints: Vec<_> = (0..5)
            .map(|e| json!({"addresses": [format!("11.{e}.{a}.{b}")], "conditions": {"ready": true}}))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": "default",
                         "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
            "endpoints": endpoints,
        });
        let service = service.only(Family::Ipv4);
        for document in service.documents().into_iter().chain(Raw(slice).documents()) {
            writeln!(text, "---\n{document}").unwrap();
        }
    }
    text
}

/// `SHOW_SERVICES=50000` makes it as many as a large cluster has.
#[test]
fn thousands_of_services_are_listed_and_head_may_stop_reading() {
    let count = std::env::var("SHOW_SERVICES").map_or(5_000, |count| count.parse().unwrap());
    let net = Net::new();
    let manifests = Manifests::new(&[]);
    manifests.write_text("many", &many(count));
    let arguments = manifests.arguments("apply");
    let apply = net.node().spawn(deltaproxy_binary(), &arguments);
    let _ = apply.finish(Duration::from_secs(300)).ok();

    for arguments in ["", "--output json", "--draining"] {
        #[expect(clippy::disallowed_methods, reason = "the time is printed")]
        let start = Instant::now();
        let finished = show(net.node(), arguments);
        println!("show {arguments} of {count} services: {:?}", start.elapsed());
        let text = finished.ok();
        if arguments.is_empty() {
            let names: Vec<_> = text.lines().skip(1).map(|line| line.split(':').next()).collect();
            assert!(names.is_sorted());
            assert_eq!(names.len(), count as usize);
            let line =
                text.lines().find(|line| line.starts_with("default/service-7:http ")).unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            let expected = ["10.97.0.8:80/tcp", "cluster-ip", "Cluster", "random", "5", "0"];
            assert_eq!(words[1..7], expected);
        }
    }
    let binary = deltaproxy_binary();
    let script = format!("({} show; echo code $? >&2) | head -n 1", binary.display());
    let finished = net.node().output("/bin/sh", &["-c", &script]);
    assert!(finished.stdout.starts_with("SERVICE "), "{}", finished.stdout);
    assert_eq!(finished.stderr, "code 0\n");
}

/// A dump passes over elements if others before them are deleted between two of its messages.
#[test]
fn a_service_is_found_while_thousands_of_elements_come_and_go() {
    let mut lab = Lab::new();
    let node = lab.world.node().clone();
    lab.apply(&[&web_with_node_port(), &slice("a")]);
    let mut kernel = node.run(|| Nftables::open().unwrap());
    let mut commit = |operation: fn(TableRef, Arc<Set>, nft::ElementList) -> Operation, first| {
        let set = Arc::clone(Layouts::default().of(nft::Family::Ip).get(SetId::Services));
        let table = ruleset::table(nft::Family::Ip);
        let operations = vec![operation(table, set, frontends(first..first + 500).into())];
        kernel.commit(&Transaction { operations }).unwrap();
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let shows = threads.spawn(|| {
            let shown: Vec<_> = (0..40).map(|_| show(&node, "10.96.0.10:80/tcp")).collect();
            is_over.store(true, Ordering::Relaxed);
            shown
        });
        while !is_over.load(Ordering::Relaxed) {
            (0..8_000).step_by(500).for_each(|first| commit(Operation::AddElements, first));
            (0..8_000).step_by(500).for_each(|first| commit(Operation::DeleteElements, first));
        }
        for shown in shows.join().unwrap() {
            // Where a commit follows another at once, the chains cannot be read.
            let is_named = shown.stderr.contains("kept changing while");
            assert!(shown.code() == Some(0) || is_named, "{}", shown.stderr);
        }
    });
}

/// Elements for cluster IPs of services without endpoints on any list.
fn frontends(numbers: Range<u32>) -> Vec<Element> {
    let element = |number: u32| {
        let address = Ipv4Addr::from(0x0a61_0000 + number);
        let key = Value::new().ip(address.into()).proto(TCP).port(80);
        Element::with_value(key, Value::new().class_id(((number + 0x1_0000) << 8) | 5))
    };
    numbers.map(element).collect()
}

/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// The table's comment is what says that it is of this layout.
#[test]
fn a_table_of_another_layout_is_named() {
    if !nft_available() {
        return;
    }
    let lab = Lab::new();
    let node = lab.world.node();
    assert_eq!(show(node, "").code(), Some(0));
    assert!(ruleset::table_comment().contains(&format!("layout {}", ruleset::LAYOUT)));
    node.nft("delete table ip6 kube-proxy");
    assert_eq!(show(node, "").code(), Some(0), "one family is enough");
    node.nft("add table ip6 kube-proxy");
    assert_trouble(&show(node, ""), "table ip6 kube-proxy is not of this deltaproxy (layout ");
}
