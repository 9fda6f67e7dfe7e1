//! Traffic policies, masquerade, hairpin, and which endpoints are used.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use Expect::{Refused, Silent};
use engine::routing::{LocalDetection, Routing};
use netlink_tests::nft_available;
use netlink_tests::scenario::{
    EXTERNAL, EXTERNAL_WAYS, Endpoint, Expect, Family, Lab, NODE_PORT, Node, Object, Protocol,
    Scope, Service, Slice, VIP, WEB, assert_even, keeps_source, masquerades, routing, slice,
    web_everywhere as web,
};

/// `ready`, `serving` and `terminating` of an endpoint.
fn endpoint(host: &str, [ready, serving, terminating]: [bool; 3]) -> Endpoint {
    Endpoint::new(host).conditions(ready, serving, terminating)
}

const READY: [bool; 3] = [true, true, false];
const UNREADY: [bool; 3] = [false, false, false];
const SERVING_UNREADY: [bool; 3] = [false, true, false];
const SERVING_TERMINATING: [bool; 3] = [false, true, true];
const TERMINATING: [bool; 3] = [false, false, true];

// Traffic policies.

/// The short circuit for pods and the node.
#[test]
fn external_policy_local_keeps_the_clients_address_and_uses_local_endpoints() {
    let mut lab = Lab::new();
    lab.apply(&[&web().external_local(), &slice("a c")]);
    for to in EXTERNAL_WAYS {
        lab.check(&[
            ("outside", to, keeps_source("a")),
            ("pod", to, keeps_source("a c")),
            ("d", to, keeps_source("a c")),
            ("node", to, masquerades("a c")),
        ]);
    }
    lab.check(&[("pod", WEB, keeps_source("a c")), ("outside", WEB, masquerades("a c"))]);
}

#[test]
fn external_policy_local_without_local_endpoint_is_silent_for_outside_only() {
    let mut lab = Lab::new();
    lab.apply(&[&web().external_local(), &slice("c")]);
    for to in EXTERNAL_WAYS {
        lab.check(&[
            ("outside", to, Silent),
            ("pod", to, keeps_source("c")),
            ("node", to, masquerades("c")),
        ]);
    }
}

#[test]
fn external_policy_local_without_any_endpoint_refuses() {
    let mut lab = Lab::new();
    lab.apply(&[&web().external_local(), &slice("")]);
    for to in EXTERNAL_WAYS {
        lab.check(&[("outside", to, Refused), ("pod", to, Refused), ("node", to, Refused)]);
    }
}

#[test]
fn internal_policy_local_uses_local_endpoints_and_concerns_the_cluster_ip_only() {
    let mut lab = Lab::new();
    lab.apply(&[&web().internal_local(), &slice("a c")]);
    lab.check(&[
        ("pod", WEB, keeps_source("a")),
        ("node", WEB, masquerades("a")),
        ("outside", WEB, masquerades("a")),
        ("pod", NODE_PORT, masquerades("a c")),
        ("outside", EXTERNAL, masquerades("a c")),
    ]);
    lab.apply(&[&slice("c")]);
    lab.check(&[
        ("pod", WEB, Silent),
        ("node", WEB, Silent),
        ("outside", WEB, Silent),
        ("pod", NODE_PORT, masquerades("c")),
        ("outside", EXTERNAL, masquerades("c")),
    ]);
    lab.remove(&[&slice("")]);
    lab.check(&[("pod", WEB, Refused), ("node", WEB, Refused), ("outside", WEB, Refused)]);
}

#[test]
fn both_policies_local_together() {
    let mut lab = Lab::new();
    lab.apply(&[&web().internal_local().external_local(), &slice("a c")]);
    lab.check(&[
        ("pod", WEB, keeps_source("a")),
        ("outside", VIP, keeps_source("a")),
        ("pod", VIP, keeps_source("a c")),
        ("node", VIP, masquerades("a c")),
    ]);
}

#[test]
fn a_policy_that_changes_counts_at_once() {
    let mut lab = Lab::new();
    lab.apply(&[&slice("a c")]);
    for _ in 0..2 {
        lab.apply(&[&web()]);
        lab.check(&[
            ("outside", VIP, masquerades("a c")),
            ("outside", NODE_PORT, masquerades("a c")),
        ]);
        lab.apply(&[&web().external_local()]);
        lab.check(&[
            ("outside", VIP, keeps_source("a")),
            ("outside", NODE_PORT, keeps_source("a")),
        ]);
    }
}

// Masquerade.

#[test]
fn masquerade_all_concerns_cluster_ips_and_not_external_policy_local() {
    let mut lab = Lab::with(Routing { masquerade_all: true, ..routing() });
    lab.apply(&[&web().external_local(), &slice("a c")]);
    lab.check(&[
        ("pod", WEB, masquerades("a c")),
        ("node", WEB, masquerades("a c")),
        ("outside", WEB, masquerades("a c")),
    ]);
    for to in EXTERNAL_WAYS {
        lab.check(&[
            ("outside", to, keeps_source("a")),
            ("pod", to, keeps_source("a c")),
            ("node", to, masquerades("a c")),
        ]);
    }
}

#[test]
fn without_cluster_cidr_cluster_ips_are_not_masqueraded_and_pods_count_as_outside() {
    let mut lab = Lab::with(Routing { local_detection: LocalDetection::default(), ..routing() });
    lab.apply(&[&web(), &slice("a c")]);
    lab.check(&[
        ("pod", WEB, keeps_source("a c")),
        ("node", WEB, keeps_source("a c")),
        ("pod", VIP, masquerades("a c")),
        ("outside", NODE_PORT, masquerades("a c")),
    ]);
    lab.apply(&[&web().external_local()]);
    lab.check(&[
        ("pod", VIP, keeps_source("a")),
        ("outside", NODE_PORT, keeps_source("a")),
        ("node", VIP, masquerades("a c")),
    ]);
    // An answer from elsewhere would not come back through the node.
    lab.apply(&[&slice("a")]);
    lab.check(&[("outside", WEB, keeps_source("a"))]);
}

#[test]
fn a_pod_reaches_itself_through_every_address_and_sees_the_node() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    for to in [WEB, NODE_PORT, EXTERNAL, VIP] {
        lab.check(&[("a", to, masquerades("a"))]);
    }
    lab.apply(&[&web().external_local()]);
    for to in EXTERNAL_WAYS {
        lab.check(&[("a", to, masquerades("a"))]);
    }
}

#[test]
fn hairpin_needs_no_cluster_cidr() {
    let mut lab = Lab::with(Routing { local_detection: LocalDetection::default(), ..routing() });
    lab.apply(&[&web(), &slice("a")]);
    lab.check(&[("a", WEB, masquerades("a")), ("b", WEB, keeps_source("a"))]);
}

#[test]
fn a_pod_that_connects_to_itself_directly_is_not_masqueraded() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a")]);
    lab.check(&[("a", "10.244.1.5:8080", keeps_source("a"))]);
}

/// Marks of other programs stay; ours is cleared before the packet leaves.
#[test]
fn the_masquerade_bit_can_be_any_bit() {
    for masquerade_bit in [0, 31] {
        let mut lab = Lab::with(Routing { masquerade_bit, ..routing() });
        lab.apply(&[&web(), &slice("a")]);
        lab.check(&[("outside", WEB, masquerades("a")), ("pod", WEB, keeps_source("a"))]);
    }
}

// Which endpoints are used.

#[test]
fn only_ready_endpoints_are_used_while_there_is_one() {
    let mut lab = Lab::new();
    let slice = Slice::new("web")
        .endpoint(endpoint("a", READY))
        .endpoint(endpoint("b", UNREADY))
        .endpoint(endpoint("c", SERVING_TERMINATING))
        .endpoint(endpoint("d", SERVING_UNREADY));
    lab.apply(&[&web(), &slice]);
    lab.check(&[("pod", WEB, keeps_source("a")), ("outside", VIP, masquerades("a"))]);
}

#[test]
fn serving_endpoints_that_terminate_are_used_until_one_is_ready() {
    let mut lab = Lab::new();
    let with = |d| {
        let slice = Slice::new("web").endpoint(endpoint("a", SERVING_TERMINATING));
        slice.endpoint(endpoint("c", SERVING_TERMINATING)).endpoint(endpoint("d", d))
    };
    lab.apply(&[&web(), &with(UNREADY)]);
    lab.check(&[("pod", WEB, keeps_source("a c")), ("outside", VIP, masquerades("a c"))]);
    lab.apply(&[&with(READY)]);
    lab.check(&[("pod", WEB, keeps_source("d")), ("outside", VIP, masquerades("d"))]);
}

#[test]
fn a_local_endpoint_that_terminates_serves_external_policy_local() {
    let mut lab = Lab::new();
    let slice = Slice::new("web").endpoint(endpoint("a", SERVING_TERMINATING)).endpoints("c");
    lab.apply(&[&web().external_local(), &slice]);
    lab.check(&[("outside", VIP, keeps_source("a")), ("pod", VIP, keeps_source("c"))]);
}

#[test]
fn endpoints_that_do_not_serve_or_are_not_ready_are_never_used() {
    let mut lab = Lab::new();
    for conditions in [TERMINATING, UNREADY, SERVING_UNREADY] {
        let slice = Slice::new("web").endpoint(endpoint("a", conditions));
        lab.apply(&[&web(), &slice]);
        lab.check(&[
            ("pod", WEB, Refused),
            ("outside", VIP, Refused),
            ("node", NODE_PORT, Refused),
        ]);
    }
}

#[test]
fn of_one_address_twice_the_live_entry_counts() {
    let [live, dead] = [READY, SERVING_TERMINATING].map(|it| endpoint("a", it));
    for [first, second] in [[&live, &dead], [&dead, &live]] {
        let mut lab = Lab::new();
        let one = Slice::new("web").endpoint(first.clone()).endpoint(second.clone());
        lab.apply(&[&web(), &one]);
        lab.check(&[("pod", WEB, keeps_source("a"))]);
        let two = Slice::new("web").suffix("2").endpoint(second.clone());
        lab.apply(&[&Slice::new("web").endpoint(first.clone()), &two]);
        lab.check(&[("pod", WEB, keeps_source("a"))]);
    }
}

#[test]
fn slices_of_one_service_with_different_target_ports_add_up() {
    let mut lab = Lab::new();
    lab.world.serve("a", "a-9090", 9090);
    let second = Slice::new("web").suffix("2").target(80, 9090).endpoints("a");
    let third = Slice::new("web").suffix("3").endpoints("a c");
    lab.apply(&[&web(), &slice("a b"), &second, &third]);
    lab.check(&[("pod", WEB, keeps_source("a a-9090 b c"))]);
    let shares = lab.world.shares("pod", WEB, (Family::Ipv4, Protocol::Udp), 1000);
    assert_even(&shares, 4);
}

#[test]
fn an_endpoint_without_node_name_is_not_local() {
    let mut lab = Lab::new();
    let slice = Slice::new("web").endpoint(Endpoint::new("a").missing_node());
    lab.apply(&[&web().external_local(), &slice]);
    lab.check(&[("outside", VIP, Silent), ("pod", VIP, keeps_source("a"))]);
}

// Topology.

fn zoned(zones: [&str; 4]) -> Slice {
    let hosts = ["a", "b", "c", "d"].into_iter().zip(zones);
    hosts.fold(Slice::new("web"), |slice, (host, zone)| match zone {
        "" => slice.endpoint(Endpoint::new(host)),
        zone => slice.endpoint(Endpoint::new(host).zone(zone)),
    })
}

#[test]
fn hints_for_this_zone_are_obeyed_except_by_external_policy_local() {
    let mut lab = Lab::new();
    let slice = zoned(["z2", "z2", "z1", "z1"]);
    lab.apply(&[&Node::new().zone("z1"), &web().external_local(), &slice]);
    lab.check(&[("pod", WEB, keeps_source("c d")), ("outside", VIP, keeps_source("a b"))]);
    let all_elsewhere = zoned(["z2", "z2", "z2", "z2"]);
    lab.apply(&[&all_elsewhere]);
    lab.check(&[("pod", WEB, keeps_source("a b c d"))]);
}

#[test]
fn one_endpoint_without_hint_makes_hints_void() {
    let mut lab = Lab::new();
    lab.apply(&[&Node::new().zone("z1"), &web(), &zoned(["z1", "z2", "z2", ""])]);
    lab.check(&[("pod", WEB, keeps_source("a b c d"))]);
}

#[test]
fn node_hints_come_before_zone_hints() {
    let mut lab = Lab::new();
    let slice = |node: &str| {
        let hinted = |host, zone| Endpoint::new(host).zone(zone).for_node("other");
        Slice::new("web")
            .endpoint(Endpoint::new("a").zone("z2").for_node(node))
            .endpoint(hinted("b", "z1"))
            .endpoint(hinted("c", "z2"))
    };
    lab.apply(&[&Node::new().zone("z1"), &web(), &slice("node-a")]);
    lab.check(&[("pod", WEB, keeps_source("a"))]);
    lab.apply(&[&slice("other")]);
    lab.check(&[("pod", WEB, keeps_source("b"))]);
}

#[test]
fn a_zone_that_changes_at_run_time_moves_traffic_at_once() {
    let mut lab = Lab::new();
    lab.apply(&[&web(), &zoned(["z1", "z1", "z2", "z2"])]);
    lab.check(&[("pod", WEB, keeps_source("a b c d"))]);
    for (zone, servers) in [("z1", "a b"), ("z2", "c d"), ("z3", "a b c d")] {
        lab.apply(&[&Node::new().zone(zone)]);
        lab.check(&[("pod", WEB, keeps_source(servers))]);
    }
}

// Even choice.

/// One host with `count` servers, each an endpoint, and the shares that they get.
fn check_even(count: u16) {
    let mut lab = Lab::new();
    let mut slices = Vec::new();
    for port in 9001..=9000 + count {
        lab.world.serve("c", &port.to_string(), port);
        slices.push(Slice::new("web").suffix(&port.to_string()).target(80, port).endpoints("c"));
    }
    let service = web();
    let mut objects: Vec<&dyn Object> = vec![&service];
    objects.extend(slices.iter().map(|slice| slice as &dyn Object));
    lab.apply(&objects);
    let servers = usize::from(count);
    for (protocol, flows) in [(Protocol::Udp, 200), (Protocol::Tcp, 50)] {
        for family in Family::ALL {
            for (client, to) in [("pod", WEB), ("outside", NODE_PORT)] {
                let shares = lab.world.shares(client, to, (family, protocol), flows * servers / 2);
                assert_even(&shares, servers);
            }
        }
    }
}

#[test]
fn two_and_three_endpoints_get_even_shares() {
    check_even(2);
    check_even(3);
}

#[test]
fn five_and_seven_endpoints_get_even_shares() {
    check_even(5);
    check_even(7);
}

#[test]
fn nine_and_thirteen_endpoints_get_even_shares() {
    check_even(9);
    check_even(13);
}

#[test]
fn seventeen_endpoints_get_even_shares() {
    check_even(17);
}

#[test]
fn local_endpoints_get_even_shares() {
    let mut lab = Lab::new();
    lab.apply(&[&web().external_local(), &slice("a b pod c d")]);
    lab.world.serve("pod", "pod", 8080);
    for to in [VIP, NODE_PORT] {
        let shares = lab.world.shares("outside", to, (Family::Ipv4, Protocol::Udp), 900);
        assert_even(&shares, 3);
    }
    lab.check_in(Scope::TCP, &[("outside", VIP, keeps_source("a b pod"))]);
}

// Packets of others.

/// The mark of wg-quick(8), 0xca6c, has the bit of masquerade.
const MARKS: &str = "table inet marks {
    counter kept { }
    counter translated { }
    chain prerouting { type filter hook prerouting priority mangle; th dport 8080 meta mark set 51820; }
    chain output { type route hook output priority mangle; th dport 8080 meta mark set 51820; }
    chain postrouting {
        type filter hook postrouting priority 110
        meta mark 51820 counter name kept
        ct status snat ct state new meta mark 51820 counter name translated
    }
}";

/// wg-quick(8) marks what it sends, and routing decides by the mark.
#[test]
fn packets_with_the_mark_of_wireguard_keep_their_source_and_mark() {
    if !nft_available() {
        return;
    }
    let mut lab = Lab::new();
    lab.apply(&[&web(), &slice("a c")]);
    let node = lab.world.node().clone();
    node.nft_script(MARKS);
    lab.check(&[
        ("pod", "10.244.2.7:8080", keeps_source("c")),
        ("outside", "10.244.1.5:8080", keeps_source("a")),
    ]);
    let packets = |counter| node.nft(&format!("list counter inet marks {counter}"));
    assert!(!packets("kept").contains("packets 0"), "{}", packets("kept"));
    node.nft("reset counters");
    lab.check(&[("node", "10.244.2.7:8080", keeps_source("c"))]);
    assert!(!packets("kept").contains("packets 0"), "{}", packets("kept"));
    assert!(packets("translated").contains("packets 0"), "{}", packets("translated"));
    lab.check(&[
        ("outside", NODE_PORT, masquerades("a c")),
        ("node", WEB, masquerades("a c")),
        ("pod", WEB, keeps_source("a c")),
    ]);
}

/// The kernel sets no status for a translation to the same address and port.
#[test]
fn a_service_at_the_address_and_port_of_its_endpoint_is_served_without_masquerade() {
    let mut lab = Lab::new();
    lab.world.serve("node", "own", 8080);
    let own = Service::new("own", "10.96.0.11").port(8080).external_ip("192.168.50.2");
    let pod = Service::new("pod", "10.96.0.12").port(8080).external_ip("10.244.2.7");
    let at = |name: &str, host| Slice::new(name).target(8080, 8080).endpoints(host);
    lab.apply(&[&own, &at("own", "node"), &pod, &at("pod", "c")]);
    for client in ["outside", "pod", "node"] {
        lab.check(&[
            (client, "192.168.50.2:8080", keeps_source("own")),
            (client, "10.244.2.7:8080", keeps_source("c")),
        ]);
    }
    lab.check(&[("outside", "10.96.0.12:8080", masquerades("c"))]);
}
