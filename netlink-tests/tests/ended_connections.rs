//! TCP connections whose endpoint is in no EndpointSlice any more end by RST, if the service asks
//! for it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use engine::model::EndedSettings;
use engine::routing::Routing;
use engine::ruleset::{SetId, table};
use netlink_tests::http::body;
use netlink_tests::scenario::{
    EXTERNAL, Endpoint, Lab, Manifests, NODE_PORT, Object, Proxy, Service, Slice, VIP, WEB,
    keeps_source, routing, slice, web_everywhere,
};
use netlink_tests::{Answer, Connection, deltaproxy_binary, eventually, ip6_of, nft_available};
use nft::kernel::{ElementRead, Kernel, Nftables};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The annotation of a service.
const ANNOTATION: &str = "deltaproxy.io/ended-connections";

/// Every client, with each way to the service.
const WAYS: [(&str, &str); 9] = [
    ("pod", WEB),
    ("node", WEB),
    ("outside", WEB),
    ("pod", NODE_PORT),
    ("node", NODE_PORT),
    ("outside", NODE_PORT),
    ("outside", EXTERNAL),
    ("outside", VIP),
    ("node", VIP),
];

fn ending(by_default: bool) -> Routing {
    let remember = Duration::from_mins(15);
    let ended_connections = Some(EndedSettings { by_default, remember });
    Routing { ended_connections, ..routing() }
}

fn ip6(to: &str) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap();
    SocketAddr::new(ip6_of(*to.ip()).into(), to.port())
}

/// Opens connections of both families on every way; each is with this server.
fn open(lab: &Lab, server: &str) -> Vec<Connection> {
    let open = |(client, to): (&str, &str)| {
        let host = lab.world.host(client);
        [host.open_tcp(to), host.open_tcp(ip6(to))].map(|opened| {
            let connection = opened.unwrap_or_else(|error| panic!("{client} {to}: {error:?}"));
            assert_eq!(connection.first().server(), server, "{client} {to}");
            connection
        })
    };
    WAYS.into_iter().flat_map(open).collect()
}

/// Checks that all connections have ended, or that all go on with their server.
fn check(connections: &mut [Connection], server: Option<&str>) {
    let ways = WAYS.iter().flat_map(|way| [(way, "IPv4"), (way, "IPv6")]);
    for (connection, way) in connections.iter_mut().zip(ways) {
        let answer = connection.ask();
        match server {
            Some(server) => assert_eq!(answer.server(), server, "{way:?}"),
            None => assert_eq!(answer, Answer::Refused, "{way:?}"),
        }
    }
}

/// Returns whether each table has the rules that end connections.
fn have_rules(lab: &Lab) -> [bool; 2] {
    let mut kernel = lab.world.node().run(Nftables::open).unwrap();
    nft::Family::ALL.map(|family| {
        let contents = kernel.read_table(&table(family)).unwrap().unwrap();
        contents.chains.iter().any(|chain| chain.name == "filter-input")
    })
}

/// Returns the ended endpoints of both tables.
fn ended(lab: &Lab) -> usize {
    let mut kernel = lab.world.node().run(Nftables::open).unwrap();
    let mut count = 0;
    for family in nft::Family::ALL {
        let set = SetId::EndedEndpoints.name();
        let mut add = |read: ElementRead<'_>| {
            count += usize::from(matches!(read, ElementRead::Element(_)));
        };
        kernel.read_elements(&table(family), set, &mut add).unwrap();
    }
    count
}

#[test]
fn connections_to_an_endpoint_that_is_gone_end_on_every_way() {
    for server in ["a", "c", "node"] {
        let mut lab = Lab::with(ending(true));
        if server == "node" {
            lab.world.serve("node", "node", 8080);
        }
        lab.apply(&[&web_everywhere(), &slice(server)]);
        let mut connections = open(&lab, server);
        check(&mut connections, Some(server));
        assert_eq!(have_rules(&lab), [false; 2]);
        lab.apply(&[&slice("b")]);
        assert_eq!(have_rules(&lab), [true; 2]);
        check(&mut connections, None);
        lab.check(&[("pod", WEB, keeps_source("b"))]);
    }
}

/// The pod answers with its own address, which the rules see before it is translated back.
#[test]
fn an_endpoint_that_is_gone_and_still_sends_gets_rst_too() {
    let mut lab = Lab::with(ending(true));
    lab.apply(&[&web_everywhere(), &slice("c")]);
    let mut connections = open(&lab, "c");
    // More than fits in the buffers of both sides.
    let mut connection = connections.remove(0);
    lab.apply(&[&slice("")]);
    assert!(connection.download(1 << 20).is_err());
    check(&mut connections[..1], None);
}

#[test]
fn connections_go_on_while_a_slice_has_the_endpoint() {
    let mut lab = Lab::with(ending(true));
    let other = Service::new("other", "10.96.0.11").port(80);
    let of_other = Slice::new("other").endpoints("a");
    lab.apply(&[&web_everywhere(), &slice("a"), &other, &of_other]);
    let mut connections = open(&lab, "a");
    let terminating = Endpoint::new("a").conditions(false, true, true);
    let not_ready = Endpoint::new("a").conditions(false, false, true);
    for endpoint in [terminating, not_ready] {
        lab.apply(&[&slice("b").endpoint(endpoint)]);
        check(&mut connections, Some("a"));
    }
    lab.apply(&[&slice("b")]);
    check(&mut connections, Some("a"));
    let moved = Slice::new("web").suffix("2").endpoints("a");
    lab.proxy.change(&[&of_other], &[&moved]);
    check(&mut connections, Some("a"));
    assert_eq!((ended(&lab), have_rules(&lab)), (0, [false; 2]));
    lab.remove(&[&moved]);
    check(&mut connections, None);
}

#[test]
fn the_annotation_decides_and_then_the_setting() {
    let web = |value: Option<&str>| match value {
        Some(value) => web_everywhere().annotation(ANNOTATION, value),
        None => web_everywhere(),
    };
    let rows = [
        (Some(true), None, true),
        (Some(true), Some("keep"), false),
        (Some(true), Some("?"), true),
        (Some(false), None, false),
        (Some(false), Some("reset"), true),
        (Some(false), Some("keep"), false),
        (None, Some("reset"), false),
    ];
    for (by_default, annotation, ends) in rows {
        let mut lab = Lab::with(by_default.map_or_else(routing, ending));
        lab.apply(&[&web(annotation), &slice("a")]);
        let mut connections = open(&lab, "a");
        let sent = lab.apply(&[&slice("b")]);
        assert_eq!(
            sent.script().contains("ended-endpoints"),
            ends,
            "{by_default:?} {annotation:?}"
        );
        check(&mut connections, (!ends).then_some("a"));
    }
}

/// A service that keeps its connections keeps those of an endpoint that it shares.
#[test]
fn one_of_several_services_can_keep_the_connections() {
    for (annotation, ends) in [("keep", false), ("reset", true)] {
        let mut lab = Lab::with(ending(false));
        let reset = |service: Service| service.annotation(ANNOTATION, "reset");
        let other = Service::new("other", "10.96.0.11").port(80).annotation(ANNOTATION, annotation);
        let of_other = Slice::new("other").endpoints("a");
        lab.apply(&[&reset(web_everywhere()), &slice("a"), &other, &of_other]);
        let mut connections = open(&lab, "a");
        lab.remove(&[&of_other]);
        lab.apply(&[&slice("b")]);
        check(&mut connections, (!ends).then_some("a"));
    }
}

#[test]
fn a_service_that_is_deleted_before_its_slices_keeps_its_connections() {
    let mut lab = Lab::with(ending(true));
    lab.apply(&[&web_everywhere(), &slice("a")]);
    let mut connections = open(&lab, "a");
    lab.remove(&[&web_everywhere()]);
    lab.remove(&[&slice("a")]);
    check(&mut connections, Some("a"));
    assert_eq!(ended(&lab), 0);
}

#[test]
fn an_endpoint_that_comes_back_serves_at_once_and_the_rules_go() {
    let mut lab = Lab::with(ending(true));
    lab.apply(&[&web_everywhere(), &slice("a")]);
    for _ in 0..3 {
        let mut connections = open(&lab, "a");
        lab.apply(&[&slice("")]);
        assert_eq!(ended(&lab), 2);
        check(&mut connections, None);
        let sent = lab.apply(&[&slice("a")]).script();
        let [gone, slot] =
            ["delete element ip kube-proxy ended-endpoints", "element ip kube-proxy endpoints"]
                .map(|text| sent.find(text).unwrap_or_else(|| panic!("no {text} in {sent}")));
        assert!(gone < slot, "{sent}");
        assert_eq!((ended(&lab), have_rules(&lab)), (0, [false; 2]));
        lab.check(&[("pod", WEB, keeps_source("a"))]);
    }
}

/// A killed daemon leaves the set, and the next one keeps it without an object that shows why.
#[test]
fn the_next_daemon_keeps_ended_endpoints_and_invents_none() {
    let mut lab = Lab::with(ending(true));
    lab.apply(&[&web_everywhere(), &slice("a c")]);
    let mut of_c = open_to(&lab, "c");
    lab.apply(&[&slice("a")]);
    let objects = lab.proxy.objects();
    let of_a = |lab: &Lab| lab.world.host("pod").open_tcp(WEB).unwrap();
    let mut kept = of_a(&lab);
    assert_eq!(ended(&lab), 2);
    let restart = |lab: &mut Lab, objects: &[&dyn Object]| {
        lab.proxy = Proxy::start(lab.world.node(), ending(true));
        let _ = lab.apply(objects);
    };
    let all: Vec<&dyn Object> = objects.iter().map(|it| it as &dyn Object).collect();
    restart(&mut lab, &all);
    assert_eq!((ended(&lab), have_rules(&lab)), (2, [true; 2]));
    assert_eq!(of_c.ask(), Answer::Refused);
    // `a` left its slice while no daemon ran.
    let b = slice("b");
    let without_a = [all, vec![&b as &dyn Object]].concat();
    restart(&mut lab, &without_a);
    assert_eq!(kept.ask().server(), "a");
    assert_eq!(ended(&lab), 2);
    // The next one has the option off.
    lab.proxy = Proxy::start(lab.world.node(), routing());
    let _ = lab.apply(&without_a);
    assert_eq!(have_rules(&lab), [false; 2]);
    assert_eq!(kept.ask().server(), "a");
    lab.check(&[("pod", WEB, keeps_source("b"))]);
}

/// Opens a connection of a pod to this server, one of several.
fn open_to(lab: &Lab, server: &str) -> Connection {
    let mut opened = (0..100).map(|_| lab.world.host("pod").open_tcp(WEB).unwrap());
    opened.find(|it| it.first().server() == server).expect("one of 100 connections")
}

#[test]
fn connections_with_source_ranges_affinity_and_hairpin_end() {
    let mut lab = Lab::with(ending(true));
    let affinity = json!({"clientIP": {"timeoutSeconds": 60}});
    let web = web_everywhere()
        .spec(
            "loadBalancerSourceRanges",
            json!(["192.0.2.0/24", "192.168.50.0/24", "2001:db8::/32", "fd00::/8"]),
        )
        .spec("sessionAffinity", json!("ClientIP"))
        .spec("sessionAffinityConfig", affinity);
    lab.apply(&[&web, &slice("a")]);
    let mut connections = open(&lab, "a");
    let mut to_itself = lab.world.host("a").open_tcp(WEB).unwrap();
    assert_eq!(to_itself.first().server(), "a");
    lab.apply(&[&slice("b")]);
    check(&mut connections, None);
    assert_eq!(to_itself.ask(), Answer::Refused);
    lab.check(&[("pod", WEB, keeps_source("b"))]);
}

/// Rules of other programs translate to the same endpoint, such as those of host ports.
#[test]
fn connections_that_another_program_translated_go_on() {
    if !nft_available() {
        return;
    }
    let mut lab = Lab::with(ending(true));
    let rule = "table ip other { chain pre { type nat hook prerouting priority -100; \
                ip daddr 192.168.50.2 tcp dport 9999 dnat to 10.244.1.5:8080; }; }";
    lab.world.node().nft_script(rule);
    lab.apply(&[&web_everywhere(), &slice("a")]);
    let mut of_other = lab.world.host("outside").open_tcp("192.168.50.2:9999").unwrap();
    let mut ours = open(&lab, "a");
    lab.apply(&[&slice("b")]);
    check(&mut ours, None);
    assert_eq!(of_other.ask().server(), "a");
}

/// How long the daemon may take to see a change.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn the_daemon_shows_what_ends_and_counts_it_also_after_a_kill() {
    let lab = Lab::without_objects(routing());
    let node = lab.world.node();
    let web = web_everywhere().annotation(ANNOTATION, "reset");
    let manifests = Manifests::new(&[("web", &web), ("slice", &slice("a"))]);
    let flags = ["--healthz-bind-address=", "--metrics-bind-address=127.0.0.1:10249"];
    let start =
        || manifests.run_with(node, &[&flags[..], &["--ended-connections=annotated"]].concat());
    let daemon = start();
    let show = |more: &[&str]| {
        let arguments = [&["show", "--ended"], more].concat();
        node.output(deltaproxy_binary(), &arguments).ok()
    };
    let open = || eventually("a connection", SOON, || lab.world.host("pod").open_tcp(WEB).ok());
    let mut connections = [open(), open(), open()];
    assert_eq!(show(&[]), "no endpoint is gone whose connections end\n");
    manifests.set_endpoints("b");
    let ended = || (!show(&[]).starts_with("no endpoint")).then_some(());
    eventually("an ended endpoint", SOON, ended);
    let read = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    let of_a = |shown: &Value| {
        let all = shown["ended"].as_array().unwrap();
        all.iter().find(|it| it["endpoint"] == "10.244.1.5:8080").unwrap().clone()
    };
    for (resets, connection) in (0..).zip(&mut connections) {
        let shown = of_a(&read(&show(&["--output", "json"])));
        assert_eq!((&shown["service"], &shown["resets"]), (&json!("default/web"), &json!(resets)));
        assert!((800..=960).contains(&shown["left_seconds"].as_u64().unwrap()), "{shown}");
        assert_eq!(connection.ask(), Answer::Refused);
        if resets == 1 {
            daemon.signal(Signal::SIGKILL);
        }
    }
    let _daemon = start();
    let metric = "deltaproxy_service_resets_total{namespace=\"default\",service=\"web\"} 3\n";
    let resets = || body(node, 10249, "/metrics").contains(metric).then_some(());
    eventually("the resets of the service", SOON, resets);
    assert_eq!(of_a(&read(&show(&["--output", "json"])))["resets"], 3);
    for selected in [["--namespace", "other"], ["--search", "nothing"]] {
        assert_eq!(show(&selected), "no endpoint is gone whose connections end\n");
    }
    assert!(show(&["--namespace", "default"]).contains("default/web  10.244.1.5:8080"));
    let verify = [&manifests.arguments("verify")[..], &["--ended-connections=annotated"]].concat();
    let _ = node.output(deltaproxy_binary(), &verify).ok();
    let refused = node.output(deltaproxy_binary(), &["show", "--refused"]).ok();
    assert!(refused.contains("ended_endpoint"), "{refused}");
    manifests.set_endpoints("a b");
    let none = || show(&[]).starts_with("no endpoint").then_some(());
    eventually("no ended endpoint", SOON, none);
}

/// Each is an element, and nothing is sent twice.
#[test]
fn many_endpoints_that_go_at_once_cost_an_element_each() {
    const MANY: usize = 2_000;
    let mut lab = Lab::with(ending(true));
    let hosts: Vec<_> =
        (0..MANY).map(|i| format!("10.244.{}.{}", 100 + i / 250, 1 + i % 250)).collect();
    lab.apply(&[&web_everywhere(), &slice(&hosts.join(" "))]);
    let sent = lab.apply(&[&slice("a")]).script();
    assert_eq!(ended(&lab), 2 * MANY);
    let names = |set: &str| sent.matches(set).count();
    assert!(names("add element ip kube-proxy ended-endpoints") <= 8, "{sent}");
    let again = lab.apply(&[&slice(&format!("a {}", hosts.join(" ")))]).script();
    assert!(again.contains("delete element ip kube-proxy ended-endpoints"));
    assert_eq!((ended(&lab), have_rules(&lab)), (0, [false; 2]));
}
