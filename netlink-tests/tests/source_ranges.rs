//! Sources that may use a load balancer address: `loadBalancerSourceRanges`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // It compares durations.

use std::time::Instant;

use Expect::{Refused, Silent};
use netlink_tests::Net;
use netlink_tests::scenario::{
    EXTERNAL, Expect, Family, Lab, NODE_PORT, Node, Object, Proxy, Scope, Sent, Service,
    ServiceCidr, Slice, VIP, WEB, keeps_source, masquerades, routing, slice,
};
use nft::Operation;
use serde_json::json;

const OUTSIDE: [&str; 2] = ["192.0.2.0/24", "fd00:192:0:2::/64"];
const PODS: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/48"];
const NODE: [&str; 2] = ["192.168.50.2/32", "fd00:192:168:50::2/128"];
const NOBODY: [&str; 2] = ["203.0.113.0/24", "fd00:203::/32"];

/// A service with every kind of address.
fn open() -> Service {
    Service::new("web", "10.96.0.10")
        .node_port(80, 30080)
        .external_ip("198.51.100.1")
        .load_balancer_ip("198.51.100.2")
}

/// The same, with ranges.
fn restricted(ranges: &[&str]) -> Service {
    open().spec("loadBalancerSourceRanges", json!(ranges))
}

#[test]
fn sources_that_are_not_listed_hear_nothing_wherever_they_are() {
    let mut lab = Lab::new();
    lab.apply(&[&restricted(&OUTSIDE), &slice("a c")]);
    lab.check(&[
        ("outside", VIP, masquerades("a c")),
        ("pod", VIP, Silent),
        ("d", VIP, Silent),
        ("node", VIP, Silent),
    ]);
    lab.apply(&[&restricted(&PODS)]);
    lab.check(&[
        ("outside", VIP, Silent),
        ("pod", VIP, masquerades("a c")),
        ("d", VIP, masquerades("a c")),
        ("node", VIP, Silent),
    ]);
    lab.apply(&[&restricted(&NODE)]);
    lab.check(&[("outside", VIP, Silent), ("pod", VIP, Silent), ("node", VIP, masquerades("a c"))]);
}

/// Also where pods and the node are spared the policy.
#[test]
fn ranges_come_before_external_policy_local() {
    let mut lab = Lab::new();
    lab.apply(&[&restricted(&OUTSIDE).external_local(), &slice("a c")]);
    lab.check(&[("outside", VIP, keeps_source("a")), ("pod", VIP, Silent), ("node", VIP, Silent)]);
    lab.apply(&[&restricted(&PODS).external_local()]);
    lab.check(&[("outside", VIP, Silent), ("pod", VIP, keeps_source("a c"))]);
}

/// A node that has the load balancer's address itself sends with it to it.
#[test]
fn a_range_with_the_nodes_address_lets_the_load_balancers_address_in() {
    let mut lab = Lab::with_node_addresses(routing(), &["198.51.100.2", "fd00:198:51:100::2"]);
    lab.apply(&[&restricted(&NODE), &slice("a c")]);
    lab.check(&[("node", VIP, masquerades("a c")), ("outside", VIP, Silent)]);
    lab.apply(&[&restricted(&OUTSIDE)]);
    lab.check(&[("node", VIP, Silent), ("outside", VIP, masquerades("a c"))]);
}

#[test]
fn a_range_of_all_addresses_among_others_restricts_no_source() {
    let mut lab = Lab::new();
    let everything = ["0.0.0.0/0", "::/0"];
    lab.apply(&[&restricted(&[everything, NOBODY].concat()), &slice("a c")]);
    for client in ["pod", "node", "outside"] {
        lab.check(&[(client, VIP, masquerades("a c"))]);
    }
}

#[test]
fn ranges_may_have_spaces_repeat_overlap_and_hold_the_address_itself() {
    let mut lab = Lab::new();
    let ranges = [
        "  192.0.2.0/24 ",
        "192.0.2.0/24",
        "192.0.0.0/16",
        "192.0.2.10/32",
        "198.51.100.0/24",
        "\tfd00:192:0:2::/64",
        "fd00:192:0:2::/64",
        "fd00:192::/32",
        "fd00:198:51:100::/64",
    ];
    let sent = lab.apply(&[&restricted(&ranges), &slice("a c")]);
    assert_eq!(sent.problems, [""; 0]);
    lab.check(&[("outside", VIP, masquerades("a c")), ("pod", VIP, Silent)]);
}

#[test]
fn ranges_of_one_family_leave_the_other_open() {
    for (family, range) in [(Family::Ipv4, NOBODY[0]), (Family::Ipv6, NOBODY[1])] {
        let (own, other) = match family {
            Family::Ipv4 => (Scope::IPV4, Scope::IPV6),
            Family::Ipv6 => (Scope::IPV6, Scope::IPV4),
        };
        let mut lab = Lab::new();
        lab.apply(&[&restricted(&[range]), &slice("a c")]);
        for client in ["pod", "node", "outside"] {
            lab.check_in(own, &[(client, VIP, Silent)]);
            lab.check_in(other, &[(client, VIP, masquerades("a c"))]);
        }
    }
}

#[test]
fn other_addresses_of_the_service_are_not_restricted() {
    let mut lab = Lab::new();
    lab.apply(&[&restricted(&NOBODY), &slice("a c")]);
    lab.check(&[("pod", WEB, keeps_source("a c")), ("outside", WEB, masquerades("a c"))]);
    for client in ["pod", "node", "outside"] {
        lab.check(&[
            (client, VIP, Silent),
            (client, NODE_PORT, masquerades("a c")),
            (client, EXTERNAL, masquerades("a c")),
        ]);
    }
}

#[test]
fn an_established_connection_survives_the_exclusion_of_its_source() {
    let mut lab = Lab::new();
    lab.apply(&[&restricted(&OUTSIDE), &slice("a")]);
    let mut connections = Vec::new();
    let mut flows = Vec::new();
    for to in [VIP, "[fd00:198:51:100::2]:80"] {
        connections.push(lab.world.host("outside").open_tcp(to).unwrap());
        flows.push(lab.world.host("outside").open_udp(to));
    }
    for flow in &mut flows {
        assert_eq!(flow.ask().server(), "a");
    }
    lab.apply(&[&restricted(&NOBODY)]);
    lab.check(&[("outside", VIP, Silent)]);
    for connection in &mut connections {
        assert_eq!(connection.ask().server(), "a");
    }
    for flow in &mut flows {
        assert_eq!(flow.ask().server(), "a");
    }
}

#[test]
fn without_endpoints_listed_sources_are_refused_and_others_hear_nothing() {
    let mut lab = Lab::new();
    for service in [restricted(&OUTSIDE), restricted(&OUTSIDE).external_local()] {
        lab.apply(&[&service]);
        lab.check(&[("outside", VIP, Refused), ("pod", VIP, Silent), ("node", VIP, Silent)]);
    }
}

#[test]
fn ranges_that_come_change_and_go_count_at_once() {
    let mut lab = Lab::new();
    lab.apply(&[&slice("a c")]);
    for _ in 0..2 {
        lab.apply(&[&open()]);
        lab.check(&[("outside", VIP, masquerades("a c"))]);
        lab.apply(&[&restricted(&NOBODY)]);
        lab.check(&[("outside", VIP, Silent), ("pod", VIP, Silent)]);
        lab.apply(&[&restricted(&[OUTSIDE, NOBODY].concat())]);
        lab.check(&[("outside", VIP, masquerades("a c")), ("pod", VIP, Silent)]);
    }
}

#[test]
fn each_service_has_its_own_ranges() {
    let mut lab = Lab::new();
    let shop = Service::new("shop", "10.96.0.11").port(80).load_balancer_ip("198.51.100.3");
    let shop = shop.spec("loadBalancerSourceRanges", json!(PODS));
    let endpoints = [slice("a c"), Slice::new("shop").endpoints("b")];
    lab.apply(&[&restricted(&OUTSIDE), &shop, &endpoints[0], &endpoints[1]]);
    let other = "198.51.100.3:80";
    lab.check(&[
        ("outside", VIP, masquerades("a c")),
        ("outside", other, Silent),
        ("pod", VIP, Silent),
        ("pod", other, masquerades("b")),
    ]);
}

/// Whether one of the operations changes a set of ranges, which the kernel copies whole for it.
fn touches_ranges(sent: &Sent) -> bool {
    let operations = sent.transactions.iter().flat_map(|it| &it.operations);
    operations.map(Operation::to_string).any(|operation| operation.contains("source-ranges"))
}

#[test]
fn thousands_of_ranges_are_not_sent_again_with_other_changes() {
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let cidrs = ServiceCidr::new("kubernetes", &["10.96.0.0/16", "fd00:10:96::/48"]);
    let ranges: Vec<_> = (0..5000).map(|i| format!("100.{}.{}.0/25", i / 250, i % 250)).collect();
    let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
    let plain = Service::new("plain", "10.96.0.11").port(80);
    let sent = proxy.apply(&[&Node::new(), &cidrs, &restricted(&ranges), &slice("a"), &plain]);
    assert_eq!(sent.problems, [""; 0]);
    assert!(touches_ranges(&sent));
    let plain_slice = |endpoints| Slice::new("plain").endpoints(endpoints);
    for sent in [
        proxy.apply(&[&plain_slice("a")]),
        proxy.apply(&[&plain_slice("a b c")]),
        proxy.apply(&[&plain.clone().node_port(81, 30081)]),
        proxy.remove(&[&plain]),
        // The restricted service itself.
        proxy.apply(&[&slice("a b")]),
        proxy.apply(&[&restricted(&ranges).external_local()]),
        proxy.apply(&[&slice("")]),
    ] {
        assert!(!sent.transactions.is_empty());
        assert!(!touches_ranges(&sent), "{}", sent.script());
    }
}

#[test]
fn a_range_more_is_one_element() {
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let _ = proxy.apply(&[&Node::new(), &restricted(&["10.0.0.0/8"]), &slice("a")]);
    let sent = proxy.apply(&[&restricted(&["10.0.0.0/8", "172.16.0.0/12"])]);
    assert!(touches_ranges(&sent));
    assert!(!sent.script().contains("10.0.0.0"), "{}", sent.script());
}

/// A service with a load balancer address that 1,000 networks may use.
fn with_many_ranges(number: u8) -> Service {
    let ranges: Vec<_> = (0..1_000).map(|n| format!("10.{}.{}.0/24", n / 250, n % 250)).collect();
    Service::new(&format!("many-{number}"), &format!("10.96.1.{number}"))
        .port(80)
        .load_balancer_ip(&format!("203.0.113.{number}"))
        .spec("loadBalancerSourceRanges", json!(ranges))
}

#[test]
fn the_removal_of_ranges_takes_about_as_long_as_they_took() {
    let net = Net::new();
    let mut proxy = Proxy::start(net.node(), routing());
    let _ = proxy.apply(&[&Node::new()]);
    let services: Vec<_> = (1..=5).map(with_many_ranges).collect();
    let services: Vec<_> = services.iter().map(|it| it as &dyn Object).collect();
    let start = Instant::now();
    assert!(touches_ranges(&proxy.apply(&services)));
    let added = start.elapsed();
    let start = Instant::now();
    assert!(touches_ranges(&proxy.remove(&services)));
    let removed = start.elapsed();
    // An interval set took fifty times as long.
    assert!(removed < added * 10, "added in {added:?}, removed in {removed:?}");
}

#[test]
fn a_source_is_found_by_the_length_of_its_range_among_many() {
    let mut lab = Lab::new();
    let others = ["203.0.113.0/25", "203.0.114.0/26", "203.0.115.0/27", "203.0.116.0/28"];
    let longer = ["203.0.117.0/29", "203.0.118.0/30", "203.0.119.0/31", "2001:db8::/29"];
    // Of a length that is no multiple of 4.
    let own = ["192.0.2.0/23", "fd00:192:0:2::/63"];
    lab.apply(&[&restricted(&[&others[..], &longer, &own].concat()), &slice("a c")]);
    lab.check(&[("outside", VIP, masquerades("a c")), ("pod", VIP, Silent)]);
}

#[test]
fn a_network_admits_itself_alone_whatever_lengths_others_use() {
    let mut lab = Lab::new();
    // The first bits of the client's address are those of these networks, and their others are 0.
    let near = ["192.0.0.0/24", "fd00:192::/64"];
    let wide = Service::new("wide", "10.96.0.77")
        .port(80)
        .load_balancer_ip("198.51.100.77")
        .spec("loadBalancerSourceRanges", json!(["192.0.0.0/16", "fd00:192::/32"]));
    lab.apply(&[&restricted(&near), &wide, &slice("a c")]);
    lab.check(&[("outside", VIP, Silent), ("pod", VIP, Silent)]);
}
