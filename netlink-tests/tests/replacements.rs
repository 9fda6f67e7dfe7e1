//! No packet misses an element whose key a commit deletes and adds again.
//!
//! A change of a slot or a route is such a commit. Before Linux 6.17 a lookup during the commit may
//! find neither the old nor the new element.
//!
//! The variable `RACE_FLOWS` sets the flows of each race (50,000). The counts are printed with
//! `--nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use netlink_tests::scenario::{Call, Fate, Object, Replacement, Service, Slice};
use serde_json::json;

/// The address of a service of a number.
fn address(number: u8) -> String {
    format!("10.96.0.{number}")
}

fn service(number: u8) -> Service {
    Service::new(&format!("s{number}"), &address(number))
}

/// So many endpoints of a service, on another node.
fn slice(number: u8, count: u8) -> Slice {
    let endpoints: Vec<_> = (1..=count).map(|nth| format!("10.244.9.{nth}")).collect();
    Slice::new(&format!("s{number}")).endpoints(&endpoints.join(" "))
}

fn to(number: u8) -> String {
    format!("{}:80", address(number))
}

/// Services with 1, 3, 8, 9 and 40 endpoints.
#[test]
fn no_flow_misses_a_replaced_slot() {
    let counts = [1, 3, 8, 9, 40];
    let numbers = || (10..).zip(counts);
    let objects: Vec<_> =
        numbers().map(|(number, count)| (service(number).port(80), slice(number, count))).collect();
    let objects: Vec<_> =
        objects.iter().flat_map(|(service, slice)| [service as &dyn Object, slice]).collect();
    let addresses: Vec<_> = numbers().map(|(number, _)| address(number)).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let calls: Vec<_> =
        numbers().map(|(number, _)| Call::new(&to(number), Fate::Translated)).collect();
    Replacement::of(&["endpoints"], &objects, &addresses).run(&calls);
}

#[test]
fn no_flow_misses_a_replaced_slot_of_a_table() {
    let service = service(10).port(80).annotation("deltaproxy.io/scheduler", "mh");
    let calls = [Call::new(&to(10), Fate::Translated).spoofed()];
    Replacement::of(&["endpoints"], &[&service, &slice(10, 3)], &[&address(10)]).run(&calls);
}

#[test]
fn no_flow_misses_a_replaced_route() {
    let service = service(10).node_port(80, 30080).external_ip("198.51.100.1");
    let calls = [
        Call::new(&to(10), Fate::Translated),
        Call::new("198.51.100.1:80", Fate::Translated),
        Call::new("192.168.50.2:30080", Fate::Translated),
    ];
    let addresses = [&address(10), "198.51.100.1"];
    Replacement::of(&["services", "nodeports"], &[&service, &slice(10, 3)], &addresses).run(&calls);
}

/// No endpoint is on the node, so only the internal routes have any.
#[test]
fn no_flow_misses_a_replaced_internal_route() {
    let service = service(10).node_port(80, 30080).load_balancer_ip("198.51.100.2");
    let service = service.external_local();
    let calls = [
        Call::new("198.51.100.2:80", Fate::Translated),
        Call::new("192.168.50.2:30080", Fate::Translated),
    ];
    let sets = ["services", "nodeports", "internal-services", "internal-nodeports"];
    let addresses = [&address(10), "198.51.100.2"];
    Replacement::of(&sets, &[&service, &slice(10, 3)], &addresses).run(&calls);
}

#[test]
fn no_flow_is_let_through_to_a_service_without_endpoints() {
    let service = service(10).node_port(80, 30080).external_ip("198.51.100.1");
    let calls = [
        Call::new("198.51.100.1:80", Fate::Refused),
        Call::new("192.168.50.2:30080", Fate::Refused),
    ];
    let sets = ["unserved-services", "unserved-nodeports"];
    Replacement::of(&sets, &[&service, &slice(10, 0)], &["198.51.100.1"]).run(&calls);
}

/// A client that comes back, and new ones.
#[test]
fn no_flow_misses_a_replaced_element_of_session_affinity() {
    let sticky = |number, count| {
        let config = json!({"clientIP": {"timeoutSeconds": 1}});
        let service = service(number).port(80).spec("sessionAffinity", json!("ClientIP"));
        (service.spec("sessionAffinityConfig", config), slice(number, count))
    };
    let [(few, few_slice), (many, many_slice)] = [sticky(10, 3), sticky(11, 12)];
    let calls = [10, 11].map(|number| Call::new(&to(number), Fate::Translated));
    let calls = [calls, calls.map(Call::spoofed)].concat();
    let sets = ["services", "affinity-slots", "affinity-endpoints", "affinity-lists"];
    let objects: [&dyn Object; 4] = [&few, &few_slice, &many, &many_slice];
    Replacement::of(&sets, &objects, &[&address(10), &address(11)]).run(&calls);
}
