//! Documentation, alerts and dashboard name the metrics that the program has.
//!
//! A metric with labels is on the page once it has a value, so [`page`] gives each of them one.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

#[path = "promises/record.rs"]
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::observe::{
    CountStore, Difference, KernelCounts, Observe, RefusedCount, ResetCount, ServedContent,
    ServiceCounts, ServicePortCount, Site, Transaction, bind, serve,
};
use daemon::yaml;
use nft::Counter;
use nft::family::Family;

/// How names of metrics begin.
const PREFIXES: [&str; 5] =
    ["deltaproxy_", "kubeproxy_", "kubernetes_", "process_", "rest_client_"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

/// The page of metrics with a value for each metric.
fn page() -> String {
    #[allow(clippy::disallowed_methods, reason = "some instant")]
    let now = Instant::now();
    let counts = CountStore::default();
    let observe = Observe::with_counts(counts.clone());
    let metrics = observe.metrics();
    let operations = &[("newsetelem", 1)];
    observe.committed(&Transaction { operations, added: 1, ..Transaction::default() });
    metrics.commits.set_sizes(["endpoints"]);
    metrics.own.problem_kinds(["invalid"]);
    metrics.configuration.loaded(Some("00"));
    metrics.kube_proxy.no_local_endpoints(Family::Ip, 1, 1);
    metrics.configuration.features.with(["SomeGate", ""]).set(1);
    metrics.server.answered(["GET", "server:443"], 1, Some(200));
    metrics.server.took(["GET", "server:443"], Duration::from_millis(1), Some(1));
    metrics.figures.affinity_clients.with(["IPv4"]).set(1);
    let refused = RefusedCount { family: Family::Ip, reason: "no_endpoint", packets: 1 };
    let [namespace, service] = ["default", "web"].map(str::to_owned);
    counts.set(KernelCounts {
        services: Some(service_counts()),
        offloaded: Some(1),
        refused: vec![refused],
        resets: vec![ResetCount { namespace, service, packets: 1 }],
    });
    metrics.check.differences[Difference::Missing as usize].inc();
    metrics.figures.services.with(["random"]).set(1);
    metrics.direct.state(1, &BTreeMap::from([("reachable", 1)]));
    observe.watch_heard("services", now);
    observe.watch_lost("services", "tls");
    probe(&observe);
    observe.metrics_text()
}

/// A service port with an endpoint, as the option `counters: endpoints` has them.
fn service_counts() -> ServiceCounts {
    let counted = Counter { packets: 1, bytes: 60 };
    let [namespace, service, port] = ["default", "web", "http"].map(str::to_owned);
    let endpoints = vec![("10.244.1.5:8080".parse().unwrap(), counted)];
    let port = ServicePortCount { namespace, service, port, counted, endpoints };
    ServiceCounts { ports: vec![port], total: counted }
}

/// Sends requests to the health server, which counts its answers.
fn probe(observe: &Observe) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(async { bind("127.0.0.1:0".parse().unwrap()).unwrap() });
    let address = listener.local_addr().unwrap();
    let content = Arc::new(ServedContent::new(observe.clone()));
    runtime.spawn(serve(content, Site::Health, listener));
    for path in ["/healthz", "/livez", "/readyz"] {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
}

/// The name of a metric as queries spell it; a histogram's without `_bucket`, `_count`, `_sum`.
fn spelled(name: &str, kind: &str) -> String {
    match kind {
        "counter" => format!("{name}_total"),
        "info" => format!("{name}_info"),
        _ => name.to_owned(),
    }
}

/// The names of all metrics.
fn exposed() -> BTreeSet<String> {
    let page = page();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| spelled(name, kind)).collect()
}

/// The words of `text` that look like names of our metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let named = |word: &&str| {
        let mut rest = PREFIXES.iter().filter_map(|prefix| word.strip_prefix(prefix));
        rest.any(|rest| !rest.is_empty())
    };
    words.filter(named).collect()
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let documentation = read("docs/metrics.md");
    let rows = documentation.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows: BTreeSet<_> = rows.map(|(name, _)| name.to_owned()).collect();
    let exposed = exposed();
    assert_eq!(rows, exposed);
    let (present, _) = documentation.split_once("\n## Metrics of kube-proxy that").unwrap();
    let unknown: Vec<_> =
        named(present).into_iter().filter(|name| !exposed.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The names of a sample's labels.
fn labels(sample: &str) -> BTreeSet<String> {
    let labels = sample.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let mut rest = labels.map_or("", |(labels, _)| labels);
    let mut names = BTreeSet::new();
    while let Some((name, after)) = rest.split_once("=\"") {
        names.insert(name.trim_start_matches(',').to_owned());
        rest = after.split_once('"').map_or("", |(_, rest)| rest);
    }
    names
}

/// Each metric with its type and the names of its labels.
fn described() -> Vec<String> {
    let page = page();
    let mut lines = Vec::new();
    let mut samples = BTreeSet::new();
    // A metric's line of its type is before its samples.
    for line in page.lines().rev() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            let words = [spelled(name, kind), kind.to_owned()].into_iter();
            let labels = std::mem::take(&mut samples).into_iter().filter(|label| label != "le");
            lines.push(words.chain(labels).collect::<Vec<_>>().join(" "));
        } else if !line.starts_with('#') {
            samples.extend(labels(line));
        }
    }
    lines.sort();
    lines
}

#[test]
fn metrics_are_as_recorded() {
    let lines = described();
    assert!(lines.len() > 80, "{lines:#?}");
    record::compare("metrics", &lines);
}

#[test]
fn labels_are_found_in_a_sample() {
    let sample = "a_bucket{b=\"c,{}=\",le=\"0.1\"} 1";
    assert_eq!(labels(sample), ["b", "le"].map(str::to_owned).into());
    assert_eq!(labels("a 1"), BTreeSet::new());
}

#[test]
fn alerts_rules_and_dashboard_query_metrics_that_exist() {
    let page = page();
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let samples: BTreeSet<_> = samples.map(|line| line.split(['{', ' ']).next().unwrap()).collect();
    for path in ["deploy/alerts.yaml", "deploy/rules.yaml", "deploy/dashboard.json"] {
        let text = read(path);
        let named = named(&text);
        assert!(named.len() > 5, "{path}: {named:?}");
        let unknown: Vec<_> = named.iter().filter(|name| !samples.contains(*name)).collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
    }
}

#[test]
fn every_alert_has_an_expression_a_severity_and_a_summary() {
    let alerts = yaml::parse(&read("deploy/alerts.yaml")).unwrap().remove(0).value;
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 5);
    for rule in rules {
        for field in ["/alert", "/expr", "/labels/severity", "/annotations/summary"] {
            let text = rule.pointer(field).and_then(|value| value.as_str()).unwrap_or_default();
            assert!(!text.is_empty(), "{field} of {rule}");
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{severity}");
    }
}

/// Counters of problems end; these stay as long as their cause.
#[test]
fn a_dead_daemon_and_all_that_is_wrong_now_have_alerts_that_stay() {
    let alerts = yaml::parse(&read("deploy/alerts.yaml")).unwrap().remove(0).value;
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    for (alert, expression) in [
        ("DeltaproxyAbsent", "absent(deltaproxy_build_info)"),
        ("DeltaproxyObjectsLeftOut", "deltaproxy_problems_present > 0"),
        ("DeltaproxyNodeMissing", "deltaproxy_node_missing == 1"),
        ("DeltaproxyConfigurationRefused", "deltaproxy_configuration_refused == 1"),
        ("DeltaproxyWatchDisconnected", "deltaproxy_watch_connected == 0"),
    ] {
        let rule = rules.iter().find(|rule| rule["alert"] == alert);
        assert_eq!(rule.map(|rule| &rule["expr"]), Some(&expression.into()), "{alert}");
    }
}

#[test]
fn every_recording_rule_has_a_name_of_its_own_and_an_expression_of_metrics() {
    let rules = yaml::parse(&read("deploy/rules.yaml")).unwrap().remove(0).value;
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    let names: BTreeSet<_> = rules.iter().map(|rule| rule["record"].as_str().unwrap()).collect();
    assert!(names.len() == rules.len() && names.len() > 5, "{names:?}");
    for rule in rules {
        assert!(rule["record"].as_str().unwrap().starts_with("deltaproxy:node_"), "{rule}");
        assert!(!named(rule["expr"].as_str().unwrap()).is_empty(), "{rule}");
    }
}

#[test]
fn every_panel_of_the_dashboard_has_a_query() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("deploy/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 5);
    let (rows, panels): (Vec<_>, Vec<_>) = panels.iter().partition(|panel| panel["type"] == "row");
    assert_eq!(rows.iter().map(|row| &row["title"]).collect::<Vec<_>>(), ["Overview"]);
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            assert!(!named(target["expr"].as_str().unwrap()).is_empty(), "{target}");
        }
    }
}
