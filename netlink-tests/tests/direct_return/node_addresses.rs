//! Services at an address of a node, where answers to masqueraded connections come too.

use std::net::{IpAddr, SocketAddr};

use netlink_tests::cluster::{Cluster, PORT, SOON, endpoint, service};
use netlink_tests::scenario::{Endpoint, Family, Protocol, Service, Slice};
use netlink_tests::{Answer, eventually};

use crate::cluster;

/// A server outside of the cluster, on the clients' host.
const FAR: &str = "203.0.113.20";

/// Service `far` at the address of a load balancer, whose packets the entry masquerades to [`FAR`].
fn serve_far(cluster: &Cluster) -> SocketAddr {
    let address = "198.51.100.9";
    let far = Service::new("far", "10.96.0.12").only(Family::Ipv4).port(80);
    cluster.apply("far", &far.load_balancer_ip(address));
    let slice = Slice::new("far").only(Family::Ipv4).target(80, PORT);
    cluster.apply("far-slice", &slice.endpoint(Endpoint::new(FAR)));
    SocketAddr::new(address.parse().unwrap(), service(Family::Ipv4).port())
}

/// Service `own` at an address and port of the entry, with endpoints on the other nodes.
fn serve_own(cluster: &Cluster, to: SocketAddr) {
    let own = Service::new("own", "10.96.0.11").only(Family::Ipv4);
    let own = own.named_port("tcp", Protocol::Tcp, to.port(), 0).external_ip(&to.ip().to_string());
    cluster.apply("own", &own.annotation("deltaproxy.io/forwarding", "direct"));
    let slice = Slice::new("own").only(Family::Ipv4).named_target("tcp", Protocol::Tcp, PORT);
    cluster.apply("own-slice", &slice.endpoint(endpoint("b1")).endpoint(endpoint("c1")));
}

#[test]
fn answers_to_masqueraded_connections_are_not_handed_on_and_connections_to_their_port_are() {
    let cluster = cluster();
    let clients = cluster.link.clients();
    clients.add_address(FAR.parse::<IpAddr>().unwrap());
    let _server = clients.serve_tcp(PORT, "far");
    let to_far = serve_far(&cluster);
    let mut connection = eventually("a connection to the outside", SOON, || {
        clients.hasty().open_tcp_from(cluster.next_client(Family::Ipv4), to_far).ok()
    });
    let Answer::From { server, seen: masqueraded } = connection.first().clone() else { panic!() };
    assert_eq!((server.as_str(), masqueraded.ip()), ("far", cluster.node(0).ip().into()));

    serve_own(&cluster, masqueraded);
    eventually("a service at the entry's address", SOON, || {
        let client = cluster.next_client(Family::Ipv4);
        let answer = clients.hasty().connect_tcp_from(client, masqueraded);
        matches!(answer, Answer::From { seen, .. } if seen == client).then_some(())
    });
    let first = connection.first().clone();
    assert_eq!(connection.ask(), first);
}
