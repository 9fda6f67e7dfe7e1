//! The memory of connections: full, expired, and refreshed by packets.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use netlink_tests::cluster::{SOON, service};
use netlink_tests::scenario::{Family, Protocol};
use netlink_tests::{Deadline, eventually};

use crate::ways::assert_all_go_on;
use crate::{remember, with_settings};

#[test]
fn connections_beyond_a_full_memory_go_on_by_their_hash() {
    let cluster = with_settings("mode: annotated, connections: 1024");
    let flood = (0..2_000_u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        IpAddr::from(Ipv4Addr::new(198, 18, high, low))
    });
    cluster.link.clients().spoof_udp(flood, service(Family::Ipv4));
    eventually("a full memory", SOON, || (cluster.remembered(0) == 1024).then_some(()));
    for family in Family::ALL {
        let mut connections = cluster.open(30, family);
        cluster.link.enter_at(1);
        assert_all_go_on(&mut connections);
        cluster.link.enter_at(0);
        assert_all_go_on(&mut connections);
        let seen = cluster.ask(Protocol::Udp, family);
        assert_eq!(seen.source, seen.client);
    }
    assert_eq!(cluster.remembered(0), 1024);
}

#[test]
fn forgotten_connections_go_on_while_the_endpoints_stay() {
    let cluster = with_settings(&remember(1));
    let mut connections = cluster.open(30, Family::Ipv6);
    assert!(cluster.remembered(0) > 0);
    eventually("an empty memory", SOON, || (cluster.remembered(0) == 0).then_some(()));
    assert_all_go_on(&mut connections);
}

#[test]
fn packets_keep_their_connection_in_memory() {
    let cluster = with_settings(&remember(3));
    let mut connections = cluster.open(30, Family::Ipv4);
    let twice = Deadline::after(Duration::from_secs(6));
    while twice.left().is_some() {
        assert_all_go_on(&mut connections);
        std::thread::sleep(Duration::from_millis(200));
    }
    // This moves slots, so the memory alone knows the nodes of some connections.
    cluster.replace_endpoints("a1 a2 b1 b2 c1 c2");
    assert_all_go_on(&mut connections);
}
