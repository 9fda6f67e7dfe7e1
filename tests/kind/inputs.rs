//! The files that the scripts give to other programs: configurations, manifests, and the selection of
//! tests.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use clap::Parser;
use daemon::config::command_flags::RunFlags;
use daemon::yaml;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::world::folder;

const FAMILIES: [&str; 3] = ["ipv4", "ipv6", "dual"];

/// The fields of kind's Cluster (pkg/apis/config/v1alpha4/types.go) that are used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cluster {
    kind: String,
    api_version: String,
    name: String,
    networking: Networking,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Networking {
    kube_proxy_mode: String,
    ip_family: String,
    pub(crate) pod_subnet: String,
    pub(crate) service_subnet: String,
    dns_search: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    role: String,
}

fn documents(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder(path)).unwrap();
    yaml::parse(&text).unwrap().into_iter().map(|document| document.value).collect()
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn cluster(family: &str) -> Cluster {
    read(&documents(&format!("deploy/kind/{family}.yaml"))[0])
}

pub(crate) fn networking(family: &str) -> Networking {
    cluster(family).networking
}

/// The kustomization's value of KUBERNETES_SERVICE_HOST.
pub(crate) fn api_server() -> String {
    let kustomization = &documents("deploy/kind/kustomization.yaml")[0];
    let patch = kustomization["patches"][0]["patch"].as_str().unwrap();
    let patch = yaml::parse(patch).unwrap().remove(0).value;
    let variable = &patch["spec"]["template"]["spec"]["containers"][0]["env"][0];
    assert_eq!(variable["name"], "KUBERNETES_SERVICE_HOST");
    variable["value"].as_str().unwrap().to_owned()
}

#[derive(Parser)]
struct Run {
    #[command(flatten)]
    flags: RunFlags,
}

#[test]
fn the_clusters_and_the_configuration_of_the_pods_agree() {
    let file = folder("deploy/kind/config.yaml");
    let config = &documents("deploy/kind/config.yaml")[0];
    let ranges = config["clusterCIDR"].as_str().unwrap();
    for family in FAMILIES {
        let cluster = cluster(family);
        assert_eq!((&*cluster.kind, &*cluster.api_version), ("Cluster", "kind.x-k8s.io/v1alpha4"));
        assert_eq!(format!("{}-control-plane", cluster.name), api_server());
        assert_eq!(cluster.networking.kube_proxy_mode, "none");
        assert_eq!(cluster.networking.ip_family, family);
        assert_eq!(cluster.networking.dns_search, Vec::<String>::new());
        let roles: Vec<_> = cluster.nodes.iter().map(|node| &*node.role).collect();
        // Tests between nodes need two of them, without the control plane.
        assert_eq!(roles, ["control-plane", "worker", "worker"]);
        for range in cluster.networking.pod_subnet.split(',') {
            assert!(ranges.split(',').any(|it| it == range), "{range} is not in {ranges}");
        }
    }
    let arguments = ["run", "--config", file.to_str().unwrap(), "--hostname-override=node-1"];
    let loaded = Run::try_parse_from(arguments).unwrap().flags.load().unwrap();
    assert_eq!(loaded.notes.lines(), Vec::<String>::new());
}

#[test]
fn the_example_has_only_fields_of_the_api() {
    let objects = documents("deploy/kind/example.yaml");
    let service: Service = read(&objects[0]);
    let deployment: Deployment = read(&objects[1]);
    assert_eq!(serde_json::to_value(&service).unwrap(), objects[0]);
    assert_eq!(serde_json::to_value(&deployment).unwrap(), objects[1]);
    let labels = deployment.spec.unwrap().template.metadata.unwrap().labels;
    assert_eq!(service.spec.unwrap().selector, labels);
}

/// Those of the names that `deploy/kind/e2e` would run.
fn selected(family: &str, names: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new(folder("deploy/kind/e2e"));
    command.args(["select", family]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, names.join("\n").as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The lines of a file without comments.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

#[test]
fn the_selection_leaves_out_what_it_says_and_no_conformance_test() {
    let text = fs::read_to_string(folder("deploy/kind/tests.txt")).unwrap();
    let names = lines(&text);
    assert_eq!(names.len(), 232);
    for (family, number) in [("ipv4", 118), ("ipv6", 118), ("dual", 140)] {
        let selected = selected(family, &names);
        assert_eq!(selected.len(), number, "{family}");
        let left_out = names.iter().filter(|name| !selected.contains(**name));
        let left_out: Vec<_> = left_out.filter(|name| name.contains("[Conformance]")).collect();
        assert_eq!(left_out, Vec::<&&str>::new());
        let of_two = selected.iter().any(|name| name.contains("[Feature:IPv6DualStack]"));
        assert_eq!(of_two, family == "dual");
    }
    assert_eq!(selected("ipv4", &["[sig-node] Pods should be restarted"]).len(), 0);
}

#[test]
fn each_expression_of_the_selection_has_a_reason_and_leaves_out_a_test() {
    let names = fs::read_to_string(folder("deploy/kind/tests.txt")).unwrap();
    let text = fs::read_to_string(folder("deploy/kind/e2e-skip.txt")).unwrap();
    let mut before = "";
    for line in text.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with('#') {
            assert!(before.starts_with("# "), "{line} has no reason");
            let (families, expression) = line.split_once(' ').unwrap();
            let known = families.split(',').all(|it| it == "all" || FAMILIES.contains(&it));
            assert!(known, "{line}");
            let mut grep = Command::new("grep");
            grep.args(["-cE", expression.trim()]).arg(folder("deploy/kind/tests.txt"));
            let count = String::from_utf8(grep.output().unwrap().stdout).unwrap();
            assert_ne!(
                count.trim(),
                "0",
                "{line} leaves out none of {} names",
                lines(&names).len()
            );
        }
        before = line;
    }
}
