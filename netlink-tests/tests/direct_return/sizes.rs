//! Long transfers, fragments, and paths with a smaller MTU.

use netlink_tests::cluster::{Cluster, service};
use netlink_tests::scenario::Family;
use netlink_tests::{Connection, Segments};

use crate::cluster;

/// More than the buffers of a path hold.
pub(crate) const LONG: usize = 1 << 20;

/// Of all devices, in bytes.
const MTU: usize = 1500;

/// Opens connections until one is to a server on each node, by the letters of the nodes.
#[track_caller]
pub(crate) fn one_to_each_node(cluster: &Cluster, family: Family) -> Vec<Connection> {
    let connections = cluster.open(40, family);
    let mut found: Vec<Connection> = Vec::new();
    for connection in connections {
        let node = |it: &Connection| it.first().server().chars().next();
        if found.iter().all(|other| node(other) != node(&connection)) {
            found.push(connection);
        }
    }
    assert_eq!(found.len(), 3);
    found
}

fn segments_and_families() -> impl Iterator<Item = (Segments, Family)> {
    let kinds = [Segments::Joined, Segments::Single].into_iter();
    kinds.flat_map(|segments| Family::ALL.map(|family| (segments, family)))
}

#[test]
fn long_transfers_arrive_in_both_directions() {
    let cluster = cluster();
    for (segments, family) in segments_and_families() {
        cluster.link.set_segments(segments);
        for mut connection in one_to_each_node(&cluster, family) {
            // Its buffer holds the begin of a transfer.
            let mut capture = cluster.link.capture();
            let server = connection.first().server().to_owned();
            let answer = connection.upload(LONG);
            let answer = answer.unwrap_or_else(|error| panic!("to {server}: {error}"));
            assert_eq!(&answer, connection.first());
            connection.download(LONG).unwrap_or_else(|error| panic!("from {server}: {error}"));
            let longest = capture.frames().iter().map(|frame| frame.payload.len()).max().unwrap();
            assert_eq!(longest > MTU, segments == Segments::Joined, "{longest}");
        }
    }
}

#[test]
fn a_smaller_mtu_behind_the_router_is_reported_to_the_serving_node() {
    let cluster = cluster();
    cluster.link.clients().set_link_mtu(1300);
    for (segments, family) in segments_and_families() {
        cluster.link.set_segments(segments);
        for mut connection in one_to_each_node(&cluster, family) {
            let server = connection.first().server().to_owned();
            connection.download(LONG).unwrap_or_else(|error| panic!("{server}: {error}"));
        }
    }
}

#[test]
fn all_fragments_of_a_datagram_reach_one_server() {
    let cluster = cluster();
    for family in Family::ALL {
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..30 {
            let client = cluster.next_client(family);
            let mut flow = cluster.link.clients().open_udp_from(client, service(family));
            let answer = flow.ask_at_length(4_000);
            assert_eq!((answer.source(), answer.source_port()), (client.ip(), client.port()));
            places.insert(netlink_tests::cluster::place_of(answer.server()));
        }
        assert_eq!(places.len(), 3);
    }
}
