//! A service address inside the subnet of the link, which one node announces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netlink_tests::cluster::{Cluster, PORT, SOON, endpoint};
use netlink_tests::scenario::{Family, Protocol, Service, Slice};
use netlink_tests::{Announcer, Answer, Connection, eventually, ip6_of};

use crate::cluster;
use crate::ways::assert_all_go_on;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 60, 200);

/// Connections of each server.
const OF_EACH: usize = 7;

/// Lets nodes hand packets to each other for a service at [`ADDRESS`] and its IPv6 twin.
fn serve(cluster: &Cluster) {
    let service = Service::new("near", "10.96.0.13").named_port("tcp", Protocol::Tcp, 80, 0);
    let service = service.load_balancer_ip(&ADDRESS.to_string());
    cluster.apply("near", &service.annotation("deltaproxy.io/forwarding", "direct"));
    let slice = Slice::new("near").named_target("tcp", Protocol::Tcp, PORT);
    let slice = ["a1", "b1", "c1"].into_iter().fold(slice, |it, name| it.endpoint(endpoint(name)));
    cluster.apply("near-slice", &slice);
}

/// Opens connections, all of which see their client, until each server has [`OF_EACH`].
fn open(cluster: &Cluster, to: IpAddr) -> Vec<Connection> {
    let mut connections = BTreeMap::<String, Vec<Connection>>::new();
    eventually("connections to all servers", SOON, || {
        let client = cluster.next_client(Family::of_address(to));
        let clients = cluster.link.clients().hasty();
        let connection = clients.open_tcp_from(client, SocketAddr::from((to, 80))).ok()?;
        let Answer::From { server, seen } = connection.first() else { return None };
        let of_server = connections.entry(server.clone()).or_default();
        // A server that answers alone for a while would use up the open files of the process.
        if *seen == client && of_server.len() < OF_EACH {
            of_server.push(connection);
        }
        let are_all_there =
            connections.len() == 3 && connections.values().all(|it| it.len() == OF_EACH);
        are_all_there.then_some(())
    });
    connections.into_values().flatten().collect()
}

/// Waits until the router sends packets to this address to this node.
fn wait_for_entry(cluster: &Cluster, place: usize, to: IpAddr) {
    let hardware = [2, 0, 1, 0, 0, 31 + u8::try_from(place).unwrap()];
    let mut capture = cluster.link.capture();
    eventually("frames of the router to another node", SOON, || {
        let client = cluster.next_client(Family::of_address(to));
        let _ = cluster.link.clients().hasty().connect_tcp_from(client, (to, 80));
        let frames = capture.frames().into_iter();
        let mut of_router = frames.filter(|it| it.device == cluster.link.router_port());
        of_router.any(|it| it.to == to && it.to_hardware == hardware).then_some(())
    });
}

#[track_caller]
fn check(to: IpAddr) {
    let cluster = cluster();
    let announcer = Announcer::start(cluster.node(0), to);
    serve(&cluster);
    // A connection that begins before the node hands any on is known to that node alone.
    drop(open(&cluster, to));
    let mut connections = open(&cluster, to);
    drop(announcer);
    for place in [1, 2, 0] {
        let _announcer = Announcer::start(cluster.node(place), to);
        wait_for_entry(&cluster, place, to);
        assert_all_go_on(&mut connections);
    }
}

#[test]
fn connections_go_on_when_another_node_announces_the_address_by_arp() {
    check(ADDRESS.into());
}

#[test]
fn connections_go_on_when_another_node_advertises_the_address_as_neighbour() {
    check(ip6_of(ADDRESS).into());
}
