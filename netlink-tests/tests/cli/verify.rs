//! `verify`.

use engine::ruleset;
use netlink_tests::apiserver::ApiServer;
use netlink_tests::reader::{Family, Table};
use netlink_tests::scenario::Manifests;
use netlink_tests::{Finished, Host, Net, deltaproxy_binary};
use nft::kernel::{Kernel, Nftables};
use nft::{Operation, Transaction};
use serde_json::Value;

use super::{SOON, manifests, wait_for_endpoints};

fn verify(host: &Host, manifests: &Manifests, more: &[&str]) -> Finished {
    let mut arguments = manifests.arguments("verify");
    arguments.extend(more);
    host.output(deltaproxy_binary(), &arguments)
}

#[test]
fn tables_as_desired_are_equal_and_a_changed_endpoint_is_a_difference_of_its_service() {
    let net = Net::new();
    let manifests = manifests("a");
    let _ = manifests.once(net.node(), "apply").ok();
    let equal = verify(net.node(), &manifests, &[]);
    assert_eq!(equal.code(), Some(0), "{}", equal.stderr);
    assert_eq!(equal.stdout, "the tables are as desired: 1 services\n");

    manifests.set_endpoints("c");
    let before = net.node().read_table(Family::Ip);
    let different = verify(net.node(), &manifests, &[]);
    assert_eq!(different.code(), Some(1), "{}", different.stderr);
    let lines: Vec<_> = different.stdout.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("default/web: ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("  + add element")), "{lines:?}");
    assert_eq!(lines.last(), Some(&"1 of 1 services differ"));
    assert_eq!(net.node().read_table(Family::Ip), before);
}

#[test]
fn elements_that_another_program_removed_are_listed_in_json() {
    let net = Net::new();
    let manifests = manifests("a");
    let _ = manifests.once(net.node(), "apply").ok();
    net.node().run(|| {
        let table = ruleset::table(nft::Family::Ip);
        let flush = Operation::FlushSet(table, "services".into());
        let mut kernel = Nftables::open().unwrap();
        kernel.commit(&Transaction { operations: vec![flush] }).unwrap();
    });
    let different = verify(net.node(), &manifests, &["--output=json"]);
    assert_eq!(different.code(), Some(1), "{}", different.stderr);
    let document: Value = serde_json::from_str(&different.stdout).unwrap();
    assert_eq!(document["count"], 1);
    let changes = document["services"]["default/web"].as_array().unwrap();
    let has_route = |change: &Value| {
        let command = change["command"].as_str().unwrap();
        change["sign"] == "+" && command.contains("services { 10.96.0.10 . tcp . 80")
    };
    assert!(changes.iter().any(has_route), "{document:#}");
}

#[test]
fn missing_tables_differ_and_missing_manifests_are_trouble() {
    let net = Net::new();
    let manifests = manifests("a");
    let different = verify(net.node(), &manifests, &[]);
    assert_eq!(different.code(), Some(1), "{}", different.stderr);
    assert!(different.stdout.contains("of no service: "), "{}", different.stdout);
    let trouble = net.node().output(deltaproxy_binary(), &["verify", "--manifests=/nonexistent"]);
    assert_eq!(trouble.code(), Some(2), "{}", trouble.stderr);
    assert!(trouble.stderr.contains("/nonexistent"), "{}", trouble.stderr);
}

#[test]
fn the_objects_of_an_api_server_are_compared_beside_its_daemon() {
    let net = Net::new();
    let api = net.node().run(ApiServer::with_web);
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let run = |command: &str| {
        let arguments = [command, &*kubeconfig, "--hostname-override=node1", "--settings=flags"];
        net.node().output(deltaproxy_binary(), &arguments)
    };
    let different = run("verify");
    assert_eq!(different.code(), Some(1), "{}", different.stderr);
    let arguments = ["run", &*kubeconfig, "--hostname-override=node1", "--metrics-bind-address="];
    let daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    wait_for_endpoints(net.node(), 1);
    let equal = run("verify");
    assert_eq!(equal.code(), Some(0), "{}\n{}", equal.stdout, equal.stderr);
    let _ = daemon.terminate(SOON);
    api.stop();
    let trouble = run("verify");
    assert_eq!(trouble.code(), Some(2), "{}", trouble.stdout);
    assert!(
        trouble.stderr.contains(&format!("{}: the API server cannot be reached", api.address())),
        "{}",
        trouble.stderr
    );
}

/// A daemon keeps the chains of a size class without a list until it reads the tables again.
#[test]
fn chains_of_a_size_class_that_was_used_are_no_difference() {
    let net = Net::new();
    let manifests = manifests("a");
    let daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 1);
    let many: Vec<_> = (1..10).map(|n| format!("10.244.9.{n}")).collect();
    manifests.set_endpoints(&many.join(" "));
    wait_for_endpoints(net.node(), 9);
    manifests.set_endpoints("c");
    wait_for_endpoints(net.node(), 1);
    let of_nine = |table: &Table| table.chains.contains_key("pick-16");
    assert!(net.node().read_table(Family::Ip).is_some_and(|table| of_nine(&table)));
    let equal = verify(net.node(), &manifests, &[]);
    assert_eq!(equal.code(), Some(0), "{}\n{}", equal.stdout, equal.stderr);
    let _ = daemon.terminate(SOON);
}

/// As README and troubleshooting print the command.
#[test]
fn without_flags_the_settings_are_those_of_the_running_daemon() {
    let net = Net::new();
    let api = net.node().run(ApiServer::with_web);
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let run = |more: &[&str]| {
        let arguments = [&["verify", &*kubeconfig], more].concat();
        net.node().output(deltaproxy_binary(), &arguments)
    };
    let unknown = run(&[]);
    assert_eq!(unknown.code(), Some(2), "{}", unknown.stdout);
    assert!(
        unknown.stderr.contains("no daemon runs in this network namespace"),
        "{}",
        unknown.stderr
    );
    assert_eq!(run(&["--settings=daemon"]).code(), Some(2));
    let arguments = [
        "run",
        &kubeconfig,
        "--hostname-override=node1",
        "--metrics-bind-address=",
        "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
        "--nodeport-addresses=192.168.50.0/24",
        "--masquerade-bit=3",
        "--log-level=warn",
    ];
    let daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    wait_for_endpoints(net.node(), 1);
    let equal = run(&[]);
    assert_eq!(equal.code(), Some(0), "{}\n{}", equal.stdout, equal.stderr);
    let origin = "settings: those of the running daemon (process ";
    assert!(equal.stderr.contains(origin), "{}", equal.stderr);
    assert!(equal.stderr.contains("node node1"), "{}", equal.stderr);
    let json: Value = serde_json::from_str(&run(&["--output=json"]).stdout).unwrap();
    assert_eq!(
        (&json["settings"]["of"], &json["settings"]["node"]),
        (&"daemon".into(), &"node1".into())
    );
    assert_eq!(json["settings"]["nodeFound"], true);

    let guessed = run(&["--settings=flags", "--hostname-override=nobody"]);
    assert_eq!(guessed.code(), Some(1), "{}", guessed.stderr);
    let no_node = "settings: the defaults; node nobody, for which there is no Node object";
    assert!(guessed.stderr.contains(no_node), "{}", guessed.stderr);
    let contradiction = run(&["--settings=daemon", "--masquerade-all"]);
    assert_eq!(contradiction.code(), Some(2), "{}", contradiction.stdout);
    let given = run(&["--masquerade-all", "--hostname-override=node1"]);
    assert_eq!(given.code(), Some(1), "{}", given.stderr);
    assert!(given.stderr.contains("settings: those of the flags"), "{}", given.stderr);
    let _ = daemon.terminate(SOON);
    assert_eq!(run(&[]).code(), Some(2));
}

#[test]
fn a_plan_has_the_settings_of_the_running_daemon_or_the_defaults() {
    let net = Net::new();
    let manifests = manifests("a");
    let path = manifests.path().to_str().unwrap();
    let plan = |more: &[&str]| {
        let arguments =
            [&["plan", "--manifests", path, "--hostname-override=node-a"], more].concat();
        net.node().output(deltaproxy_binary(), &arguments)
    };
    let first = plan(&["--output=json"]);
    assert_eq!(first.code(), Some(1), "{}", first.stderr);
    let json: Value = serde_json::from_str(&first.stdout).unwrap();
    assert_eq!(json["settings"]["of"], "defaults");
    let _daemon = net.node().spawn(deltaproxy_binary(), &manifests.arguments("run"));
    wait_for_endpoints(net.node(), 1);
    let equal = plan(&[]);
    assert_eq!(equal.code(), Some(0), "{}\n{}", equal.stdout, equal.stderr);
    assert!(equal.stderr.contains("settings: those of the running daemon"), "{}", equal.stderr);
    assert_eq!(plan(&["--settings=flags"]).code(), Some(1));
}
