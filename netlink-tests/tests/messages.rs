//! What an update sends: elements without verdicts, and few of them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use netlink_tests::Net;
use netlink_tests::scenario::{
    Family, Node, Protocol, Proxy, Sent, Service, ServiceCidr, Slice, routing,
};
use nft::{MessageKind, Operation};
use serde_json::json;

/// Elements added and deleted.
type Elements = (usize, usize);

fn web() -> Service {
    Service::new("web", "10.96.0.10").only(Family::Ipv4).named_port("http", Protocol::Tcp, 80, 0)
}

fn slice(endpoints: &str) -> Slice {
    let slice = Slice::new("web").only(Family::Ipv4).without_ports().endpoints(endpoints);
    slice.named_target("http", Protocol::Tcp, 8080)
}

/// Counts elements, and checks that nothing else was sent. No element has a verdict, which would
/// make the kernel validate the whole table.
#[track_caller]
fn elements(sent: &Sent) -> Elements {
    assert_eq!(sent.problems, [""; 0]);
    // What packets may still look up goes with a transaction of its own.
    assert!(sent.transactions.len() <= 2, "{}", sent.script());
    let kinds = [MessageKind::NewSetElem, MessageKind::DelSetElem];
    assert!(sent.messages.keys().all(|kind| kinds.contains(kind)), "{:?}", sent.messages);
    let (mut added, mut deleted) = (0, 0);
    for operation in sent.transactions.iter().flat_map(|it| &it.operations) {
        if let Operation::AddElements(_, _, elements) = operation {
            added += elements.len();
        } else if let Operation::DeleteElements(_, _, elements) = operation {
            deleted += elements.len();
        } else {
            panic!("{operation}")
        }
    }
    (added, deleted)
}

/// A proxy on a node without hosts around it, which these tests do not need.
fn proxy() -> (Net, Proxy) {
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16"]);
    let _ = proxy.apply(&[&Node::new(), &cidrs]);
    (net, proxy)
}

#[test]
fn services_and_endpoints_that_come_and_go_are_a_few_elements() {
    let (_net, mut proxy) = proxy();
    // cluster-ips, unserved-services
    assert_eq!(elements(&proxy.apply(&[&web()])), (2, 0));
    // services and slot 0 for unserved-services
    assert_eq!(elements(&proxy.apply(&[&slice("c")])), (2, 1));
    // slot 1, and another size in services
    assert_eq!(elements(&proxy.apply(&[&slice("c d")])), (2, 1));
    // slot 1
    assert_eq!(elements(&proxy.apply(&[&slice("c 10.244.2.99")])), (1, 1));
    // slot 2, the size and hairpin-connections
    assert_eq!(elements(&proxy.apply(&[&slice("c a 10.244.2.99")])), (3, 1));
    // slot 2 moves to slot 1, and the size
    assert_eq!(elements(&proxy.apply(&[&slice("c a")])), (2, 3));
    // both slots, services and hairpin-connections for unserved-services
    assert_eq!(elements(&proxy.apply(&[&slice("")])), (1, 4));
    assert_eq!(elements(&proxy.remove(&[&web()])), (0, 2));
    // Endpoints of no service.
    assert_eq!(elements(&proxy.apply(&[&slice("a b")])), (0, 0));
    assert_eq!(elements(&proxy.apply(&[&web()])), (6, 0));
    assert_eq!(elements(&proxy.remove(&[&web()])), (0, 6));
}

#[test]
fn an_update_that_changes_no_packet_sends_nothing() {
    let (_net, mut proxy) = proxy();
    let _ = proxy.apply(&[&web(), &slice("a c")]);
    let generation = proxy.generation();
    for sent in [
        proxy.apply(&[&web(), &slice("a c")]),
        proxy.apply(&[&web().label("app", "web")]),
        proxy.apply(&[&web().spec("selector", json!({"app": "web"}))]),
        proxy.apply(&[&slice("c a")]),
        proxy.apply(&[&slice("c a c").label("app", "web")]),
        proxy.apply(&[&Node::new().zone("z1")]),
    ] {
        assert_eq!(elements(&sent), (0, 0));
    }
    assert_eq!(proxy.generation(), generation);
}

/// Affinity costs its own service more elements, and chains only for a timeout that no other
/// service has. Services without it pay nothing.
#[test]
fn with_affinity_services_and_endpoints_are_elements_without_verdicts_too() {
    let (_net, mut proxy) = proxy();
    let sticky = |name: &str, ip: &str, seconds: u32| {
        let service = Service::new(name, ip).only(Family::Ipv4);
        let service = service.named_port("http", Protocol::Tcp, 80, 0);
        let config = json!({"clientIP": {"timeoutSeconds": seconds}});
        let service = service.spec("sessionAffinity", json!("ClientIP"));
        service.spec("sessionAffinityConfig", config)
    };
    let first = sticky("first", "10.96.0.20", 60);
    let targets = Slice::new("first").only(Family::Ipv4).without_ports().endpoints("c");
    let targets = targets.named_target("http", Protocol::Tcp, 8080);
    let sent = proxy.apply(&[&first, &targets]);
    assert!(sent.messages.contains_key(&MessageKind::NewRule), "{:?}", sent.messages);

    // What has none, beside it.
    assert_eq!(elements(&proxy.apply(&[&web()])), (2, 0));
    assert_eq!(elements(&proxy.apply(&[&slice("c")])), (2, 1));
    // affinity-slots, -endpoints, -lists and services for services and slot 0
    let web_sticky = sticky("web", "10.96.0.10", 60);
    assert_eq!(elements(&proxy.apply(&[&web_sticky])), (4, 2));
    // slot 1 and endpoint 2; another size in services and affinity-lists
    assert_eq!(elements(&proxy.apply(&[&slice("c d")])), (4, 2));
    assert_eq!(elements(&proxy.apply(&[&slice("c")])), (2, 4));
    assert_eq!(elements(&proxy.apply(&[&web()])), (2, 4));
    assert_eq!(elements(&proxy.apply(&[&web_sticky])), (4, 2));
    assert_eq!(elements(&proxy.remove(&[&web_sticky])), (0, 5));

    let kinds = |sent: &Sent| sent.messages.keys().copied().collect::<Vec<_>>();
    let other = sticky("first", "10.96.0.20", 90);
    let sent = proxy.apply(&[&other]);
    // The new rules, what names them, and the end of the old ones, in both tables.
    assert!(sent.transactions.len() <= 6, "{}", sent.script());
    assert!(kinds(&sent).contains(&MessageKind::DelChain), "{:?}", sent.messages);
    assert_eq!(elements(&proxy.apply(&[&other])), (0, 0));
}

/// Each size up to 8 has a class of its own; above that there is one up to each power of two.
#[test]
fn one_endpoint_of_many_is_a_few_elements_however_many_there_are() {
    let (_net, mut proxy) = proxy();
    let _ = proxy.apply(&[&web()]);
    let many = |count: usize| {
        let addresses = (1..=count).map(|i| format!("10.244.{}.{}", 2 + i / 250, i % 250));
        slice(&addresses.collect::<Vec<_>>().join(" "))
    };
    for count in [1, 2, 3, 4, 7, 8, 9, 16, 17, 99, 256, 900] {
        // The first list of a size class adds its rules too.
        for count in [count + 1, count] {
            let _ = proxy.apply(&[&many(count)]);
        }
        let (added, deleted) = elements(&proxy.apply(&[&many(count + 1)]));
        assert!((1..=2).contains(&added) && deleted <= 1, "{count}: +{added} -{deleted}");
        let (added, deleted) = elements(&proxy.apply(&[&many(count)]));
        assert!(added <= 2 && (1..=3).contains(&deleted), "{count}: +{added} -{deleted}");
    }
}

#[test]
fn node_ports_policies_and_external_addresses_are_elements_too() {
    let (_net, mut proxy) = proxy();
    let _ = proxy.apply(&[&slice("a c")]);
    let base = || {
        let service = Service::new("web", "10.96.0.10").only(Family::Ipv4);
        service.named_port("http", Protocol::Tcp, 80, 30080)
    };
    for service in [
        base(),
        base().external_local(),
        base().internal_local(),
        base().external_local().internal_local().external_ip("198.51.100.1"),
        base().load_balancer_ip("198.51.100.2"),
        web(),
    ] {
        let (added, deleted) = elements(&proxy.apply(&[&service]));
        assert!(added + deleted <= 20, "+{added} -{deleted}");
        assert_ne!(added + deleted, 0);
    }
}

/// Two families are two tables, and one transaction.
#[test]
fn a_dual_stack_update_is_one_transaction() {
    let (_net, mut proxy) = proxy();
    let both = Service::new("web", "10.96.0.10").named_port("http", Protocol::Tcp, 80, 0);
    let targets = |hosts: &str| {
        let slice = Slice::new("web").without_ports().endpoints(hosts);
        slice.named_target("http", Protocol::Tcp, 8080)
    };
    assert_eq!(elements(&proxy.apply(&[&both, &targets("c")])), (6, 0));
    assert_eq!(elements(&proxy.apply(&[&targets("c d")])), (4, 2));
}

/// Fixed rules hold the ranges; they are few and change rarely.
#[test]
fn a_service_cidr_that_changes_replaces_the_rules_of_one_chain() {
    let (_net, mut proxy) = proxy();
    let sent = proxy.apply(&[&ServiceCidr::new("second", &["10.97.0.0/16"])]);
    let kinds: Vec<_> = sent.messages.keys().copied().collect();
    assert_eq!(kinds, [MessageKind::NewRule, MessageKind::DelRule], "{}", sent.script());
    let chains = ["cluster-ips-check"];
    for operation in sent.transactions.iter().flat_map(|it| &it.operations) {
        assert!(chains.iter().any(|chain| operation.to_string().contains(chain)), "{operation}");
    }
}
