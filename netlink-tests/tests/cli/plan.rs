//! `plan` of another configuration, beside a running daemon and its API server.

use std::fs;
use std::path::Path;

use netlink_tests::apiserver::ApiServer;
use netlink_tests::{Finished, Host, Net, deltaproxy_binary};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{SOON, tables, wait_for_endpoints};

/// A configuration file with these fields beside the API server.
fn file(api: &ApiServer, body: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
         mode: nftables\nmetricsBindAddress: 127.0.0.1:10249\n\
         clientConnection: {{kubeconfig: {}}}\n{body}",
        api.kubeconfig().display()
    );
    fs::write(file.path(), text).unwrap();
    file
}

fn plan(host: &Host, file: &Path, more: &[&str]) -> Finished {
    let config = format!("--config={}", file.display());
    host.output(deltaproxy_binary(), &[&["plan", &*config], more].concat())
}

#[test]
fn another_configuration_is_compared_with_the_daemons_and_with_the_tables() {
    let net = Net::new();
    let api = net.node().run(ApiServer::with_web);
    let old = file(&api, "");
    let new = file(&api, "nftables: {masqueradeBit: 3}\nconntrack: {min: 7}\n");
    let config = format!("--config={}", old.path().display());
    let arguments = ["run", &*config, "--hostname-override=node1"];
    let daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    wait_for_endpoints(net.node(), 1);
    let before = tables(net.node());

    let same = plan(net.node(), old.path(), &[]);
    assert_eq!(same.code(), Some(0), "{}\n{}", same.stdout, same.stderr);
    assert_eq!(
        same.stdout,
        "the running daemon has this configuration: it would not restart\n\
         nothing would change: the tables are as desired\n"
    );
    let other = plan(net.node(), new.path(), &[]);
    assert_eq!(other.code(), Some(1), "{}", other.stderr);
    for line in [
        "  nftables.masqueradeBit: 14 -> 3 (tables)",
        "  conntrack.min: 131072 -> 7 (daemon)",
        "the tables would change:",
        "elements of 0 services would change",
    ] {
        assert!(other.stdout.lines().any(|it| it == line), "{line} not in {}", other.stdout);
    }
    assert!(!other.stdout.contains("+ add rule"), "{}", other.stdout);
    let listed = plan(net.node(), new.path(), &["--commands"]);
    assert!(listed.stdout.contains("\n+ add rule ip kube-proxy "), "{}", listed.stdout);
    let document: Value =
        serde_json::from_str(&plan(net.node(), new.path(), &["--output=json"]).stdout).unwrap();
    assert_eq!(document["settings"]["node"], "node1");
    let field = json!({
        "field": "nftables.masqueradeBit", "from": 14, "to": 3, "effect": "tables"
    });
    assert_eq!(document["configuration"][0], field);
    assert!(document["summary"]["added"]["rule"].as_u64() > Some(0), "{}", document["summary"]);

    assert_eq!(tables(net.node()), before);
    let _ = daemon.terminate(SOON);
}

#[test]
fn a_field_of_the_daemon_alone_changes_no_table() {
    let net = Net::new();
    let api = net.node().run(ApiServer::with_web);
    let (old, new) = (file(&api, ""), file(&api, "conntrack: {min: 7}\n"));
    let config = format!("--config={}", old.path().display());
    let arguments = ["run", &*config, "--hostname-override=node1"];
    let daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    wait_for_endpoints(net.node(), 1);
    let planned = plan(net.node(), new.path(), &[]);
    assert_eq!(planned.code(), Some(1), "{}", planned.stderr);
    let last = planned.stdout.lines().last();
    assert_eq!(last, Some("nothing would change: the tables are as desired"), "{}", planned.stdout);
    let _ = daemon.terminate(SOON);
}

#[test]
fn without_a_daemon_a_file_is_compared_with_the_tables_alone() {
    let net = Net::new();
    let api = net.node().run(ApiServer::with_web);
    let name = "--hostname-override=node1";
    let planned = plan(net.node(), file(&api, "").path(), &[name, "--output=json"]);
    assert_eq!(planned.code(), Some(1), "{}", planned.stderr);
    let document: Value = serde_json::from_str(&planned.stdout).unwrap();
    assert_eq!(document["configuration"], Value::Null);
    assert!(document["summary"]["services"]["default/web"]["added"].as_u64() > Some(0));
    api.stop();
    let trouble = plan(net.node(), file(&api, "").path(), &[name]);
    assert_eq!(trouble.code(), Some(2), "{}", trouble.stdout);
}
