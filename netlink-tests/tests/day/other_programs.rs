//! Another program flushes all tables: owned ones stay, and others are written again.

use netlink_tests::kernel_has_owners;

use crate::node::{Day, NODE_NAME, SOON};
use crate::signs::{FINE, Signs};

/// Of tables that the daemon owns since it added them.
pub(crate) fn flush_owned(day: &mut Day) {
    if !kernel_has_owners() {
        return;
    }
    day.begin("flush of owned tables");
    day.node().nft("flush ruleset");
    day.expect(&FINE);
    day.expect_no_failure();
}

/// Of tables without an owner, as all are before Linux 6.9.
pub(crate) fn flush(day: &mut Day) {
    day.begin("another configuration");
    day.deployed.add("deltaproxy: {tableOwnership: off}");
    day.terminate();
    // The hash of the ConfigMap restarts the pod.
    day.start(NODE_NAME).wait_for_line("removed the handover tables", SOON);
    day.expect(&Signs { causes: Some(&["start"]), ..FINE });
    day.expect_no_failure();

    day.begin("flush of tables without an owner");
    day.node().nft("flush ruleset");
    let alerts = &["DeltaproxyTablesDiffered"];
    day.expect(&Signs { causes: Some(&["other-program"]), alerts, ..FINE });
    // New connections fail until the tables are written again.
    let _ = day.traffic.take();
    day.begin("after the flush");
    day.expect(&FINE);
    day.expect_no_failure();
    assert!(day.verify().ok().starts_with("the tables are as desired: "));
}
