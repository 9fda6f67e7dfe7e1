//! Base chains of type filter, which tables have only while something needs them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use Expect::{Refused, Silent};
use netlink_tests::reader;
use netlink_tests::scenario::{
    Expect, Lab, Scope, Sent, Service, ServiceCidr, Slice, VIP, WEB, keeps_source, masquerades,
    slice,
};
use nft::Operation;
use serde_json::json;

const BEFORE_DNAT: [&str; 2] = ["filter-output-pre-dnat", "filter-prerouting-pre-dnat"];
const AFTER_DNAT: [&str; 2] = ["filter-forward", "filter-output"];

fn web() -> Service {
    Service::new("web", "10.96.0.10").port(80).load_balancer_ip("198.51.100.2")
}

fn restricted_to(range: &str) -> Service {
    web().spec("loadBalancerSourceRanges", json!([range]))
}

fn service_cidrs() -> ServiceCidr {
    ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"])
}

fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.apply(&[&service_cidrs()]);
    lab
}

/// The names of the base chains of type filter in the IPv4 table, sorted.
fn filter_chains(lab: &Lab) -> Vec<String> {
    let table = lab.world.node().read_table(reader::Family::Ip).unwrap();
    let mut names: Vec<_> = table.chains.into_keys().collect();
    names.retain(|name| name.starts_with("filter-"));
    names.sort();
    names
}

#[test]
fn the_chains_for_source_ranges_exist_while_a_service_has_ranges() {
    let mut lab = lab();
    lab.apply(&[&web(), &slice("a c")]);
    assert!(filter_chains(&lab).is_empty());
    lab.check(&[("outside", VIP, masquerades("a c")), ("pod", "10.96.0.10:81", Refused)]);
    lab.apply(&[&restricted_to("10.244.0.0/16")]);
    assert_eq!(filter_chains(&lab), BEFORE_DNAT);
    lab.check_in(Scope::IPV4, &[("outside", VIP, Silent), ("pod", VIP, masquerades("a c"))]);
    lab.apply(&[&web()]);
    assert!(filter_chains(&lab).is_empty());
    lab.check(&[("outside", VIP, masquerades("a c"))]);
}

#[test]
fn the_chains_after_dnat_exist_while_an_endpoint_may_be_a_cluster_ip() {
    let mut lab = lab();
    let other = Service::new("other", "10.96.0.11").port(80);
    let inner = Slice::new("web").target(80, 80).endpoints("10.96.0.11");
    lab.apply(&[&web(), &inner, &other, &Slice::new("other").endpoints("a")]);
    assert_eq!(filter_chains(&lab), AFTER_DNAT);
    for client in ["pod", "node", "outside"] {
        lab.check_in(Scope::IPV4, &[(client, WEB, Refused)]);
    }
    lab.apply(&[&slice("c")]);
    assert!(filter_chains(&lab).is_empty());
    lab.check(&[("pod", WEB, keeps_source("c"))]);
    lab.remove(&[&service_cidrs()]);
    assert_eq!(filter_chains(&lab), AFTER_DNAT, "the ranges are unknown");
}

/// The places of the transactions with an operation that contains all of `parts`.
fn places(sent: &Sent, parts: [&str; 2]) -> Vec<usize> {
    let contains_all = |operation: &Operation| {
        let operation = operation.to_string();
        parts.iter().all(|part| operation.contains(part))
    };
    let transactions = sent.transactions.iter().enumerate();
    let with = transactions.filter(|(_, it)| it.operations.iter().any(contains_all));
    with.map(|(place, _)| place).collect()
}

#[test]
fn the_chains_precede_the_first_element_that_needs_them_and_go_after_the_last() {
    let mut lab = lab();
    lab.apply(&[&slice("a c")]);
    for _ in 0..2 {
        let sent = lab.apply(&[&restricted_to("203.0.113.0/24")]);
        let chains = places(&sent, ["add chain ip ", BEFORE_DNAT[1]]);
        let elements = places(&sent, ["add element ip ", " services "]);
        assert!(chains.len() == 1 && !elements.is_empty(), "{}", sent.script());
        assert!(elements.iter().all(|place| *place > chains[0]), "{}", sent.script());

        let sent = lab.remove(&[&web()]);
        let chains = places(&sent, ["delete chain ip ", BEFORE_DNAT[1]]);
        let elements = places(&sent, ["delete element ip ", " services "]);
        assert!(chains.len() == 1 && !elements.is_empty(), "{}", sent.script());
        assert!(elements.iter().all(|place| *place < chains[0]), "{}", sent.script());
    }
}
