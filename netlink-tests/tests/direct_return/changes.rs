//! Endpoints, weights and nodes change; connections to other nodes go on.

use netlink_tests::cluster::{Cluster, SOON, endpoint, node, place_of, slice};
use netlink_tests::scenario::{Family, Protocol};
use netlink_tests::{Answer, Connection, Switched, eventually};

use crate::ways::{assert_all_go_on, lost};
use crate::{cluster, with_web};

/// Connections of both families to `web`.
fn open(cluster: &Cluster) -> Vec<Connection> {
    Family::ALL.into_iter().flat_map(|family| cluster.open(20, family)).collect()
}

#[test]
fn no_connection_is_lost_when_endpoints_come_and_weights_change() {
    let cluster = cluster();
    let mut connections = open(&cluster);
    cluster.replace_endpoints("a1 a2 b1 b2 c1 c2");
    assert_all_go_on(&mut connections);
    let gone = connections.extract_if(.., |it| place_of(it.first().server()) == 2).count();
    assert!(gone > 0);
    cluster.replace_endpoints("a1 b1 b2");
    assert_all_go_on(&mut connections);
    cluster.replace_endpoints("a1 b1 b2 c1 c2");
    assert_all_go_on(&mut connections);
}

#[test]
fn a_drained_endpoint_keeps_its_connections_and_gets_no_new_one() {
    let cluster = cluster();
    let mut connections = open(&cluster);
    assert!(connections.iter().any(|it| it.first().server() == "c1"));
    let draining = slice("a1 b1 b2").endpoint(endpoint("c1").conditions(false, true, true));
    cluster.apply("slice", &draining);
    cluster.wait_for_slots_everywhere("ab");
    assert_all_go_on(&mut connections);
    for _ in 0..30 {
        assert_ne!(cluster.ask(Protocol::Tcp, Family::Ipv4).server, "c1");
    }
}

/// The node that translates answers with RST, from the address of the service.
#[test]
fn connections_of_an_endpoint_that_is_gone_end_and_others_go_on() {
    let settings = "directReturn: {mode: annotated}, endedConnections: {mode: reset}";
    let cluster = with_web(Cluster::on(Switched::new(), settings));
    let mut connections = open(&cluster);
    let mut gone: Vec<_> = connections.extract_if(.., |it| it.first().server() == "c1").collect();
    assert!(!gone.is_empty());
    cluster.replace_endpoints("a1 b1 b2");
    for connection in &mut gone {
        let refused = || (connection.ask() == Answer::Refused).then_some(());
        eventually("the end of a connection", SOON, refused);
    }
    assert_all_go_on(&mut connections);
}

#[test]
fn connections_to_others_stay_while_a_node_is_not_ready_and_when_it_comes_back() {
    let cluster = cluster();
    let mut connections = open(&cluster);
    cluster.apply("node-c", &node(2).ready(false));
    (0..2).for_each(|place| cluster.wait_for_slots(place, "ab"));
    let of_c = connections.extract_if(.., |it| place_of(it.first().server()) == 2).count();
    assert!(of_c > 0);
    assert_all_go_on(&mut connections);
    for _ in 0..30 {
        assert_ne!(cluster.ask(Protocol::Udp, Family::Ipv6).place(), 2);
    }
    cluster.apply("node-c", &node(2));
    cluster.wait_for_slots_everywhere("abc");
    assert_all_go_on(&mut connections);
}

#[test]
fn connections_to_others_stay_when_a_node_is_deleted_and_created_again() {
    let cluster = cluster();
    let mut connections = open(&cluster);
    cluster.apply("slice", &slice("a1 b1 b2"));
    cluster.remove("node-c");
    (0..2).for_each(|place| cluster.wait_for_slots(place, "ab"));
    let _ = connections.extract_if(.., |it| place_of(it.first().server()) == 2).count();
    assert_all_go_on(&mut connections);
    cluster.apply("node-c", &node(2));
    cluster.apply("slice", &slice("a1 b1 b2 c1"));
    cluster.wait_for_slots_everywhere("abc");
    assert_all_go_on(&mut connections);
}

#[test]
fn a_node_that_fails_leaves_the_tables_and_connections_to_others_stay() {
    let cluster = cluster();
    let mut connections = open(&cluster);
    cluster.link.cut_off(2);
    // Its neighbours notice that it does not answer.
    (0..2).for_each(|place| cluster.wait_for_slots(place, "ab"));
    let of_c = connections.extract_if(.., |it| place_of(it.first().server()) == 2).count();
    assert!(of_c > 0);
    assert!(lost(&mut connections).is_empty());
    for _ in 0..30 {
        assert_ne!(cluster.ask(Protocol::Tcp, Family::Ipv4).place(), 2);
    }
}
