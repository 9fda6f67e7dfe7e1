//! A node whose Node object appears after its daemon has started.

use engine::direct::ruleset::table;
use netlink_tests::cluster::{Cluster, SOON, node, slice, web};
use netlink_tests::{NODES, eventually};
use nft::kernel::{Kernel, Nftables};

use crate::SERVERS;

/// Starts the daemon of the first node without its Node object, which appears later.
#[track_caller]
fn start_without_node(cluster: &mut Cluster) {
    cluster.remove(NODES[0]);
    cluster.start(0);
    cluster.daemon(0).wait_for_line("no-node: this machine has no Node object", SOON);
    // Connections are remembered for a while.
    eventually("the end of the table", SOON, || {
        let found = cluster.node(0).run(|| Nftables::open().unwrap().read_table(&table()));
        found.unwrap().is_none().then_some(())
    });
    cluster.apply(NODES[0], &node(0));
    cluster.wait_for_slots(0, "abc");
}

#[test]
fn a_node_that_appears_late_takes_part_without_a_refusal_or_a_false_reason() {
    let mut cluster = Cluster::without_daemons("mode: annotated, remember: 1s");
    cluster.apply("web", &web());
    cluster.apply("slice", &slice(SERVERS));
    for _ in 0..2 {
        // The second time, the table of the first one exists.
        start_without_node(&mut cluster);
        let output = cluster.stop(0).stderr;
        for bad in ["refused", "node-on-other-device"] {
            assert!(!output.contains(bad), "{output}");
        }
    }
}
