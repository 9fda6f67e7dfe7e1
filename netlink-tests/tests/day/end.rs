//! The way back to kube-proxy.

use netlink_tests::scenario::kube_proxy::{DELETION, MODE_IPTABLES};
use netlink_tests::scenario::{NODE_PORT, WEB};

use crate::node::{Day, sysctls};
use crate::signs::{FINE, Signs};

pub(crate) fn back(mut day: Day) {
    day.begin("back");
    day.terminate();
    day.expect(&Signs {
        endpoints: FINE.endpoints,
        alerts: &["DeltaproxyAbsent", "DeltaproxyDown"],
        ..Signs::default()
    });
    day.expect_no_failure();
    // kube-proxy in mode iptables deletes the tables of mode nftables at its start.
    day.node().nft_script(DELETION);
    day.node().nft_script(MODE_IPTABLES);
    day.expect_no_failure();
    let removed = day.run(&["cleanup"]).ok();
    assert!(removed.contains("delete table ip deltaproxy-handover\n"), "{removed}");
    let outcomes = day.expect_no_failure();
    for to in [WEB, NODE_PORT] {
        assert!(outcomes.servers[to].iter().eq(["b"]), "{outcomes:?}");
    }
    day.expect(&Signs { alerts: &["DeltaproxyAbsent", "DeltaproxyDown"], ..Signs::default() });
    assert_eq!(day.node().nft("list ruleset"), day.before.ruleset);
    assert_eq!(sysctls(day.node()), day.before.sysctls);
}
