//! Devices of nodes are made again, and their hardware addresses change.

use netlink_tests::cluster::{Cluster, SOON};
use netlink_tests::scenario::{Family, Protocol};
use netlink_tests::{Answer, eventually};

use crate::cluster;
use crate::ways::assert_all_go_on;

/// Waits until packets of a new connection reach a server of this node with the client's address.
#[track_caller]
fn wait_for_hand_over(cluster: &Cluster, place: usize, family: Family) {
    eventually("a connection that is handed on", SOON, || {
        let client = cluster.next_client(family);
        let answer = cluster.ask_from(client, Protocol::Udp);
        let Answer::From { server, seen } = answer else { return None };
        let is_there = netlink_tests::cluster::place_of(&server) == place;
        (is_there && seen == client).then_some(())
    });
}

#[test]
fn packets_are_handed_to_and_by_nodes_whose_hardware_address_changed() {
    let cluster = cluster();
    for (place, last) in [(1, 0x99), (0, 0x98)] {
        let mut connections = cluster.open(20, Family::Ipv4);
        connections.extend(cluster.open(20, Family::Ipv6));
        let address = [2, 0, 1, 0, 0, last];
        cluster.link.set_hardware_address(place, address);
        let others = (0..3).filter(|other| *other != place);
        others.for_each(|other| cluster.wait_for_hardware_address(other, address));
        for family in Family::ALL {
            wait_for_hand_over(&cluster, 1, family);
        }
        assert_all_go_on(&mut connections);
    }
}

#[test]
fn connections_are_remembered_while_the_device_of_a_node_is_deleted() {
    let cluster = cluster();
    // More endpoints move slots, so the memory alone knows the nodes of some connections.
    for (place, own, servers) in [(0, "a", "a1 a2 b1 b2 c1 c2"), (1, "b", "a1 b1 b2 c1")] {
        let mut connections = cluster.open(20, Family::Ipv4);
        connections.extend(cluster.open(20, Family::Ipv6));
        cluster.link.remove_device(place);
        cluster.wait_for_slots(place, own);
        cluster.link.restore_device(place);
        cluster.link.enter_at(0);
        cluster.wait_for_slots_everywhere("abc");
        cluster.replace_endpoints(servers);
        for family in Family::ALL {
            wait_for_hand_over(&cluster, 1, family);
        }
        assert_all_go_on(&mut connections);
    }
}
