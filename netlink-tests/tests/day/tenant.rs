//! A tenant whose Services ask for as much as they can.

use netlink_tests::apiserver::Kind;
use netlink_tests::apiserver::object::{endpoint_slice, service};
use serde_json::{Value, json};

use crate::node::{Day, web_endpoints};
use crate::signs::{FINE, Signs};

/// Ports of the Service, and its external IPs: more addresses for each port than it may have.
const PORTS: u16 = 256;
const ADDRESSES: u8 = 128;

/// Endpoints of a Service with session affinity, in slices of a hundred: more than it may have.
const ENDPOINTS: u16 = 8_300;

pub(crate) fn greedy(day: &mut Day) {
    day.begin("greedy tenant");
    day.api.push_all(objects());
    // Another tenant's change.
    day.api.push(web_endpoints(&["10.244.1.6"]));
    day.expect(&Signs {
        problems: Some(&["limit Service greedy/all", "limit Service greedy/sticky"]),
        causes: Some(&["event"]),
        endpoints: Some(&["10.244.1.6"]),
        alerts: &["DeltaproxyObjectsLeftOut", "DeltaproxyObjectsWereLeftOut"],
        ..FINE
    });
    day.expect_no_failure();
    let problems = day.run(&["problems"]).stdout;
    assert_eq!(problems.lines().count(), 4, "{problems}");
    for text in [
        "Service greedy/all: spec.externalIPs (limit, for ",
        "of its 128 external addresses only the first 64 are used, each with 256 ports\n",
        "Service greedy/sticky: spec.sessionAffinity (limit, for ",
        "port 80: of its 8300 endpoints only the first 8192 are used\n",
    ] {
        assert!(problems.contains(text), "{problems}");
    }

    day.begin("the tenant's objects are deleted");
    day.api.push(web_endpoints(&["10.244.1.5"]));
    for name in ["greedy/all", "greedy/sticky"] {
        day.api.delete(Kind::Service, name);
    }
    for name in ["greedy/all-1".to_owned()].into_iter().chain(slice_names()) {
        day.api.delete(Kind::EndpointSlice, &name);
    }
    day.expect(&Signs { causes: Some(&["event"]), ..FINE });
    day.expect_no_failure();
}

/// The objects of the tenant.
fn objects() -> Vec<Value> {
    let mut all = service("greedy/all", "10.96.200.1", 1);
    let port =
        |number: u16| json!({"name": format!("p{number}"), "protocol": "TCP", "port": number});
    all["spec"]["ports"] = (1..=PORTS).map(port).collect();
    let address = |number: u8| json!(format!("203.0.113.{number}"));
    all["spec"]["externalIPs"] = (1..=ADDRESSES).map(address).collect();
    let mut sticky = service("greedy/sticky", "10.96.200.2", 80);
    sticky["spec"]["sessionAffinity"] = json!("ClientIP");
    let mut slice = endpoint_slice("greedy/all-1", "all", &["10.245.0.1"], 8080);
    slice["ports"] = all["spec"]["ports"].clone();
    let slices = slice_names().enumerate().map(|(number, name)| {
        let addresses: Vec<_> = (1..=100).map(|at| format!("10.245.{number}.{at}")).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        endpoint_slice(&name, "sticky", &addresses, 8080)
    });
    [all, sticky, slice].into_iter().chain(slices).collect()
}

fn slice_names() -> impl Iterator<Item = String> {
    (0..ENDPOINTS / 100).map(|number| format!("greedy/sticky-{number}"))
}
