//! Who answers whom, by every protocol in both families.

use std::collections::BTreeSet;

use netlink_tests::Connection;
use netlink_tests::cluster::{Cluster, Seen, service};
use netlink_tests::scenario::{Family, Protocol};

use crate::{SERVERS, cluster};

/// One of four servers, with a share of a third at most, stays silent with a chance of 1 in 10^5.
const CONNECTIONS: usize = 40;

#[track_caller]
pub(crate) fn ask_often(cluster: &Cluster, protocol: Protocol, family: Family) -> Vec<Seen> {
    let seen: Vec<_> = (0..CONNECTIONS).map(|_| cluster.ask(protocol, family)).collect();
    let servers: BTreeSet<_> = seen.iter().map(|it| it.server.as_str()).collect();
    assert_eq!(servers, SERVERS.split(' ').collect(), "{protocol:?} {family:?}");
    seen
}

/// Connections by every protocol reach all servers, and only the node of a server tracks them.
#[track_caller]
pub(crate) fn assert_each_server_sees_the_client(cluster: &Cluster) {
    for (protocol, family) in ways() {
        for seen in ask_often(cluster, protocol, family) {
            assert_eq!(seen.source, seen.client, "{seen:?}");
            let tracked = [0, 1, 2].map(|place| cluster.tracks(place, &seen));
            assert_eq!(tracked, [0, 1, 2].map(|place| place == seen.place()), "{seen:?}");
        }
    }
}

#[test]
fn servers_of_all_nodes_see_the_client_and_only_their_node_tracks_the_connection() {
    let cluster = cluster();
    for entry in [0, 1] {
        cluster.link.enter_at(entry);
        assert_each_server_sees_the_client(&cluster);
    }
}

#[test]
fn a_packet_is_handed_on_once_and_its_answer_goes_to_the_router() {
    let cluster = cluster();
    let mut capture = cluster.link.capture();
    for (protocol, family) in ways() {
        for _ in 0..CONNECTIONS {
            let seen = cluster.ask(protocol, family);
            let frames = capture.frames();
            let of = |from, to| {
                let devices = frames.iter().filter(move |it| it.ports() == Some((from, to)));
                let first = devices.clone().next().unwrap().payload.clone();
                // TCP has further packets in each direction.
                let same = devices.filter(move |it| it.payload == first);
                same.map(|it| it.device).collect::<Vec<_>>()
            };
            let (client, port) = (seen.client.port(), seen.to.port());
            let router = cluster.link.router_port();
            let way: Vec<_> = match seen.place() {
                0 => vec![router],
                _ => vec![router, cluster.link.port(0)],
            };
            assert_eq!(of(client, port), way, "{seen:?}");
            assert_eq!(of(port, client), [cluster.link.port(seen.place())], "{seen:?}");
        }
    }
}

#[test]
fn connections_go_on_when_the_router_moves_the_entry() {
    let cluster = cluster();
    for family in Family::ALL {
        cluster.link.enter_at(0);
        let mut connections = cluster.open(30, family);
        for entry in [1, 2, 0] {
            cluster.link.enter_at(entry);
            assert_all_go_on(&mut connections);
        }
    }
}

#[test]
fn pods_and_nodes_reach_all_endpoints_as_without_direct_return() {
    let cluster = cluster();
    let hosts = [cluster.link.pods(0)[1].clone(), cluster.node(0).clone()];
    for host in hosts {
        for family in Family::ALL {
            let answers = (0..CONNECTIONS).map(|_| host.connect_tcp(service(family)));
            let servers: BTreeSet<_> = answers.map(|it| it.server().to_owned()).collect();
            assert_eq!(servers.iter().map(String::as_str).collect::<Vec<_>>().join(" "), SERVERS);
        }
    }
}

/// Every protocol in both families.
pub(crate) fn ways() -> impl Iterator<Item = (Protocol, Family)> {
    Protocol::ALL.into_iter().flat_map(|protocol| Family::ALL.map(|family| (protocol, family)))
}

/// Asks once more by each connection: the server must be the one of its first answer.
#[track_caller]
pub(crate) fn assert_all_go_on(connections: &mut [Connection]) {
    let lost = lost(connections);
    assert!(lost.is_empty(), "{} of {}: {lost:?}", lost.len(), connections.len());
}

/// The connections that the server of their first answer does not answer any more.
pub(crate) fn lost(connections: &mut [Connection]) -> Vec<String> {
    let answers = Connection::ask_all(connections);
    let firsts = connections.iter().map(Connection::first);
    let lost = answers.iter().zip(firsts).filter(|(answer, first)| answer != first);
    lost.map(|(answer, first)| format!("{first:?}, then {answer:?}")).collect()
}
