//! Destination and masquerade of a packet in every mode of local detection.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use Expect::{Refused, Silent};
use engine::routing::{LocalDetection, Routing};
use netlink_tests::scenario::{
    EXTERNAL, EXTERNAL_WAYS, Expect, Lab, NODE_PORT, Node, Scope, VIP, WEB, keeps_source,
    masquerades, routing, slice, web_everywhere as web,
};
use netlink_tests::{nft_available, nft_can_load};

const UNALLOCATED: &str = "10.96.0.77:80";

fn lab(local_detection: LocalDetection, masquerade_all: bool) -> Lab {
    Lab::with(Routing { local_detection, masquerade_all, ..routing() })
}

fn bridge(name: &str) -> LocalDetection {
    LocalDetection::BridgeInterface(name.parse().unwrap())
}

fn prefix(prefix: &str) -> LocalDetection {
    LocalDetection::InterfaceNamePrefix(prefix.parse().unwrap())
}

/// The hosts that count as pods; the node never does.
struct Clients {
    pods: &'static [&'static str],
    others: &'static [&'static str],
}

/// Where a pod on another node does not count as one.
const PODS_ON_NODE: Clients = Clients { pods: &["pod"], others: &["d", "outside"] };

/// One kind of destination, with the outcome for pods, the node and others.
type Row<'a> = (&'a [&'a str], Expect, Expect, Expect);

#[track_caller]
fn check(lab: &Lab, clients: &Clients, rows: &[Row<'_>]) {
    let mut probes = Vec::new();
    for (destinations, pods, node, others) in rows {
        for to in *destinations {
            probes.extend(clients.pods.iter().map(|client| (*client, *to, pods.clone())));
            probes.push(("node", *to, node.clone()));
            probes.extend(clients.others.iter().map(|client| (*client, *to, others.clone())));
        }
    }
    lab.check(&probes);
}

/// The whole table of destinations and policies, with local and remote, only remote and no
/// endpoints.
#[track_caller]
fn check_matrix(lab: &mut Lab, clients: &Clients, masquerade_all: bool) {
    let from_pod =
        |servers| if masquerade_all { masquerades(servers) } else { keeps_source(servers) };
    let all = || masquerades("a c");
    lab.apply(&[&web(), &slice("a c")]);
    check(
        lab,
        clients,
        &[
            (&[WEB], from_pod("a c"), all(), all()),
            (&EXTERNAL_WAYS, all(), all(), all()),
            (&[UNALLOCATED], Silent, Silent, Silent),
        ],
    );
    // Apart from the others: a raw SCTP socket hears of refusals by address, whatever the port.
    check(lab, clients, &[(&["10.96.0.10:81"], Refused, Refused, Refused)]);
    lab.apply(&[&web().external_local().internal_local()]);
    check(
        lab,
        clients,
        &[
            (&[WEB], from_pod("a"), masquerades("a"), masquerades("a")),
            (&EXTERNAL_WAYS, keeps_source("a c"), all(), keeps_source("a")),
        ],
    );
    lab.apply(&[&slice("c")]);
    check(
        lab,
        clients,
        &[
            (&[WEB], Silent, Silent, Silent),
            (&EXTERNAL_WAYS, keeps_source("c"), masquerades("c"), Silent),
        ],
    );
    lab.apply(&[&slice("")]);
    check(lab, clients, &[(&[WEB, NODE_PORT, EXTERNAL, VIP], Refused, Refused, Refused)]);
}

/// Packets of the node have no input interface and are masqueraded.
#[test]
fn an_interface_prefix_identifies_pods() {
    check_matrix(&mut lab(prefix("veth"), false), &PODS_ON_NODE, false);
}

#[test]
fn a_bridge_identifies_pods() {
    check_matrix(&mut lab(bridge("vethpod"), false), &PODS_ON_NODE, false);
}

#[test]
fn the_nodes_ranges_tell_pods() {
    let mut lab = lab(LocalDetection::NodeCidr, false);
    lab.apply(&[&Node::new().pod_cidrs(&NODE_CIDRS)]);
    check_matrix(&mut lab, &PODS_ON_NODE, false);
}

#[test]
fn the_clusters_ranges_tell_pods() {
    let clients = Clients { pods: &["pod", "d"], others: &["outside"] };
    check_matrix(&mut Lab::new(), &clients, false);
}

#[test]
fn masquerade_all_concerns_cluster_ips_in_interface_modes_too() {
    check_matrix(&mut lab(prefix("veth"), true), &PODS_ON_NODE, true);
}

/// Unlike kube-proxy, which ends when the ranges change.
#[test]
fn the_nodes_ranges_may_come_later_and_change() {
    let mut lab = lab(LocalDetection::NodeCidr, false);
    lab.apply(&[&web(), &slice("a c")]);
    // While pods cannot be identified, no packet to a ClusterIP is masqueraded.
    lab.check(&[("pod", WEB, keeps_source("a c")), ("node", WEB, keeps_source("a c"))]);
    for (cidrs, local, other) in [
        (NODE_CIDRS, "pod", "d"),
        (["10.244.2.0/24", "fd00:10:244:2::/64"], "d", "pod"),
        (NODE_CIDRS, "pod", "d"),
    ] {
        lab.apply(&[&Node::new().pod_cidrs(&cidrs)]);
        lab.check(&[(local, WEB, keeps_source("a c")), (other, WEB, masquerades("a c"))]);
    }
}

/// The ranges of the pods on the lab's node.
const NODE_CIDRS: [&str; 2] = ["10.244.1.0/24", "fd00:10:244:1::/64"];

#[test]
fn hairpin_works_in_interface_modes() {
    let mut lab = lab(prefix("veth"), false);
    lab.apply(&[&web().external_local(), &slice("a")]);
    for to in [WEB, NODE_PORT, EXTERNAL, VIP] {
        lab.check(&[("a", to, masquerades("a"))]);
    }
}

/// A pod in the node's network namespace reaches itself.
#[test]
fn a_pod_with_the_nodes_network_reaches_its_own_service() {
    let mut lab = lab(prefix("veth"), false);
    lab.world.serve("node", "node", 8080);
    lab.apply(&[&web(), &slice("node")]);
    for to in [WEB, NODE_PORT, EXTERNAL, VIP] {
        lab.check(&[("node", to, keeps_source("node"))]);
    }
    lab.check(&[("pod", WEB, keeps_source("node"))]);
}

#[test]
fn an_interface_may_come_after_the_rules_that_name_it() {
    for (local_detection, interface) in [(prefix("cali"), "cali1"), (bridge("br0"), "br0")] {
        let mut lab = lab(local_detection, false);
        lab.apply(&[&web(), &slice("a c")]);
        lab.check(&[("pod", WEB, masquerades("a c"))]);
        lab.world.add_pod("late", interface, "10.244.1.20");
        lab.check(&[("late", WEB, keeps_source("a c")), ("pod", WEB, masquerades("a c"))]);
    }
}

/// kube-proxy writes names without quotes, which nft refuses or misreads.
#[test]
fn unusual_interface_names_work_and_nft_loads_its_own_listing() {
    for interface in ["1234eth", "drop", "99", "veth@x", "fifteen-letters", "-", "accept"] {
        for local_detection in [bridge(interface), prefix(interface)] {
            let mut lab = lab(local_detection, false);
            lab.apply(&[&web().external_local(), &slice("a c")]);
            lab.world.add_pod("odd", interface, "10.244.1.20");
            let rows = [("odd", WEB, keeps_source("a c")), ("pod", WEB, masquerades("a c"))];
            lab.check_in(Scope::TCP, &rows);
            lab.check_in(Scope::TCP, &[("odd", VIP, keeps_source("a c"))]);
            if nft_can_load() {
                let node = lab.world.node();
                let listed = node.nft("list table ip kube-proxy");
                node.nft_script(&format!("delete table ip kube-proxy\n{listed}"));
                assert_eq!(node.nft("list table ip kube-proxy"), listed);
                lab.check_in(Scope { protocols: Scope::TCP.protocols, ..Scope::IPV4 }, &rows);
            }
        }
    }
}

#[test]
fn other_bits_of_the_mark_are_kept_and_ours_is_cleared() {
    if !nft_available() {
        return;
    }
    for masquerade_bit in [0, 14, 31] {
        let mut lab = Lab::with(Routing { masquerade_bit, ..routing() });
        lab.apply(&[&web(), &slice("a")]);
        lab.world.node().nft_script(
            "table inet watch {
               chain set-others { type filter hook prerouting priority -150; meta mark set 0x8; }
               chain leaving {
                 type filter hook postrouting priority 200
                 ct state new meta l4proto tcp meta mark 0x8 counter name kept
                 ct state new meta l4proto tcp meta mark != 0x8 counter name changed
               }
               counter kept { }
               counter changed { }
             }",
        );
        lab.check_in(Scope::TCP, &[("outside", WEB, masquerades("a"))]);
        let packets =
            |counter: &str| lab.world.node().nft(&format!("list counter inet watch {counter}"));
        assert!(!packets("kept").contains("packets 0 "), "{}", packets("kept"));
        assert!(packets("changed").contains("packets 0 "), "{}", packets("changed"));
    }
}
