//! Nodes in two subnets: packets get to a node behind the router through a VXLAN device.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use netlink_tests::cluster::{Cluster, SOON, node, service, slice};
use netlink_tests::scenario::{Family, Protocol};
use netlink_tests::{Answer, NODES, Segments, Switched, Tracked, TrackedFlows, eventually};
use network::{TunnelEntry, Tunnels, Vxlan};
use serde_json::Value;

use crate::device_kinds::assert_connections_are_whole;
use crate::obstacles::wait_for_problem;
use crate::ways::{assert_all_go_on, assert_each_server_sees_the_client};
use crate::{remember, with_web};

const DEVICE: &str = "direct-return";

const PORT: u16 = 4789;

/// A cluster whose first node is in a subnet of its own.
#[track_caller]
fn cluster() -> Cluster {
    with_web(Cluster::on(link(), &settings(PORT)))
}

fn link() -> Switched {
    let link = Switched::in_two_subnets();
    for place in 0..NODES.len() {
        // The device of the tunnel is not the one to which the route of a client leads.
        link.node(place).sysctl("ipv4/conf/all/rp_filter", "1");
    }
    link
}

fn settings(port: u16) -> String {
    format!("directReturn: {{{}, vxlanPort: {port}}}", remember(3))
}

/// The settings of the device of a node, if it exists.
fn device(cluster: &Cluster, place: usize) -> Option<Vxlan> {
    cluster.node(place).run(|| Tunnels::open().unwrap().find(DEVICE).unwrap()?.vxlan)
}

/// The entries of the device of a node.
fn entries(cluster: &Cluster, place: usize) -> BTreeSet<TunnelEntry> {
    cluster.node(place).run(|| {
        let mut tunnels = Tunnels::open().unwrap();
        let device = tunnels.find(DEVICE).unwrap().unwrap();
        tunnels.entries(device.index).unwrap()
    })
}

#[track_caller]
fn wait_for_obstacle(cluster: &Cluster, place: usize) {
    wait_for_problem(cluster, place, "node-not-on-link: Node ");
}

#[test]
fn servers_behind_a_router_see_the_client_and_only_their_node_tracks_the_connection() {
    let cluster = cluster();
    for entry in [0, 1] {
        cluster.link.enter_at(entry);
        assert_each_server_sees_the_client(&cluster);
    }
}

#[test]
fn ends_of_the_tunnel_may_have_addresses_of_ipv6() {
    let cluster = Cluster::on(link(), &settings(PORT));
    for (place, name) in NODES.into_iter().enumerate() {
        let host = cluster.node(place);
        let addresses = [host.ip6().into(), host.ip().into()];
        cluster.apply(name, &node(place).addresses(&addresses));
    }
    let cluster = with_web(cluster);
    let own = cluster.node(0).ip6();
    assert_eq!(device(&cluster, 0).unwrap().local, IpAddr::from(own));
    assert_each_server_sees_the_client(&cluster);
}

#[test]
fn connections_through_the_tunnel_go_on_when_the_entry_moves_and_long_transfers_arrive() {
    let cluster = cluster();
    for segments in [Segments::Joined, Segments::Single] {
        cluster.link.set_segments(segments);
        assert_connections_are_whole(&cluster);
    }
}

#[test]
fn nodes_that_come_and_go_are_entries_of_those_behind_the_router() {
    let cluster = cluster();
    let whole = entries(&cluster, 0);
    // Two addresses and an end of each of two nodes; the others have one node behind the router.
    assert_eq!((whole.len(), entries(&cluster, 1).len()), (6, 3));
    let mut connections = cluster.open(30, Family::Ipv4);
    cluster.apply("slice", &slice("a1 b1 b2"));
    cluster.remove("node-c");
    cluster.wait_for_slots(0, "ab");
    eventually("entries of one node", SOON, || (entries(&cluster, 0).len() == 3).then_some(()));
    connections.retain(|it| !it.first().server().starts_with('c'));
    assert_all_go_on(&mut connections);
    cluster.apply("node-c", &node(2));
    cluster.apply("slice", &slice("a1 b1 b2 c1"));
    cluster.wait_for_slots_everywhere("abc");
    assert_eq!(entries(&cluster, 0), whole);
    assert_all_go_on(&mut connections);
}

#[test]
fn connections_through_the_tunnel_go_on_while_a_daemon_is_away_and_after_its_next_start() {
    let mut cluster = cluster();
    for place in [0, 1] {
        let mut connections = cluster.open(30, Family::Ipv6);
        cluster.kill(place);
        assert_all_go_on(&mut connections);
        cluster.start(place);
        assert_all_go_on(&mut connections);
        let _ = cluster.stop(place);
        assert_all_go_on(&mut connections);
        cluster.start(place);
        cluster.wait_for_slots(place, "abc");
        assert_all_go_on(&mut connections);
    }
}

#[test]
fn the_tunnel_is_as_desired_and_explained() {
    let cluster = cluster();
    for place in 0..NODES.len() {
        let verified = cluster.on_manifests(place, "verify", &[]);
        assert_eq!(verified.code(), Some(0), "{}{}", verified.stdout, verified.stderr);
    }
    let far = (0..20).any(|_| {
        let client = cluster.next_client(Family::Ipv4);
        let to = format!("{}/udp", service(Family::Ipv4));
        let arguments = ["explain", &to, "--from", &client.to_string(), "--output", "json"];
        let explained: Value = serde_json::from_str(&cluster.command(0, &arguments).ok()).unwrap();
        let outcome = &explained["outcomes"][0];
        outcome["kind"] == "handed" && outcome["interface"] == DEVICE
    });
    assert!(far);
}

/// A datagram of VXLAN with one of UDP to `to`.
fn forged(tunnel: &Vxlan, from: Ipv4Addr, to: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut datagram = vec![8, 0, 0, 0];
    datagram.extend((tunnel.id << 8).to_be_bytes());
    datagram.extend(tunnel.hardware_address);
    datagram.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    let mut ip = vec![0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0];
    ip.extend([from.octets(), to.0.octets()].concat());
    let sum: u32 = ip.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&(!folded).to_be_bytes());
    datagram.extend(ip);
    datagram.extend([5000_u16, to.1, 9, 0].map(u16::to_be_bytes).concat());
    datagram.push(b'?');
    datagram
}

#[test]
fn what_others_send_through_the_tunnel_reaches_nothing_but_services_with_direct_return() {
    let cluster = cluster();
    let tunnel = device(&cluster, 1).unwrap();
    let from = Ipv4Addr::new(203, 0, 113, 66);
    let IpAddr::V4(web) = service(Family::Ipv4).ip() else { panic!("an IPv4 address") };
    let pod = cluster.link.pods(1)[0].ip();
    let node = cluster.node(1).ip();
    let reaches = |to: (Ipv4Addr, u16)| {
        let datagram = forged(&tunnel, from, to);
        cluster.link.clients().run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(&datagram, (node, PORT)).unwrap();
        });
        // What is answered later was sent later.
        let seen = (0..100).map(|_| cluster.ask(Protocol::Udp, Family::Ipv4));
        assert!(seen.map(|it| it.place()).any(|place| place == 1));
        let to = SocketAddr::from(to);
        let entry = Tracked { protocol: 17, sent_to: to, answered_by: to };
        cluster.node(1).run(|| TrackedFlows::open().contains((from, 5000).into(), &entry))
    };
    assert!(reaches((web, 80)), "the datagrams of this test are in order");
    assert!(!reaches((pod, 8080)));
    assert!(!reaches((Ipv4Addr::new(10, 96, 0, 10), 80)));
    assert!(!reaches((node, 22)));
}

#[test]
fn the_device_is_removed_by_a_changed_configuration_and_by_cleanup() {
    let mut cluster = cluster();
    let mut connections = cluster.open(20, Family::Ipv4);
    cluster.configure(&settings(8472));
    (0..3).for_each(|place| {
        eventually("another port", SOON, || (device(&cluster, place)?.port == 8472).then_some(()));
    });
    cluster.wait_for_slots_everywhere("abc");
    assert_all_go_on(&mut connections);

    let wait_for_no_device = |place| {
        eventually("no device", SOON, || device(&cluster, place).is_none().then_some(()));
    };
    cluster.configure(&settings(0));
    for place in 0..3 {
        wait_for_no_device(place);
        wait_for_obstacle(&cluster, place);
    }
    cluster.configure(&settings(PORT));
    cluster.wait_for_slots_everywhere("abc");
    cluster.configure("directReturn: {mode: 'off'}");
    (0..3).for_each(wait_for_no_device);
    cluster.configure(&settings(PORT));
    cluster.wait_for_slots_everywhere("abc");
    let _ = cluster.stop(0);
    assert!(device(&cluster, 0).is_some());
    let removed = cluster.command(0, &["cleanup"]);
    assert!(removed.stdout.contains("delete device direct-return\n"), "{}", removed.stdout);
    assert_eq!(device(&cluster, 0), None);
    let again = cluster.command(0, &["cleanup"]);
    assert!(!again.stdout.contains("device"), "{}", again.stdout);
}

#[test]
fn the_device_is_made_again_when_another_program_removes_it() {
    let cluster = cluster();
    let whole = entries(&cluster, 0);
    let mut connections = cluster.open(20, Family::Ipv6);
    cluster.node(0).remove_device(DEVICE);
    let has_all = || device(&cluster, 0).is_some() && entries(&cluster, 0) == whole;
    eventually("the device with its entries", SOON, || has_all().then_some(()));
    cluster.wait_for_slots(0, "abc");
    // A packet may be lost until the table leads to the new device.
    eventually("answers of servers behind the router", SOON, || {
        let seen = cluster.ask_from(cluster.next_client(Family::Ipv4), Protocol::Tcp);
        matches!(seen, Answer::From { server, .. } if !server.starts_with('a')).then_some(())
    });
    assert_all_go_on(&mut connections);
}

#[test]
fn a_device_of_another_program_stays_and_its_name_is_a_problem() {
    let link = link();
    link.node(0).add_pair(DEVICE, "other");
    let mut cluster = Cluster::on(link, &settings(PORT));
    cluster.apply("web", &netlink_tests::cluster::web());
    cluster.apply("slice", &slice("a1 b1"));
    wait_for_obstacle(&cluster, 0);
    let output = cluster.stop(0);
    assert!(output.stderr.contains("device direct-return is of another program"), "{output:?}");
    let removed = cluster.command(0, &["cleanup"]);
    assert!(!removed.stdout.contains("device"), "{}", removed.stdout);
    let found = cluster.node(0).run(|| Tunnels::open().unwrap().find(DEVICE).unwrap());
    assert_eq!(found.unwrap().vxlan, None);
}
