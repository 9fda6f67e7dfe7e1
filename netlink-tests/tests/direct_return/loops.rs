//! No packet is handed on twice: each guard against loops alone, and packets of others.

use netlink_tests::cluster::{Cluster, service, slice, web};
use netlink_tests::scenario::{Family, Protocol};
use netlink_tests::{Answer, Capture, NODES, nft_can_load};

use crate::cluster;

/// What a client sends with; the router takes one.
const TTL: u8 = 64;

/// A cluster whose nodes each know one endpoint alone, of another node: node-a hands on to node-b,
/// node-b to node-c, and node-c to node-a.
fn contradictory() -> Cluster {
    let cluster = Cluster::new("mode: annotated");
    let next = [("b1", "b"), ("c1", "c"), ("a1", "a")];
    for (place, (server, _)) in next.into_iter().enumerate() {
        cluster.apply_at(place, "web", &web());
        cluster.apply_at(place, "slice", &slice(server));
    }
    for (place, (_, node)) in next.into_iter().enumerate() {
        cluster.wait_for_slots(place, node);
    }
    cluster
}

/// Sends one datagram from a new client with this TTL. Returns the TTLs of its packet in the order
/// of its appearances on the link, and the answer.
fn appearances(cluster: &Cluster, family: Family, ttl: u8) -> (Vec<u8>, Answer) {
    let mut capture = cluster.link.capture();
    let client = cluster.next_client(family);
    let mut flow = cluster.link.clients().hasty().open_udp_from(client, service(family));
    flow.set_ttl(ttl);
    let answer = flow.ask();
    (ttls_of(&mut capture, client.port()), answer)
}

/// The TTLs of the frames from a port of a client to the service.
fn ttls_of(capture: &mut Capture, client: u16) -> Vec<u8> {
    let frames = capture.frames().into_iter();
    frames.filter(|frame| frame.ports() == Some((client, 80))).map(|frame| frame.ttl).collect()
}

#[test]
fn contradictory_nodes_hand_a_packet_on_once() {
    let cluster = contradictory();
    for family in Family::ALL {
        for _ in 0..10 {
            let (ttls, answer) = appearances(&cluster, family, TTL);
            // The router's frame, and the one that the entry sent on.
            assert_eq!(ttls, [TTL - 1, TTL - 2], "{answer:?}");
            // node-b has no endpoint and masquerades.
            let Answer::From { server, seen } = answer else { panic!("{answer:?}") };
            assert_eq!(server, "c1");
            assert_eq!(seen.ip(), family.of(cluster.node(1).ip()));
        }
    }
}

#[test]
fn without_hardware_addresses_a_packet_travels_until_its_ttl_ends() {
    let mut cluster = contradictory();
    for place in 0..NODES.len() {
        cluster.kill(place);
        cluster.node(place).nft("flush set netdev direct-return node-hardware-addresses");
    }
    for family in Family::ALL {
        for ttl in [TTL, 10, 3] {
            let (ttls, _) = appearances(&cluster, family, ttl);
            assert_eq!(ttls, (1..ttl).rev().collect::<Vec<_>>());
        }
    }
}

#[test]
fn hardware_addresses_alone_end_a_loop() {
    if !nft_can_load() {
        return;
    }
    let mut cluster = contradictory();
    for place in 0..NODES.len() {
        cluster.kill(place);
        cluster.node(place).nft_script(WITHOUT_TTL);
    }
    for family in Family::ALL {
        let (ttls, _) = appearances(&cluster, family, TTL);
        assert_eq!(ttls.len(), 2, "{ttls:?}");
    }
}

/// Rules that send packets of any TTL.
const WITHOUT_TTL: &str = "\
flush chain netdev direct-return send4
flush chain netdev direct-return send6
add rule netdev direct-return send4 \
    fwd ip to meta mark map @node-addresses4 device meta mark map @node-devices
add rule netdev direct-return send4 goto here
add rule netdev direct-return send6 \
    fwd ip6 to meta mark map @node-addresses6 device meta mark map @node-devices
add rule netdev direct-return send6 goto here
";

#[test]
fn a_packet_whose_ttl_ends_at_the_entry_is_not_handed_on() {
    let cluster = cluster();
    for family in Family::ALL {
        for _ in 0..20 {
            let (ttls, answer) = appearances(&cluster, family, 2);
            assert_eq!(ttls, [1]);
            assert!(matches!(answer, Answer::Unreachable(_)), "{answer:?}");
        }
    }
}

#[test]
fn nodes_that_overhear_packets_of_others_do_not_hand_them_on() {
    let cluster = cluster();
    cluster.link.flood();
    let mut capture = cluster.link.capture();
    for family in Family::ALL {
        for _ in 0..20 {
            let seen = cluster.ask(Protocol::Udp, family);
            let handed_on = usize::from(seen.place() != 0);
            let frames = ttls_of(&mut capture, seen.client.port());
            assert_eq!(frames.len(), 1 + handed_on, "{seen:?}");
        }
    }
}
