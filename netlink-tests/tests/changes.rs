//! Traffic follows every change of objects, and none is lost meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use engine::routing::served_services::SERVICE_PROXY_NAME;
use engine::routing::{Routing, ServedServices};
use netlink_tests::scenario::{
    EXTERNAL, Expect, Lab, NODE_PORT, Object, Protocol, Proxy, Raw, Service, Slice, WEB, World,
    keeps_source, masquerades, routing, slice, web_with_node_port as web,
};
use netlink_tests::{Answer, Deadline};
use serde_json::json;

use Expect::{Refused, Silent};

#[test]
fn traffic_follows_endpoints_that_come_go_and_are_replaced() {
    let mut lab = Lab::new();
    lab.apply(&[&web()]);
    for endpoints in ["a", "a b c", "b c", "d", "a c d", "c"] {
        lab.apply(&[&slice(endpoints)]);
        lab.check(&[
            ("pod", WEB, keeps_source(endpoints)),
            ("outside", NODE_PORT, masquerades(endpoints)),
        ]);
    }
}

#[test]
fn endpoints_may_go_to_none_and_come_back() {
    let mut lab = Lab::new();
    lab.apply(&[&web()]);
    for _ in 0..3 {
        lab.apply(&[&slice("a")]);
        lab.check(&[("pod", WEB, keeps_source("a")), ("outside", NODE_PORT, masquerades("a"))]);
        lab.apply(&[&slice("")]);
        lab.check(&[("pod", WEB, Refused), ("outside", NODE_PORT, Refused)]);
    }
}

#[test]
fn a_tcp_connection_to_a_removed_endpoint_goes_on() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut kept: Vec<_> = ["pod", "node", "outside"]
        .map(|client| lab.world.host(client).open_tcp(WEB).unwrap())
        .into();
    lab.apply(&[&slice("b")]);
    lab.check(&[("pod", WEB, keeps_source("b"))]);
    for connection in &mut kept {
        assert_eq!(connection.ask().server(), "a");
    }
    lab.remove(&[&web(), &slice("b")]);
    for connection in &mut kept {
        assert_eq!(connection.ask().server(), "a");
    }
}

#[test]
fn a_deleted_services_address_becomes_an_unallocated_one() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    lab.check(&[("pod", "10.96.0.10:99", Refused)]);
    lab.remove(&[&web()]);
    for client in ["pod", "node", "outside"] {
        lab.check(&[(client, WEB, Silent), (client, NODE_PORT, Expect::Closed)]);
    }
    lab.apply(&[&web()]);
    lab.check(&[("pod", WEB, keeps_source("a")), ("outside", NODE_PORT, masquerades("a"))]);
}

#[test]
fn slices_may_come_before_their_service_and_after_it() {
    let mut lab = Lab::new();
    lab.apply(&[&slice("a")]);
    lab.check(&[("pod", WEB, Silent)]);
    lab.apply(&[&web()]);
    lab.check(&[("pod", WEB, keeps_source("a"))]);
    lab.remove(&[&slice("a")]);
    lab.check(&[("pod", WEB, Refused)]);
    lab.apply(&[&slice("b")]);
    lab.check(&[("pod", WEB, keeps_source("b"))]);
}

#[test]
fn an_endpoint_that_moves_to_another_slice_changes_nothing() {
    let mut lab = Lab::new();
    let second = |endpoints: &str| Slice::new("web").suffix("2").endpoints(endpoints);
    lab.apply(&[&web(), &slice("a b"), &second("c")]);
    let sent = lab.apply(&[&slice("a"), &second("c b")]);
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    let sent = lab.proxy.change(&[&slice("a")], &[&second("c b a")]);
    assert!(sent.transactions.is_empty(), "{}", sent.script());
    lab.check(&[("pod", WEB, keeps_source("a b c"))]);
}

#[test]
fn a_service_port_that_gets_another_number_or_name_moves() {
    let mut lab = Lab::new();
    let named =
        |name, port| Service::new("web", "10.96.0.10").named_port(name, Protocol::Tcp, port, 0);
    let target = |name| slice("a").without_ports().named_target(name, Protocol::Tcp, 8080);
    let tcp = netlink_tests::scenario::Scope::TCP;
    lab.apply(&[&named("http", 80), &target("http")]);
    lab.check_in(tcp, &[("pod", WEB, keeps_source("a")), ("pod", "10.96.0.10:81", Refused)]);
    lab.apply(&[&named("http", 81)]);
    lab.check_in(tcp, &[("pod", WEB, Refused), ("pod", "10.96.0.10:81", keeps_source("a"))]);
    lab.apply(&[&named("www", 81)]);
    lab.check_in(tcp, &[("pod", "10.96.0.10:81", Refused)]);
    lab.apply(&[&target("www")]);
    lab.check_in(tcp, &[("pod", "10.96.0.10:81", keeps_source("a"))]);
}

#[test]
fn a_service_may_change_its_type_back_and_forth() {
    let mut lab = Lab::new();
    let plain = Service::new("web", "10.96.0.10").port(80);
    let balanced = web().load_balancer_ip("198.51.100.1");
    let external = Service::headless("web")
        .port(80)
        .spec("type", json!("ExternalName"))
        .spec("clusterIP", json!(""))
        .spec("clusterIPs", json!([]))
        .spec("externalName", json!("example.com"));
    lab.apply(&[&slice("a")]);
    for _ in 0..2 {
        lab.apply(&[&plain]);
        lab.check(&[("pod", WEB, keeps_source("a")), ("outside", NODE_PORT, Expect::Closed)]);
        lab.apply(&[&web()]);
        lab.check(&[("outside", NODE_PORT, masquerades("a")), ("pod", EXTERNAL, Silent)]);
        lab.apply(&[&balanced]);
        lab.check(&[("outside", NODE_PORT, masquerades("a")), ("pod", EXTERNAL, masquerades("a"))]);
        lab.apply(&[&external]);
        lab.check(&[("outside", NODE_PORT, Expect::Closed), ("pod", EXTERNAL, Silent)]);
        lab.check(&[("pod", WEB, Silent)]);
    }
}

#[test]
fn labels_that_take_objects_away_count_at_run_time() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    for _ in 0..2 {
        lab.apply(&[&web().label("service.kubernetes.io/service-proxy-name", "other")]);
        lab.check(&[("pod", WEB, Silent)]);
        lab.apply(&[&web()]);
        lab.check(&[("pod", WEB, keeps_source("a"))]);
        lab.apply(&[&slice("a").label("service.kubernetes.io/headless", "")]);
        lab.check(&[("pod", WEB, Refused)]);
        lab.apply(&[&slice("a")]);
        lab.check(&[("pod", WEB, keeps_source("a"))]);
    }
}

#[test]
fn a_label_takes_a_service_from_another_program_and_gives_it_back() {
    let services = ServedServices {
        proxy_name: Some("canary".parse().unwrap()),
        labels: vec!["paused!=yes".parse().unwrap()],
        ..ServedServices::default()
    };
    let mut lab = Lab::with(Routing { services, ..routing() });
    let canary = |name| web().label(SERVICE_PROXY_NAME, name);
    lab.apply(&[&web(), &slice("a")]);
    for _ in 0..2 {
        lab.check(&[("pod", WEB, Silent)]);
        lab.apply(&[&canary("canary")]);
        lab.check(&[("pod", WEB, keeps_source("a")), ("outside", NODE_PORT, masquerades("a"))]);
        lab.apply(&[&canary("canary").label("paused", "yes")]);
        lab.check(&[("pod", WEB, Silent), ("outside", NODE_PORT, Expect::Closed)]);
        lab.apply(&[&canary("canary").label("paused", "no")]);
        lab.check(&[("pod", WEB, keeps_source("a"))]);
        lab.apply(&[&canary("other")]);
    }
}

#[test]
fn a_service_that_is_renamed_keeps_its_addresses() {
    let mut lab = Lab::new();
    let shop = Service::new("shop", "10.96.0.10").node_port(80, 30080);
    lab.apply(&[&web(), &slice("a")]);
    lab.proxy.change(&[&web(), &slice("a")], &[&shop, &Slice::new("shop").endpoints("a")]);
    lab.check(&[("pod", WEB, keeps_source("a")), ("outside", NODE_PORT, masquerades("a"))]);
}

/// The service that is older has the address; of the same age, the first by name.
#[test]
fn two_services_with_one_external_ip_have_a_stable_winner() {
    let mut lab = Lab::new();
    let one = Service::new("one", "10.96.0.11").port(80).external_ip("198.51.100.1");
    let two = Service::new("two", "10.96.0.12").port(80).external_ip("198.51.100.1");
    let slices = [Slice::new("one").endpoints("a"), Slice::new("two").endpoints("b")];
    let sent = lab.apply(&[&two, &one, &slices[0], &slices[1]]);
    assert_eq!(sent.problems.len(), 6, "{:?}", sent.problems);
    lab.check(&[("pod", EXTERNAL, masquerades("a")), ("pod", "10.96.0.12:80", keeps_source("b"))]);
    lab.apply(&[&Slice::new("two").endpoints("b c")]);
    lab.check(&[("pod", EXTERNAL, masquerades("a"))]);
    lab.remove(&[&one]);
    lab.check(&[("pod", EXTERNAL, masquerades("b c"))]);
    lab.apply(&[&one]);
    lab.check(&[("pod", EXTERNAL, masquerades("a"))]);
}

#[test]
fn an_invalid_object_keeps_its_former_state_and_does_not_stop_others() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    let mut broken = web().documents().remove(0);
    broken["spec"]["ports"][0]["port"] = json!(70_000);
    let other = Service::new("other", "10.96.0.11").port(80);
    let sent = lab.apply(&[&Raw(broken), &other, &Slice::new("other").endpoints("b")]);
    assert_eq!(sent.problems.len(), 1, "{:?}", sent.problems);
    lab.check(&[("pod", WEB, keeps_source("a")), ("pod", "10.96.0.11:80", keeps_source("b"))]);
}

/// A new proxy on the tables of one that ended sends only the changes since.
#[test]
fn a_restart_sends_only_the_changes() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a b c")]);
    let usual = lab.proxy.objects();
    lab.proxy = Proxy::start(lab.world.node(), netlink_tests::scenario::routing());
    let usual: Vec<&dyn Object> = usual.iter().map(|object| object as &dyn Object).collect();
    let sent = lab.apply(&usual);
    assert!(sent.transactions.is_empty(), "{}", sent.script());

    lab.proxy = Proxy::start(lab.world.node(), netlink_tests::scenario::routing());
    let sent = lab.apply(&[usual.as_slice(), &[&slice("a b")]].concat());
    assert_eq!(sent.transactions.len(), 2, "one for each table: {}", sent.script());
    lab.check(&[("pod", WEB, keeps_source("a b")), ("outside", NODE_PORT, masquerades("a b"))]);
}

/// A commit is not one moment for a packet: it may see one set before and the next one after it.
#[test]
fn no_packet_is_refused_or_lost_while_endpoints_are_replaced() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a b c d")]);
    let Lab { world, proxy } = &mut lab;
    // The answer of an endpoint that has left meanwhile does not find its way without its entry.
    proxy.leave_flows();
    let done = AtomicBool::new(false);
    let sent = [const { AtomicUsize::new(0) }; 4];
    let ways = [("pod", WEB), ("outside", NODE_PORT)]
        .into_iter()
        .flat_map(|way| [Protocol::Tcp, Protocol::Udp].map(|protocol| (way, protocol)));
    thread::scope(|threads| {
        let loads = ways.zip(&sent).map(|(((client, to), protocol), sent)| {
            let (world, done) = (&*world, &done);
            let to = to.parse().unwrap();
            threads.spawn(move || load(world, (client, to, protocol), sent, done))
        });
        let loads: Vec<_> = loads.collect();
        replace_endpoints(proxy, Duration::from_secs(2), || {
            let probes = sent.iter().map(|sent| sent.load(Ordering::Relaxed));
            // A load that has failed ends the test.
            loads.iter().zip(probes).all(|(it, probes)| it.is_finished() || probes > FEWEST_PROBES)
        });
        done.store(true, Ordering::Relaxed);
    });
}

/// Sends probes until it is done, and counts them; each must be answered.
fn load(
    world: &World,
    (client, to, protocol): (&str, SocketAddr, Protocol),
    sent: &AtomicUsize,
    done: &AtomicBool,
) {
    for probe in 0..MOST_PROBES {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let answer = world.ask_fast(client, to, protocol);
        assert!(
            matches!(answer, Answer::From { .. }),
            "probe {probe} from {client} to {to} by {}: {answer:?}",
            protocol.name()
        );
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// Commits for `time`, and until there were commits and probes enough. All four servers live all the
/// time, so that every answer is right.
#[track_caller]
fn replace_endpoints(proxy: &mut Proxy, time: Duration, enough_probes: impl Fn() -> bool) {
    let (deadline, limit) = (Deadline::after(time), Deadline::after(LIMIT));
    // A packet that finds four endpoints and then one of them left has most to lose.
    let states = ["a", "a b c d", "d", "b c d", "b", "d c b a"];
    let mut commits = 0;
    while deadline.left().is_some() || commits <= FEWEST_COMMITS || !enough_probes() {
        assert!(limit.left().is_some(), "{commits} commits, or probes, are too few in {LIMIT:?}");
        for state in states {
            commits += proxy.apply(&[&slice(state)]).transactions.len();
        }
    }
}

/// Fewer would show little.
const FEWEST_COMMITS: usize = 200;
const FEWEST_PROBES: usize = 100;

/// Far more than they take.
const LIMIT: Duration = Duration::from_secs(60);

/// Four clients have this many source ports each.
const MOST_PROBES: usize = 12_000;
