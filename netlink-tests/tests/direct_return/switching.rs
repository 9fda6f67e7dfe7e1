//! Direct return is switched on and off for a service with open connections.

use netlink_tests::cluster::{Cluster, SOON, slice, web};
use netlink_tests::scenario::{Family, Protocol, Service};
use netlink_tests::{Connection, eventually};

use crate::SERVERS;
use crate::ways::lost;

/// `web` without the annotation.
fn translated() -> Service {
    web().annotation("deltaproxy.io/forwarding", "translate")
}

/// Uses the connections until the slots of the entry are of these nodes; returns those lost.
fn use_until_slots(cluster: &Cluster, connections: &mut [Connection], nodes: &str) -> Vec<String> {
    eventually(&format!("slots of {nodes:?}"), SOON, || {
        let lost = lost(connections);
        let is_reached = (0..3).all(|place| {
            let slots = Family::ALL.map(|family| cluster.slots(place, family));
            slots.iter().all(|slots| slots.keys().copied().eq(nodes.chars()))
        });
        (is_reached || !lost.is_empty()).then_some(lost)
    })
}

#[test]
fn no_open_connection_is_lost_when_a_live_service_is_switched_on() {
    // Long enough for a packet of each connection also on a busy machine.
    let cluster = Cluster::new(&crate::remember(6));
    cluster.apply("web", &translated());
    cluster.apply("slice", &slice(SERVERS));
    eventually("an answer", SOON, || {
        let client = cluster.next_client(Family::Ipv4);
        let answer = cluster.ask_from(client, Protocol::Tcp);
        matches!(answer, netlink_tests::Answer::From { .. }).then_some(())
    });
    let mut connections = cluster.open(20, Family::Ipv4);
    connections.extend(cluster.open(20, Family::Ipv6));
    cluster.apply("web", &web());
    assert_eq!(use_until_slots(&cluster, &mut connections, "abc"), [""; 0]);
    assert_eq!(lost(&mut connections), [""; 0]);
    let seen = cluster.ask(Protocol::Tcp, Family::Ipv4);
    assert_eq!(seen.source, seen.client);
}

#[test]
fn no_open_connection_is_lost_for_a_while_after_a_live_service_is_switched_off() {
    let cluster = crate::with_settings(&crate::remember(3));
    let mut connections = cluster.open(20, Family::Ipv4);
    connections.extend(cluster.open(20, Family::Ipv6));
    cluster.apply("web", &translated());
    // Each node serves new connections itself now, and hands on those that it remembers.
    eventually("own slots", SOON, || {
        assert_eq!(lost(&mut connections), [""; 0]);
        cluster.slots(0, Family::Ipv6).keys().eq(&['a']).then_some(())
    });
    assert_eq!(lost(&mut connections), [""; 0]);
    cluster.wait_for_slots_everywhere("");
    let seen: Vec<_> = (0..20).map(|_| cluster.ask(Protocol::Tcp, Family::Ipv4)).collect();
    let at_others = seen.iter().filter(|seen| seen.place() != 0);
    assert!(at_others.clone().count() > 0, "{seen:?}");
    for seen in at_others {
        assert_eq!(seen.source.ip(), cluster.node(0).ip(), "{seen:?}");
    }
}
