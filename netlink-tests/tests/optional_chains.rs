//! Chains that tables have only while something needs them: base chains of type filter, and those of
//! size classes and affinity.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use Expect::{Refused, Silent};
use netlink_tests::scenario::{
    Expect, Lab, Scope, Sent, Service, ServiceCidr, Slice, VIP, WEB, keeps_source, masquerades,
    slice,
};
use netlink_tests::{nft_available, reader};
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

/// Lists of up to 8 endpoints, of every kind but affinity and hash tables.
#[test]
fn a_table_of_small_lists_has_few_chains_and_rules() {
    let mut lab = lab();
    let eight: Vec<_> = (1..9).map(|n| format!("10.244.9.{n}")).collect();
    let small = Service::new("small", "10.96.0.12").node_port(80, 30_082);
    let eight = Slice::new("small").endpoints(&eight.join(" "));
    lab.apply(&[&web(), &slice("a c"), &small, &eight]);
    let table = lab.world.node().read_table(reader::Family::Ip).unwrap();
    assert!(table.chains.len() <= 25, "{:?}", table.chains.keys());
    // Each rule that looks up an endpoint draws its slot.
    let rules = table.chains.values().flat_map(|chain| &chain.rules);
    let draws = rules.filter(|rule| rule.expressions.iter().any(|name| name == "numgen"));
    assert!((9..=10).contains(&draws.count()));
    if nft_available() {
        let lines = lab.world.node().nft("-t list table ip kube-proxy").lines().count();
        assert!(lines <= 300, "{lines} lines");
    }
}

/// The names of the chains that lists of another size or kind need, in the IPv4 table.
fn of_lists(lab: &Lab) -> Vec<String> {
    let table = lab.world.node().read_table(reader::Family::Ip).unwrap();
    let mut names: Vec<_> = table.chains.into_keys().collect();
    let prefixes = ["draw-", "pick-", "hash-", "affinity"];
    names.retain(|name| name != "pick-other" && prefixes.iter().any(|it| name.starts_with(it)));
    names.sort();
    names
}

#[test]
fn chains_of_a_size_class_come_with_its_first_list_and_go_with_the_next_start() {
    let mut lab = lab();
    lab.apply(&[&web(), &slice("a c")]);
    assert_eq!(of_lists(&lab), [""; 0]);
    let many = |count: u8| {
        let others: Vec<_> = (1..count - 1).map(|n| format!("10.244.9.{n}")).collect();
        slice(&format!("a c {}", others.join(" ")))
    };
    let sent = lab.apply(&[&many(9)]);
    assert_eq!(of_lists(&lab), ["draw-16", "draw-4-times-16", "draw-8", "pick-16"]);
    // The rules and the first route of the class are in one commit.
    let chains = places(&sent, ["add chain ip ", "pick-16"]);
    let routes = places(&sent, ["add element ip ", " services "]);
    assert!(chains.len() == 1 && routes.contains(&chains[0]), "{}", sent.script());
    lab.apply(&[&many(40)]);
    let of_16_and_64 = ["draw-16", "draw-32", "draw-4-times-16", "draw-4-times-64", "draw-64"];
    assert_eq!(of_lists(&lab)[..5], of_16_and_64);
    lab.proxy.resync();
    let of_64 = ["draw-32", "draw-4-times-64", "draw-64", "pick-64"];
    assert_eq!(of_lists(&lab), of_64);
    // A start that finds the chains in use changes nothing.
    assert_eq!(lab.proxy.resync().transactions.len(), 0);
    lab.apply(&[&slice("a c")]);
    lab.check(&[("pod", WEB, keeps_source("a c"))]);
    lab.proxy.resync();
    assert_eq!(of_lists(&lab), [""; 0]);
}

#[test]
fn chains_of_hash_tables_and_affinity_exist_while_a_service_uses_them() {
    let mut lab = lab();
    lab.apply(&[&web().annotation("deltaproxy.io/scheduler", "mh"), &slice("a c")]);
    assert_eq!(of_lists(&lab), ["hash-address-251"]);
    let sticky = web().spec("sessionAffinity", json!("ClientIP"));
    lab.apply(&[&sticky]);
    let chains = of_lists(&lab);
    assert!(chains.contains(&"affinity-10800s".into()), "{chains:?}");
    lab.apply(&[&web()]);
    lab.proxy.resync();
    assert_eq!(of_lists(&lab), [""; 0]);
    lab.check(&[("pod", WEB, keeps_source("a c"))]);
}
