//! `apply`, `plan` and `cleanup`.

use netlink_tests::scenario::WEB;
use netlink_tests::{Net, deltaproxy_binary, nft_available};
use serde_json::json;

use super::{manifests, tables};

#[test]
fn apply_writes_the_tables_and_prints_the_messages_sent() {
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let _server = pod.serve_tcp(8080, "a");
    let manifests = manifests("a");
    let first = manifests.once(net.node(), "apply").ok();
    assert!(first.contains("messages in "), "{first}");
    assert_eq!(net.pod("p", "10.244.1.9").connect_tcp(WEB).server(), "a");

    let before = tables(net.node());
    let second = manifests.once(net.node(), "apply").ok();
    assert!(second.contains("nothing to do"), "{second}");
    assert_eq!(tables(net.node()), before);
}

#[test]
fn apply_prints_json_for_programs() {
    let net = Net::new();
    let manifests = manifests("a c");
    let json = || -> serde_json::Value {
        let arguments = [manifests.arguments("apply"), vec!["--output", "json"]].concat();
        serde_json::from_str(&net.node().output(deltaproxy_binary(), &arguments).ok()).unwrap()
    };
    let first = json();
    assert!(first["transactions"].as_u64().unwrap() >= 1);
    assert_eq!(first["elements"]["ip kube-proxy endpoints"]["added"], 2);
    assert_eq!(first["messages"]["newtable"], 2);
    assert!(first["bytes"].as_u64().unwrap() > 1000 && first["kernel_us"].is_u64());
    assert_eq!(json()["transactions"], 0);
    manifests.set_endpoints("a");
    let third = json();
    assert_eq!(third["elements"]["ip kube-proxy endpoints"]["removed"], 1);
    assert_eq!(
        third["messages"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["delsetelem", "newsetelem"]
    );
}

#[test]
fn plan_prints_the_changes_of_apply_and_commits_nothing() {
    let net = Net::new();
    let manifests = manifests("a");
    let plan = |code| {
        let finished = manifests.once(net.node(), "plan");
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        finished.stdout
    };
    let first = plan(1);
    assert!(first.lines().all(|line| line.starts_with("+ add ")), "{first}");
    assert!(first.contains("+ add table ip kube-proxy"), "{first}");
    assert_eq!(tables(net.node()), [None, None]);

    let _ = manifests.once(net.node(), "apply").ok();
    assert_eq!(plan(0), "nothing would change: the tables are as desired\n");
    let before = tables(net.node());
    manifests.set_endpoints("c");
    let change = plan(1);
    assert!(
        change.contains("- delete element ip kube-proxy endpoints { 1:0 . tcp . 0 }\n")
            && change.contains(
                "+ add element ip kube-proxy endpoints { 1:0 . tcp . 0 : 10.244.2.7 . 8080 }\n"
            ),
        "{change}"
    );
    assert_eq!(tables(net.node()), before);
}

#[test]
fn plan_prints_json_for_programs() {
    let net = Net::new();
    let manifests = manifests("a");
    let plan = |code| -> serde_json::Value {
        let arguments = [manifests.arguments("plan"), vec!["--output", "json"]].concat();
        let finished = net.node().output(deltaproxy_binary(), &arguments);
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        serde_json::from_str(&finished.stdout).unwrap()
    };
    assert_eq!(plan(1)["summary"]["added"]["table"], 2);
    let _ = manifests.once(net.node(), "apply").ok();
    let nothing = json!({
        "changes": [], "summary": { "added": {}, "removed": {}, "services": {} },
        "problems": [], "configuration": null,
        "settings": { "of": "flags", "node": "node-a", "nodeFound": true },
    });
    assert_eq!(plan(0), nothing);
    manifests.set_endpoints("c");
    let change = plan(1);
    assert!(change["summary"]["removed"]["element"].as_u64() >= Some(1), "{change}");
    let added = json!({
        "sign": "+", "action": "add", "kind": "element", "family": "ip", "table": "kube-proxy",
        "object": "endpoints { 1:0 . tcp . 0 : 10.244.2.7 . 8080 }",
    });
    assert!(change["changes"].as_array().unwrap().contains(&added), "{change}");
    manifests.write_text("bad", "kind: Unheard\napiVersion: v1\n");
    let problems = plan(2)["problems"].clone();
    assert!(problems[0].as_str().unwrap().contains("Unheard"), "{problems}");
}

#[test]
fn cleanup_removes_our_tables_and_nothing_else() {
    let net = Net::new();
    let manifests = manifests("a");
    let cleanup = || net.node().output(deltaproxy_binary(), &["cleanup"]).ok();
    assert_eq!(cleanup(), "nothing to remove\n");
    let _ = manifests.once(net.node(), "apply").ok();
    if nft_available() {
        net.node().nft_script("table ip other { chain kube-proxy { drop; }; }");
    }
    let removed = cleanup();
    assert_eq!(removed, "delete table ip kube-proxy\ndelete table ip6 kube-proxy\n");
    assert_eq!(tables(net.node()), [None, None]);
    if nft_available() {
        assert!(net.node().nft("list tables").contains("other"));
    }
}
