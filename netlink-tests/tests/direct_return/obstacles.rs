//! What keeps nodes from handing packets of a service to each other, and where it is named.

use std::net::IpAddr;

use engine::direct::node_number;
use engine::direct::ruleset::DirectElement;
use netlink_tests::cluster::{Cluster, SOON, endpoint, slice, web};
use netlink_tests::eventually;
use netlink_tests::scenario::{Family, Node, Protocol};

use crate::cluster;

/// Waits until the problems of a node hold this text.
#[track_caller]
pub(crate) fn wait_for_problem(cluster: &Cluster, place: usize, text: &str) {
    eventually(text, SOON, || {
        let problems = cluster.command(place, &["problems"]).stdout;
        problems.contains(text).then_some(())
    });
}

#[test]
fn a_service_with_an_endpoint_on_a_node_behind_a_router_is_translated_with_a_problem() {
    let mut cluster = cluster();
    let far = Node::named("node-d").addresses(&["203.0.113.99".parse().unwrap()]).ready(true);
    cluster.apply("node-d", &far);
    let servers = slice("a1 b1").endpoint(endpoint("c1").on_node("node-d"));
    cluster.apply("slice", &servers);
    wait_for_problem(&cluster, 0, "node-not-on-link: Node node-d is not on a link of this node");
    cluster.daemon(0).wait_for_line("node-not-on-link", SOON);
    cluster.wait_for_slots(0, "a");
    // The entry serves it alone, and masquerades what goes to other nodes.
    let seen = (0..100).map(|_| cluster.ask(Protocol::Tcp, Family::Ipv4));
    let at_others: Vec<_> = seen.filter(|seen| seen.place() != 0).collect();
    assert!(!at_others.is_empty());
    assert!(at_others.iter().all(|seen| seen.source.ip() == cluster.node(0).ip()), "{at_others:?}");

    cluster.apply("slice", &slice("a1 b1 c1"));
    cluster.wait_for_slots(0, "abc");
    let problems = cluster.command(0, &["problems"]);
    assert_eq!(problems.code(), Some(0), "{problems:?}");
}

#[test]
fn an_endpoint_without_a_node_name_makes_its_service_translated() {
    let cluster = cluster();
    cluster.apply("slice", &slice("a1 b1").endpoint(endpoint("c1").missing_node()));
    wait_for_problem(&cluster, 0, "node-name-unknown: an endpoint has no nodeName");
    cluster.apply("web", &web());
    cluster.apply("slice", &slice("a1 b1 c1"));
    cluster.wait_for_slots(0, "abc");
}

/// A kubelet writes the addresses of its Node.
#[test]
fn an_address_that_another_node_claims_is_handed_no_packets() {
    let mut cluster = cluster();
    let address = IpAddr::from(cluster.node(1).ip());
    cluster.apply("node-e", &Node::named("node-e").addresses(&[address]).ready(true));
    for (node, other) in [("node-b", "node-e"), ("node-e", "node-b")] {
        wait_for_problem(&cluster, 0, &format!("Node {node}: status.addresses (conflict"));
        let line =
            format!("Node {node}: status.addresses: {address} is also an address of {other}");
        cluster.daemon(0).wait_for_line(&line, SOON);
    }
    wait_for_problem(&cluster, 0, "IPv4 packets are translated: node-address-unknown: Node node-b");
    let number = node_number("node-b");
    let of_node = |it: &DirectElement| matches!(it, DirectElement::NodeAddress(node, at) if *node == number && *at == address);
    eventually("no way to the address", SOON, || {
        (!cluster.elements(0).iter().any(of_node)).then_some(())
    });
    cluster.remove("node-e");
    cluster.wait_for_slots(0, "abc");
    let problems = cluster.command(0, &["problems"]);
    assert_eq!(problems.code(), Some(0), "{problems:?}");
}
