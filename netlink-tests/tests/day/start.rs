//! The install beside kube-proxy, and the switch.

use netlink_tests::scenario::{NODE_PORT, WEB};

use crate::node::{Day, NODE_NAME, SOON};
use crate::signs::{FINE, Signs};

/// The configuration and the commands are there, and kube-proxy serves.
pub(crate) fn install(day: &mut Day) {
    day.begin("install");
    day.traffic.open();
    let config = day.deployed.config();
    let checked = day.run(&["config", "check", config.to_str().unwrap()]).ok();
    assert!(checked.starts_with("apiVersion: kubeproxy.config.k8s.io/v1alpha1\n"), "{checked}");
    day.expect(&Signs { alerts: &["DeltaproxyAbsent"], ..Signs::default() });
    let verified = day.verify();
    assert_eq!(verified.code(), Some(2), "{}", verified.stdout);
    let stderr = verified.stderr;
    assert!(stderr.contains("no daemon runs in this network namespace"), "{stderr}");
    let outcomes = day.expect_no_failure();
    assert!(outcomes.servers[WEB].iter().eq(["b"]), "{outcomes:?}");
}

/// The daemon starts, and removes the rules of kube-proxy after its first sync.
pub(crate) fn switch(day: &mut Day) {
    day.begin("switch");
    day.start(NODE_NAME).wait_for_line("removed leftovers of another proxy mode", SOON);
    day.expect(&Signs { causes: Some(&["start"]), ..FINE });
    assert!(!day.node().nft("list ruleset").contains("KUBE-"));
    day.expect_no_failure();
    // kube-proxy's connections go on as well.
    day.traffic.open();
    let outcomes = day.expect_no_failure();
    for to in [WEB, NODE_PORT] {
        assert!(outcomes.servers[to].iter().eq(["a"]), "{outcomes:?}");
    }
    assert_eq!(day.verify().ok(), "the tables are as desired: 1 services\n");
}
