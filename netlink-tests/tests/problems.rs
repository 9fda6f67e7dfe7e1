//! A daemon that looks healthy and is not says so: `/readyz`, `problems`, `top`, metrics and Events.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netlink_tests::apiserver::object::{node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Fault, Kind, On};
use netlink_tests::http::{body, get, get_as};
use netlink_tests::reader::Family;
use netlink_tests::scenario::Manifests;
use netlink_tests::{Host, Net, Process, deltaproxy_binary, eventually};
use serde_json::{Value, json};

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

fn daemon(host: &Host, api: &ApiServer, name: &str) -> Process {
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    host.spawn(deltaproxy_binary(), &["run", &kubeconfig, &format!("--hostname-override={name}")])
}

/// The status code of a probe.
fn status(host: &Host, path: &str) -> Option<u16> {
    get(host, 10256, path).map(|answer| answer.status)
}

/// Waits until `problems` ends with this code; returns its output.
#[track_caller]
fn problems(host: &Host, code: i32, output: &str) -> String {
    eventually(&format!("code {code} of problems"), SOON, || {
        let arguments = ["problems", "--output", output];
        let finished = host.output(deltaproxy_binary(), &arguments);
        (finished.code() == Some(code)).then_some(finished.stdout)
    })
}

/// Waits until the first line of `top` has this text.
#[track_caller]
fn wait_for_top(host: &Host, text: &str) {
    eventually(&format!("{text:?} on the first line"), SOON, || {
        let arguments = ["top", "--once", "--interval=100ms"];
        let screen = host.output(deltaproxy_binary(), &arguments).stdout;
        screen.lines().next().is_some_and(|line| line.contains(text)).then_some(())
    });
}

#[track_caller]
fn wait_for_metric(host: &Host, line: &str) {
    eventually(line, SOON, || {
        body(host, 10249, "/metrics").lines().any(|it| it == line).then_some(())
    });
}

#[test]
fn a_node_whose_name_the_cluster_lacks_is_not_ready_until_it_has_it() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::start);
    api.push(service_cidr("kubernetes", "10.96.0.0/16"));
    let daemon = daemon(host, &api, "typo");
    wait_for_metric(host, "deltaproxy_node_missing 1");
    wait_for_metric(host, "deltaproxy_node_ports_closed{ip_family=\"IPv4\"} 1");
    wait_for_top(host, "not ready: this node has no Node object; NodePorts are closed");
    assert_eq!(status(host, "/readyz"), Some(503));
    assert_eq!(status(host, "/livez"), Some(200));
    let text = problems(host, 1, "text");
    assert!(text.starts_with("Node typo (missing_node, for "), "{text}");
    eventually("an Event of the Node", SOON, || {
        api.events().into_iter().find(|event| {
            event["reason"] == "NodeNotFound"
                && event["regarding"]["kind"] == "Node"
                && event["regarding"]["name"] == "typo"
        })
    });

    api.push(node("typo", "192.168.50.2"));
    wait_for_metric(host, "deltaproxy_node_missing 0");
    wait_for_metric(host, "deltaproxy_problems_present{kind=\"missing_node\"} 0");
    eventually("readiness", SOON, || (status(host, "/readyz") == Some(200)).then_some(()));
    assert_eq!(problems(host, 0, "text"), "nothing is left out\n");
    // The node works on without its object.
    api.delete(Kind::Node, "typo");
    eventually("the deletion", SOON, || {
        body(host, 10256, "/healthz").contains("\"nodeEligible\":").then_some(())
    });
    assert_eq!(status(host, "/readyz"), Some(200));
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
}

/// Without the list of Nodes, it is not known whether the node's name is wrong.
#[test]
fn a_node_that_may_not_read_nodes_is_not_ready_and_has_no_missing_object() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::with_web);
    let forbid = || {
        api.misbehave(Kind::Node, On::Any, Fault::Status(403, "Forbidden"), usize::MAX);
    };
    forbid();
    let mut first = daemon(host, &api, "node1");
    wait_for_top(host, "not ready: no watch of nodes for ");
    first.wait_for_line("bind the cluster role system:node-proxier", SOON);
    assert_eq!(status(host, "/readyz"), Some(503));
    assert_eq!(status(host, "/livez"), Some(200));
    wait_for_metric(host, "deltaproxy_watch_connected{resource=\"nodes\"} 0");
    wait_for_metric(host, "deltaproxy_node_missing 0");
    assert_eq!(problems(host, 0, "text"), "nothing is left out\n");
    assert!(host.read_table(Family::Ip).is_none());

    api.heal();
    wait_for_top(host, "  ready  node node1");
    assert_eq!(status(host, "/readyz"), Some(200));
    forbid();
    api.stop();
    api.reopen();
    wait_for_top(host, "ready, but out of date: no watch of nodes for ");
    assert_eq!(status(host, "/readyz"), Some(200));
    assert_eq!(first.terminate(SOON).code(), Some(0));

    // A wrong name stays wrong without the list.
    api.heal();
    let _second = daemon(host, &api, "typo");
    wait_for_top(host, "not ready: this node has no Node object");
    forbid();
    api.stop();
    api.reopen();
    let both = "not ready: this node has no Node object; no watch of nodes for ";
    wait_for_top(host, both);
    assert_eq!(status(host, "/readyz"), Some(503));
    assert!(problems(host, 1, "text").starts_with("Node typo (missing_node, for "));
    api.heal();
    api.push(node("typo", "192.168.50.2"));
    wait_for_top(host, "  ready  node typo");
    assert_eq!(problems(host, 0, "text"), "nothing is left out\n");
}

#[test]
fn a_problem_is_present_until_its_object_is_corrected_or_deleted() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::with_web);
    let _daemon = daemon(host, &api, "node1");
    wait_for_top(host, "  ready  node node1");
    let claim = |name: &str, address: &str, external: Value| {
        let mut claim = service(name, address, 80);
        claim["spec"]["externalIPs"] = external;
        claim
    };
    api.push(claim("default/bad", "10.96.0.11", json!(["somewhere"])));
    wait_for_metric(host, "deltaproxy_problems_present{kind=\"invalid\"} 1");
    api.push(claim("default/one", "10.96.0.12", json!(["192.0.2.1"])));
    api.push(claim("default/two", "10.96.0.13", json!(["192.0.2.1"])));
    wait_for_metric(host, "deltaproxy_problems_present{kind=\"conflict\"} 1");
    let document: Value = serde_json::from_str(&problems(host, 1, "json")).unwrap();
    let about = |kind: &str| {
        let problems = document["problems"].as_array().unwrap();
        problems.iter().find(|it| it["kind"] == kind).map(|it| it["object"].clone())
    };
    assert_eq!(about("invalid"), Some(json!("Service default/bad")), "{document}");
    assert_eq!(about("conflict"), Some(json!("Service default/two")), "{document}");
    assert!(problems(host, 1, "yaml").contains("object: Service default/two"));

    api.push(claim("default/bad", "10.96.0.11", json!([])));
    wait_for_metric(host, "deltaproxy_problems_present{kind=\"invalid\"} 0");
    api.delete(Kind::Service, "default/one");
    wait_for_metric(host, "deltaproxy_problems_present{kind=\"conflict\"} 0");
    problems(host, 0, "text");
}

#[test]
fn the_metrics_name_the_configuration_in_use_and_whether_the_last_change_was_refused() {
    let net = Net::new();
    let host = net.node();
    let manifests = Manifests::new(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    // Returns the line of the metric with the digest of the text.
    let write = |body: &str| {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        std::fs::write(file.path(), format!("{head}mode: nftables\n{body}")).unwrap();
        let sum = host.output("sha256sum", &[file.path().to_str().unwrap()]).ok();
        format!("deltaproxy_configuration_info{{sha256=\"{}\"}} 1", &sum[..64])
    };
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let loaded_at = || {
        let name = "deltaproxy_configuration_last_load_timestamp_seconds ";
        let page = body(host, 10249, "/metrics");
        page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<f64>().unwrap()
    };
    let (first, before) = (write(""), since_1970());
    let (folder, config) = (manifests.path().to_str().unwrap(), file.path().to_str().unwrap());
    let arguments = ["run", "--manifests", folder, "--hostname-override=node1", "--config", config];
    let mut daemon = host.spawn(deltaproxy_binary(), &arguments);
    wait_for_metric(host, &first);
    wait_for_metric(host, "deltaproxy_configuration_refused 0");
    let of_first = loaded_at();
    assert!((before..=since_1970()).contains(&of_first), "{of_first}");

    let _ = write("clusterCIDR: nonsense\n");
    wait_for_metric(host, "deltaproxy_configuration_refused 1");
    wait_for_metric(host, &first);
    assert_eq!(loaded_at(), of_first);
    let refused = "the configuration file is refused, an earlier one is in use";
    wait_for_top(host, refused);
    let text = problems(host, 1, "text");
    assert!(text.contains(config) && text.contains("clusterCIDR"), "{text}");
    let status: Value = serde_json::from_str(&body(host, 10249, "/status.json")).unwrap();
    assert!(status["condition"].as_str().unwrap().contains(refused), "{status}");
    assert_eq!(status["problems_present"], 1);

    // The same settings in another text, without a restart.
    let same = write("# nothing new\n");
    wait_for_metric(host, &same);
    wait_for_metric(host, "deltaproxy_configuration_refused 0");
    daemon.wait_for_line("the configuration file can be used again", SOON);
    problems(host, 0, "text");
    assert!(loaded_at() > of_first);
    assert!(!body(host, 10249, "/metrics").contains(&first));

    let other = write("nftables: {masqueradeBit: 3}\n");
    wait_for_metric(host, &other);
}

#[test]
fn a_node_object_that_is_deleted_is_a_problem_until_it_is_there_again() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::with_web);
    let mut daemon = daemon(host, &api, "node1");
    wait_for_top(host, "  ready  node node1");
    api.delete(Kind::Node, "node1");
    daemon.wait_for_line("Node node1: was deleted; its last content stays in use", SOON);
    assert!(problems(host, 1, "text").contains("Node node1 (missing_node"));
    assert_eq!(status(host, "/readyz"), Some(200));
    api.push(node("node1", "192.168.50.2"));
    daemon.wait_for_line("Node node1 exists now", SOON);
    problems(host, 0, "text");
}

#[test]
fn the_metrics_port_answers_no_name_that_a_web_page_could_have() {
    let net = Net::new();
    let host = net.node();
    let manifests = Manifests::new(&[]);
    let folder = manifests.path().to_str().unwrap();
    let arguments = ["run", "--manifests", folder, "--hostname-override=n7.example.com"];
    let _daemon = host.spawn(deltaproxy_binary(), &arguments);
    wait_for_metric(host, "deltaproxy_configuration_refused 0");
    let scraper = "X-Prometheus-Scrape-Timeout-Seconds: 10\r\n";
    for (name, headers, status) in [
        ("127.0.0.1:10249", "", 200),
        ("localhost", "", 200),
        ("n7.example.com:10249", "", 200),
        ("evil.example:10249", "", 421),
        ("n8.example.com:10249", scraper, 200),
        ("evil.example", &format!("{scraper}Accept-Language: en\r\n"), 421),
    ] {
        for path in ["/", "/metrics", "/status.json"] {
            let answer = get_as(host, (name, headers), 10249, path).unwrap();
            assert_eq!(answer.status, status, "{name} {path}");
        }
        assert_ne!(get_as(host, (name, headers), 10256, "/healthz").unwrap().status, 421);
    }
}

/// A silent watch is looked at after 65 s only.
#[test]
fn watches_from_an_address_that_the_node_loses_are_lost_at_once() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::with_web);
    let mut daemon = daemon(host, &api, "node1");
    daemon.wait_for_line("the tables are complete", SOON);
    let own = [127, 0, 0, 1];
    host.remove_address(own);
    daemon.wait_for_line("cannot be reached", SOON);
    host.add_address(own);
    daemon.wait_for_line("again", SOON);
}

#[test]
fn lost_watches_are_on_the_first_line() {
    let net = Net::new();
    let host = net.node();
    assert!(problems(host, 2, "text").is_empty(), "no daemon runs");
    let api = host.run(ApiServer::with_web);
    let _daemon = daemon(host, &api, "node1");
    wait_for_top(host, "  ready  node node1");
    api.stop();
    wait_for_top(host, "ready, but out of date: no watch of ");
    api.reopen();
    wait_for_top(host, "  ready  node node1");
}

#[test]
fn a_server_that_asks_for_a_long_wait_is_named_and_asked_within_a_minute() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::with_web);
    let mut daemon = daemon(host, &api, "node1");
    wait_for_top(host, "  ready  node node1");
    api.misbehave(Kind::Service, On::Any, Fault::Busy(u32::MAX), 1);
    api.stop();
    api.reopen();
    let line = daemon.wait_for_line("the API server asks to wait 4294967295 s", SOON);
    assert!(line.contains("WARN"), "{line}");
    let wait = line.split("services: ").nth(1).and_then(|it| it.split(' ').next());
    let wait: u64 = wait.unwrap().parse().unwrap();
    assert!((30..=60).contains(&wait), "{line}");
    wait_for_top(host, "ready, but out of date: no watch of services");
}

#[test]
fn an_object_that_flips_between_good_and_bad_does_not_fill_the_log() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::with_web);
    let mut daemon = daemon(host, &api, "node1");
    wait_for_top(host, "  ready  node node1");
    let claim = |name: &str, address: &str, external: Value| {
        let mut claim = service(name, address, 80);
        claim["spec"]["externalIPs"] = external;
        claim
    };
    for i in 0..300 {
        api.push(claim("default/flips", "10.96.0.11", json!([format!("somewhere-{i}")])));
        api.push(claim("default/flips", "10.96.0.11", json!([])));
    }
    api.push(claim("default/other", "10.96.0.12", json!(["elsewhere"])));
    daemon.wait_for_line("Service default/other: ", SOON);
    daemon.wait_for_line(" log lines were dropped: ", SOON);
    let output = daemon.output();
    let lines = output.lines().filter(|line| line.contains("Service default/flips: ")).count();
    // 25 at once, and one in 5 s.
    assert!((25..40).contains(&lines), "{lines} lines: {output}");
}

#[test]
fn answers_of_another_kind_are_a_problem_and_the_services_stay() {
    let net = Net::new();
    let host = net.node();
    let api = host.run(ApiServer::with_web);
    let mut daemon = daemon(host, &api, "node1");
    wait_for_top(host, "  ready  node node1");
    let serves_web = || format!("{:?}", host.read_table(Family::Ip)).contains("default/web");
    let fault = Fault::OtherKind("v1", "Node");
    api.misbehave(Kind::Service, On::StreamingList, fault, usize::MAX);
    api.stop();
    api.compact();
    api.reopen();
    let text = problems(host, 1, "text");
    assert!(text.starts_with("Service * (invalid"), "{text}");
    assert!(text.contains("expected Service"), "{text}");
    daemon.wait_for_line("following services at ", SOON);
    wait_for_top(host, "ready, but out of date: no watch of services");
    assert!(serves_web());
    api.heal();
    assert_eq!(problems(host, 0, "text"), "nothing is left out\n");
    assert!(serves_web());
}
