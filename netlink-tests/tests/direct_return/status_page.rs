//! The status page of a node that hands packets on.

use netlink_tests::cluster::SOON;
use netlink_tests::{eventually, http};
use serde_json::{Value, json};

use crate::cluster;

#[test]
fn the_status_page_has_services_connections_and_other_nodes() {
    let cluster = cluster();
    let direct = eventually("the state of direct return", SOON, || {
        let answer = http::get(cluster.node(0), 10249, "/status.json")?;
        let status: Value = serde_json::from_str(&answer.body).unwrap();
        let direct = status["direct_return"].clone();
        let is_direct = direct["services"] == 1 && direct["nodes"] == json!({ "reachable": 2 });
        is_direct.then_some(direct)
    });
    assert!(direct["connections"].is_u64(), "{direct}");
    let found = http::get(cluster.node(0), 10249, "/status.json?services=198.51.100.2").unwrap();
    let found: Value = serde_json::from_str(&found.body).unwrap();
    let services = found["services"].as_array().unwrap();
    assert_eq!(services.len(), 3, "{found}");
    assert!(services.iter().all(|it| it["direct_return"] == true), "{found}");
}
