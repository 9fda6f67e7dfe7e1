//! The next daemon, and one with a wrong node name.

use netlink_tests::eventually;
use netlink_tests::scenario::{NODE_PORT, WEB};

use crate::node::{Day, NODE_NAME, SOON};
use crate::signs::{FINE, Signs};

/// What is seen between the pods of an update: the tables stay.
const BETWEEN: Signs<'_> = Signs {
    probes: None,
    condition: None,
    problems: None,
    causes: None,
    endpoints: FINE.endpoints,
    alerts: &["DeltaproxyAbsent", "DeltaproxyDown"],
};

/// The DaemonSet ends the old pod, then starts the next one.
pub(crate) fn update(day: &mut Day) {
    day.begin("update");
    let log = day.terminate().stderr;
    assert!(log.contains("tables=left to the next program"), "{log}");
    day.expect(&BETWEEN);
    day.expect_no_failure();
    day.begin("updated");
    day.start(NODE_NAME).wait_for_line("removed the handover tables", SOON);
    day.expect(&Signs { causes: Some(&["start"]), ..FINE });
    day.expect_no_failure();
}

/// A daemon whose name no Node object has stays not ready. Node ports are closed until a daemon has
/// the right name.
pub(crate) fn wrong_name(day: &mut Day) {
    day.begin("wrong name");
    day.terminate();
    day.start("typo");
    day.expect(&Signs {
        probes: Some([503, 200]),
        condition: Some("not ready: this node has no Node object; NodePorts are closed"),
        problems: Some(&["missing_node Node typo"]),
        causes: Some(&["start"]),
        alerts: &[
            "DeltaproxyNodeMissing",
            "DeltaproxyNodePortsClosed",
            "DeltaproxyObjectsLeftOut",
            "DeltaproxyObjectsWereLeftOut",
        ],
        ..FINE
    });
    let event = |reason: &str| {
        let of_node = |event: &serde_json::Value| {
            event["reason"] == reason && event["regarding"]["name"] == "typo"
        };
        day.api.events().iter().any(of_node)
    };
    eventually("an Event", SOON, || event("NodeNotFound").then_some(()));

    day.terminate();
    day.begin("right name");
    day.start(NODE_NAME);
    day.expect(&Signs { causes: Some(&["start"]), ..FINE });
    day.traffic.ask_open();
    let outcomes = day.traffic.take();
    assert!(outcomes.failed.keys().eq([&NODE_PORT]), "{:?}", outcomes.failed);
    assert!(outcomes.servers[WEB].iter().eq(["a"]), "{outcomes:?}");
    day.expect_no_failure();
}
