//! Some hundred services come, change and go.

use std::net::Ipv4Addr;

use netlink_tests::apiserver::Kind;
use netlink_tests::apiserver::object::{endpoint_slice, service};
use netlink_tests::eventually;
use serde_json::Value;

use crate::node::{Day, SOON, web_endpoints};
use crate::signs::{FINE, Signs};

/// Services beside `web`.
const SERVICES: u32 = 300;

/// Services that go again.
const DELETED: u32 = 50;

pub(crate) fn load(day: &mut Day) {
    day.begin("load");
    day.api.push_all((0..SERVICES).flat_map(|number| [new_service(number), slice(number, 1)]));
    wait_for_services(day, SERVICES + 1);
    for round in 2..=3 {
        for number in 0..SERVICES {
            day.api.push(slice(number, round));
        }
        let both: &[&str] = &["10.244.1.5", "10.244.1.6"];
        day.api.push(web_endpoints(&both[..if round == 2 { 2 } else { 1 }]));
    }
    for number in 0..DELETED {
        day.api.delete(Kind::Service, &format!("load/svc-{number}"));
        day.api.delete(Kind::EndpointSlice, &format!("load/svc-{number}-1"));
    }
    let left = SERVICES + 1 - DELETED;
    wait_for_services(day, left);
    day.expect(&Signs { causes: Some(&["event"]), ..FINE });
    day.expect_no_failure();
    let verified = eventually("tables as desired", SOON, || {
        let verified = day.verify();
        (verified.code() == Some(0)).then_some(verified.stdout)
    });
    assert_eq!(verified, format!("the tables are as desired: {left} services\n"));
    let commits = day.observer.commits().unwrap();
    let services: u64 = commits.iter().map(|commit| commit["services"].as_u64().unwrap()).sum();
    assert!(services >= u64::from(SERVICES + DELETED), "{services} in {commits:#?}");
    let one = "load/svc-299";
    let of_one = || day.run(&["history", "--since=1h", "--service", one]);
    assert!(of_one().stderr.ends_with(&format!("may have changed {one} too\n")));
    day.api.push(slice(299, 1));
    eventually("the change of one service", SOON, || {
        let history = of_one().ok();
        let names_it_alone =
            |line: &str| line.contains(" event ") && line.ends_with(&format!("  {one}"));
        history.lines().any(names_it_alone).then_some(())
    });
}

/// Waits until `show` lists so many services.
#[track_caller]
fn wait_for_services(day: &Day, count: u32) {
    eventually(&format!("{count} services"), SOON, || {
        let shown = day.run(&["show", "--output=json"]).ok();
        let document: Value = serde_json::from_str(&shown).unwrap();
        let rows = document["services"].as_array().unwrap().iter();
        let cluster_ips = rows.filter(|row| row["kind"] == "cluster-ip").count();
        (cluster_ips == usize::try_from(count).unwrap()).then_some(())
    });
}

fn new_service(number: u32) -> Value {
    let address = Ipv4Addr::from(0x0a60_1000 + number);
    service(&format!("load/svc-{number}"), &address.to_string(), 80)
}

/// The endpoints of a service, others in each round.
fn slice(number: u32, round: u32) -> Value {
    let addresses: Vec<_> =
        (0..3).map(|at| Ipv4Addr::from(0x0af4_2000 + number * 16 + round * 4 + at)).collect();
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    endpoint_slice(&format!("load/svc-{number}-1"), &format!("svc-{number}"), &addresses, 8080)
}
