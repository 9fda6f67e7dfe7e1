//! Node ports of TCP, at the address of the node that a client names.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use netlink_tests::cluster::{Cluster, SOON, Seen, place_of, slice};
use netlink_tests::scenario::{Family, Protocol, Service};
use netlink_tests::{Answer, Connection, Host, eventually};

use crate::ways::assert_all_go_on;
use crate::{SERVERS, with_settings};

const NODE_PORT: u16 = 30_080;

/// As many as make it sure that each server answers.
const CONNECTIONS: usize = 40;

/// Service `web` with a node port for each protocol.
fn web() -> Service {
    let service = Service::new("web", "10.96.0.10").node_port(80, NODE_PORT);
    let service = service.load_balancer_ip(netlink_tests::cluster::ADDRESS);
    service.annotation("deltaproxy.io/forwarding", "direct")
}

/// A cluster that hands packets to node ports on, too.
#[track_caller]
fn cluster(more: &str) -> Cluster {
    let cluster = with_settings(&format!("mode: annotated, nodePorts: true{more}"));
    cluster.apply("web", &web());
    for place in 0..3 {
        for family in Family::ALL {
            wait_for_hand_over(&cluster, place, family);
        }
    }
    cluster
}

fn at(host: &Host, family: Family) -> SocketAddr {
    let address: IpAddr = match family {
        Family::Ipv4 => host.ip().into(),
        Family::Ipv6 => host.ip6().into(),
    };
    SocketAddr::new(address, NODE_PORT)
}

/// Waits until a server of another node sees a client of the node port of this node.
#[track_caller]
fn wait_for_hand_over(cluster: &Cluster, place: usize, family: Family) {
    eventually("a connection that is handed on", SOON, || {
        let seen = ask(cluster, place, family)?;
        (seen.place() != place && seen.source == seen.client).then_some(())
    });
}

/// Opens a connection to the node port of a node.
fn ask(cluster: &Cluster, place: usize, family: Family) -> Option<Seen> {
    let (client, to) = (cluster.next_client(family), at(cluster.node(place), family));
    let answer = cluster.link.clients().connect_tcp_from(client, to);
    let Answer::From { server, seen: source } = answer else { return None };
    Some(Seen { client, to, protocol: Protocol::Tcp, server, source })
}

/// Opens connections to the node port of a node, that stay open.
#[track_caller]
fn open(cluster: &Cluster, place: usize, count: usize) -> Vec<Connection> {
    let open = |i: usize| {
        let family = Family::ALL[i % 2];
        let (client, to) = (cluster.next_client(family), at(cluster.node(place), family));
        let opened = cluster.link.clients().open_tcp_from(client, to);
        opened.unwrap_or_else(|answer| panic!("TCP from {client}: {answer:?}"))
    };
    (0..count).map(open).collect()
}

#[test]
fn servers_of_all_nodes_see_the_client_and_only_their_node_tracks_the_connection() {
    let cluster = cluster("");
    for entry in [0, 1] {
        for family in Family::ALL {
            let seen: Vec<_> =
                (0..CONNECTIONS).map(|_| ask(&cluster, entry, family).unwrap()).collect();
            let servers: BTreeSet<_> = seen.iter().map(|it| it.server.as_str()).collect();
            assert_eq!(servers, SERVERS.split(' ').collect(), "{family:?}");
            for seen in seen {
                assert_eq!(seen.source, seen.client, "{seen:?}");
                let tracked = [0, 1, 2].map(|place| cluster.tracks(place, &seen));
                assert_eq!(tracked, [0, 1, 2].map(|place| place == seen.place()), "{seen:?}");
            }
        }
    }
}

#[test]
fn udp_pods_and_nodes_are_translated_by_the_node_that_they_name() {
    let cluster = cluster("");
    let pod = cluster.link.pods(1)[1].clone();
    for family in Family::ALL {
        let to = at(cluster.node(0), family);
        for (host, is_tcp) in
            [(cluster.link.clients(), false), (&pod, true), (cluster.node(1), true)]
        {
            let mut servers = BTreeSet::new();
            for _ in 0..CONNECTIONS {
                let answer = if is_tcp { host.connect_tcp(to) } else { host.send_udp(to) };
                let Answer::From { server, seen } = answer else {
                    panic!("from {} to {to}: {answer:?}", host.ip())
                };
                let is_masqueraded = seen.ip() == at(cluster.node(0), family).ip();
                assert_eq!(is_masqueraded, place_of(&server) != 0, "{server} {seen}");
                servers.insert(server);
            }
            assert_eq!(servers.into_iter().collect::<Vec<_>>().join(" "), SERVERS);
        }
    }
}

#[test]
fn connections_go_on_when_endpoints_come_and_a_daemon_starts_again() {
    let mut cluster = cluster("");
    let mut connections = open(&cluster, 0, CONNECTIONS);
    cluster.replace_endpoints("a1 a2 b1 b2 c1 c2");
    assert_all_go_on(&mut connections);
    for place in [0, 1] {
        cluster.kill(place);
        assert_all_go_on(&mut connections);
        cluster.start(place);
        assert_all_go_on(&mut connections);
    }
    assert_all_go_on(&mut open(&cluster, 0, CONNECTIONS));
}

#[test]
fn a_connection_that_cannot_be_remembered_stays_at_the_node_that_it_names() {
    let cluster = cluster(", connections: 1024");
    while cluster.remembered(0) < 1_024 {
        let _ = ask(&cluster, 0, Family::Ipv4);
    }
    let mut connections = open(&cluster, 0, CONNECTIONS);
    assert!(connections.iter().all(|it| place_of(it.first().server()) == 0));
    assert_all_go_on(&mut connections);
}

#[test]
fn a_service_that_ceases_to_have_direct_return_keeps_its_node_port() {
    let cluster = cluster("");
    cluster.apply("web", &web().annotation("deltaproxy.io/forwarding", "translate"));
    eventually("a translated connection", SOON, || {
        let seen = ask(&cluster, 0, Family::Ipv4)?;
        (seen.place() != 0 && seen.source.ip() == cluster.node(0).ip()).then_some(())
    });
}

#[test]
fn commands_know_node_ports_with_direct_return() {
    let cluster = cluster("");
    for place in 0..3 {
        let verified = cluster.on_manifests(place, "verify", &[]);
        assert_eq!(verified.stdout, "the tables are as desired: 1 services\n");
    }
    let shown = cluster.command(0, &["show"]).ok();
    let line = shown.lines().find(|line| line.contains("30080/tcp"));
    assert!(line.unwrap().contains("direct"), "{shown}");
    let of_udp = shown.lines().find(|line| line.contains("30080/udp"));
    assert!(!of_udp.unwrap().contains("direct"), "{shown}");
    let to = at(cluster.node(0), Family::Ipv4).to_string();
    let explained = cluster.command(0, &["explain", &to, "--from", "203.0.113.10:40001"]).ok();
    assert!(explained.contains("default/web"), "{}", explained);
    assert!(explained.contains("direct return"), "{}", explained);
    cluster.apply("slice", &slice("b1"));
    cluster.wait_for_slots_everywhere("b");
    for place in 0..3 {
        let verified = cluster.on_manifests(place, "verify", &[]);
        assert_eq!(verified.stdout, "the tables are as desired: 1 services\n");
    }
}
