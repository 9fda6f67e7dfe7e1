//! Nodes are on the link by other kinds of devices, and by devices of a flowtable.
//!
//! Where the kernel lacks a kind, its test ends with a message; `make test-kernel` runs it on a
//! kernel of Debian.

use netlink_tests::cluster::{Cluster, place_of, service};
use netlink_tests::scenario::Family;
use netlink_tests::{DeviceKind, Switched, kernel_has_flowtables};

use crate::sizes::{LONG, one_to_each_node};
use crate::ways::{assert_all_go_on, assert_each_server_sees_the_client};
use crate::with_web;

/// Connections go on when the router moves the entry, and long transfers arrive.
#[track_caller]
pub(crate) fn assert_connections_are_whole(cluster: &Cluster) {
    for family in Family::ALL {
        let mut connections = one_to_each_node(cluster, family);
        for entry in [1, 2, 0] {
            cluster.link.enter_at(entry);
            assert_all_go_on(&mut connections);
            for connection in &mut connections {
                connection.upload(LONG).unwrap();
                connection.download(LONG).unwrap();
            }
        }
    }
}

fn leave_out(what: &str) {
    let hint = "make test-kernel KERNEL_TESTS=direct_return_packets";
    eprintln!("left out: this kernel has no {what}; run {hint}");
}

#[track_caller]
fn check(kind: DeviceKind) {
    if !kind.is_supported() {
        return leave_out(&format!("devices of kind {kind:?}"));
    }
    let link = Switched::with_devices(kind);
    let cluster = with_web(Cluster::on(link, "directReturn: {mode: annotated}"));
    assert_each_server_sees_the_client(&cluster);
    assert_connections_are_whole(&cluster);
}

#[test]
fn packets_are_handed_on_by_macvlan_devices() {
    check(DeviceKind::Macvlan);
}

#[test]
fn packets_are_handed_on_by_vlan_devices() {
    check(DeviceKind::Vlan);
}

#[test]
fn packets_are_handed_on_by_bonds() {
    check(DeviceKind::Bond);
}

#[test]
fn connections_in_the_flowtable_of_their_node_go_on() {
    if !kernel_has_flowtables() {
        return leave_out("flowtables");
    }
    let settings = r#"directReturn: {mode: annotated}, flowtable: "on", flowtableAfter: 8packets"#;
    let cluster = with_web(Cluster::on(Switched::new(), settings));
    for family in Family::ALL {
        let mut connections = cluster.open(20, family);
        for _ in 0..12 {
            assert_all_go_on(&mut connections);
        }
        let on =
            |place| connections.iter().filter(move |it| place_of(it.first().server()) == place);
        for place in 0..3 {
            let to = service(family);
            let offloaded = cluster.node(place).offloaded();
            let count = offloaded.iter().filter(|entry| entry.sent_to == to).count();
            assert_eq!(count, on(place).count(), "{family:?} on node {place}");
        }
    }
    assert_connections_are_whole(&cluster);
}
