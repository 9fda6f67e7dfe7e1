//! Daemons that end and start; the tables hand packets on meanwhile.

use netlink_tests::scenario::{Family, Protocol};

use crate::cluster;
use crate::ways::assert_all_go_on;

#[test]
fn connections_are_remembered_while_a_killed_daemon_is_away_and_after_its_next_start() {
    let mut cluster = cluster();
    let mut connections = cluster.open(30, Family::Ipv4);
    cluster.kill(0);
    assert_all_go_on(&mut connections);
    let seen = cluster.ask(Protocol::Tcp, Family::Ipv4);
    assert_eq!(seen.source, seen.client);
    cluster.start(0);
    assert_all_go_on(&mut connections);
    // This moves slots, so the memory alone knows the nodes of some connections.
    cluster.replace_endpoints("a1 a2 b1 b2 c1 c2");
    assert_all_go_on(&mut connections);
}

#[test]
fn connections_go_on_when_a_daemon_ends_regularly_and_starts_again() {
    let mut cluster = cluster();
    for place in [0, 1] {
        let mut connections = cluster.open(30, Family::Ipv6);
        let _ = cluster.stop(place);
        assert_all_go_on(&mut connections);
        cluster.start(place);
        assert_all_go_on(&mut connections);
        cluster.wait_for_slots(place, "abc");
        let servers = ["a1 a2 b1 b2 c1 c2", "a1 b1 b2 c1"][place];
        cluster.replace_endpoints(servers);
        assert_all_go_on(&mut connections);
    }
}

#[test]
fn a_node_that_is_a_change_behind_hands_packets_on_once_and_loses_none() {
    let mut cluster = cluster();
    cluster.kill(0);
    cluster.replace_endpoints("a1 a2 b1 b2 c1 c2");
    let mut connections = cluster.open(30, Family::Ipv4);
    cluster.start(0);
    cluster.wait_for_share(0, 'a', 0.3..0.4);
    assert_all_go_on(&mut connections);
}
