//! The condition and the startup taint of this node's Node object, at a test API server.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // It looks for a limited time that nothing is written.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use daemon::config::Loaded;
use daemon::node_readiness::ReadinessReporter;
use daemon::observe::Observe;
use daemon::source::kube::{ApiServer as Address, Progress};
use netlink_tests::apiserver::{ApiServer, Kind, Request, object};
use netlink_tests::{Finished, NODE_IP, Net, Process, deltaproxy_binary, eventually};
use nft::family::Family;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

/// Nothing takes longer on a busy machine, unless it is broken.
const SOON: Duration = Duration::from_secs(60);

const NAME: &str = "deltaproxy.io/ServiceProxyReady";

/// The paths of the Node and of its status.
const NODE: &str = "/api/v1/nodes/node1";
const STATUS: &str = "/api/v1/nodes/node1/status";

/// A node with an API server on its loopback, and a configuration file.
struct Cluster {
    net: Net,
    api: ApiServer,
    folder: TempDir,
}

impl Cluster {
    /// Its Node has a condition and a taint of others, and the startup taint.
    fn new(settings: &str) -> Self {
        let net = Net::new();
        let api = net.node().run(ApiServer::start);
        api.push(node(1, &[other_taint("a"), startup_taint()]));
        api.push(object::service_cidr("kubernetes", "10.96.0.0/16"));
        api.push(object::service("default/web", "10.96.0.10", 80));
        api.push(object::endpoint_slice("default/web-1", "web", &["10.244.1.5"], 8080));
        let cluster = Self { net, api, folder: tempfile::tempdir().unwrap() };
        let kubeconfig = cluster.api.kubeconfig().display();
        let config = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
             mode: nftables\nclientConnection: {{kubeconfig: {kubeconfig}}}\n\
             healthzBindAddress: 127.0.0.1:10256\nmetricsBindAddress: 127.0.0.1:10249\n\
             deltaproxy: {{nodeReadiness: {{{settings}}}}}\n"
        );
        fs::write(cluster.config(), config).unwrap();
        cluster
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config.yaml")
    }

    fn start(&self, before: &[&str]) -> Process {
        let config = self.config();
        let flags = ["--config", config.to_str().unwrap(), "--hostname-override=node1"];
        self.net.node().spawn(deltaproxy_binary(), &[before, &flags].concat())
    }

    fn daemon(&self) -> Process {
        self.start(&["run"])
    }

    fn object(&self) -> Value {
        self.api.object(Kind::Node, "node1").unwrap()
    }

    fn condition(&self) -> Option<Value> {
        condition(&self.api)
    }

    /// Waits until the condition has this status and reason.
    #[track_caller]
    fn wait_for(&self, status: &str, reason: &str) {
        wait_for(&self.api, status, reason);
    }

    fn taints(&self) -> Vec<String> {
        let taints = self.object()["spec"]["taints"].clone();
        let taints = taints.as_array().cloned().unwrap_or_default();
        taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    fn wait_for_taints(&self, keys: &[&str]) {
        let what = format!("the taints {keys:?}");
        eventually(&what, SOON, || (self.taints() == keys).then_some(()));
    }

    /// The paths of the patches so far.
    fn patched(&self) -> Vec<String> {
        patches(&self.api).into_iter().map(|request| request.path).collect()
    }
}

fn patches(api: &ApiServer) -> Vec<Request> {
    api.requests().into_iter().filter(|request| request.method == "PATCH").collect()
}

/// Requests about the Node alone, by its name. Events read its metadata only.
fn single_requests(api: &ApiServer) -> usize {
    let requests = api.requests();
    let named = requests.iter().filter(|request| request.path.contains("/nodes/node1"));
    named.filter(|request| !request.accept.contains("PartialObjectMetadata")).count()
}

fn condition(api: &ApiServer) -> Option<Value> {
    let node = api.object(Kind::Node, "node1")?;
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == NAME).cloned()
}

#[track_caller]
fn wait_for(api: &ApiServer, status: &str, reason: &str) {
    eventually(&format!("condition {status}, {reason}"), SOON, || {
        let found = condition(api)?;
        (found["status"] == status && found["reason"] == reason).then_some(())
    });
}

fn startup_taint() -> Value {
    json!({"key": NAME, "effect": "NoSchedule"})
}

fn other_taint(name: &str) -> Value {
    json!({"key": format!("example.com/{name}"), "value": "x", "effect": "NoExecute"})
}

/// The Node as the kubelet creates it, the `creation`th time.
fn node(creation: u32, taints: &[Value]) -> Value {
    let mut node = object::node("node1", &NODE_IP.to_string());
    node["metadata"]["uid"] = format!("uid-{creation}").into();
    node["metadata"]["creationTimestamp"] = format!("2026-11-28T10:00:0{creation}Z").into();
    node["spec"] = json!({"taints": taints});
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    node
}

#[test]
fn the_first_sync_sets_the_condition_and_removes_the_taint_and_nothing_else() {
    let cluster = Cluster::new("condition: true, startupTaint: true");
    let daemon = cluster.daemon();
    cluster.wait_for("True", "FirstSyncDone");
    cluster.wait_for_taints(&["example.com/a"]);
    daemon.terminate(SOON);
    let found = cluster.condition().unwrap();
    assert_eq!(found["lastTransitionTime"], found["lastHeartbeatTime"]);
    let conditions = cluster.object()["status"]["conditions"].clone();
    assert_eq!(conditions[0], json!({"type": "Ready", "status": "True"}));
    assert_eq!(conditions.as_array().map(Vec::len), Some(2));
    assert_eq!(cluster.patched(), [STATUS, NODE]);
}

#[test]
fn a_taint_that_another_program_adds_meanwhile_stays_and_each_right_is_enough_for_itself() {
    let cluster = Cluster::new("condition: true, startupTaint: true");
    cluster.api.forbid("patch", "nodes/status");
    let with_another = [other_taint("a"), startup_taint(), other_taint("b")];
    cluster.api.change_before_patch(node(1, &with_another));
    let daemon = cluster.daemon();
    cluster.wait_for_taints(&["example.com/a", "example.com/b"]);
    let output = daemon.terminate(SOON);
    let reports = output.stderr.matches("apply deploy/node-readiness-rbac.yaml").count();
    assert_eq!(reports, 1, "{output:?}");
    assert_eq!(cluster.condition(), None);
    // The first one of the taint is of the version that was read, and refused.
    assert_eq!(cluster.patched(), [STATUS, NODE, NODE]);
}

#[test]
fn a_restart_writes_nothing_and_a_node_that_is_created_anew_gets_both() {
    let cluster = Cluster::new("condition: true, startupTaint: true");
    let daemon = cluster.daemon();
    cluster.wait_for("True", "FirstSyncDone");
    cluster.wait_for_taints(&["example.com/a"]);
    daemon.terminate(SOON);
    let (before, written) = (single_requests(&cluster.api), cluster.patched().len());
    let daemon = cluster.daemon();
    eventually("a read of the Node", SOON, || {
        (single_requests(&cluster.api) > before).then_some(())
    });
    cluster.api.delete(Kind::Node, "node1");
    cluster.api.push(node(2, &[startup_taint()]));
    cluster.wait_for_taints(&[]);
    cluster.wait_for("True", "FirstSyncDone");
    daemon.terminate(SOON);
    assert_eq!(cluster.patched()[written..], [STATUS, NODE]);
}

#[test]
fn cleanup_with_the_configuration_removes_the_condition() {
    let cluster = Cluster::new("condition: true");
    for (command, other_command) in [("cleanup", "--cleanup"), ("--cleanup", "cleanup")] {
        let daemon = cluster.daemon();
        cluster.wait_for("True", "FirstSyncDone");
        daemon.terminate(SOON);
        let removed = cluster.start(&[command]).finish(SOON);
        let expected = format!("removed condition {NAME} of node node1");
        assert!(removed.stdout.contains(&expected), "{removed:?}");
        assert!(removed.stdout.contains("delete table ip kube-proxy"), "{removed:?}");
        assert_eq!(cluster.condition(), None);
        assert_eq!(cluster.object()["status"]["conditions"][0]["type"], "Ready");
        assert_eq!(cluster.taints(), ["example.com/a", NAME], "the taint is not of this option");
        let again = cluster.start(&[other_command]).finish(SOON);
        assert_eq!((again.code(), &*again.stdout), (Some(0), "nothing to remove\n"), "{again:?}");
    }
    // A server that does not answer keeps nothing from the tables.
    let daemon = cluster.daemon();
    cluster.wait_for("True", "FirstSyncDone");
    daemon.terminate(SOON);
    cluster.api.stop();
    let removed = cluster.start(&["cleanup"]).finish(SOON);
    assert!(removed.stdout.contains("delete table ip kube-proxy"), "{removed:?}");
    assert_eq!(removed.code(), Some(1), "{removed:?}");
    assert!(removed.stderr.contains("the API server cannot be reached"), "{removed:?}");
}

#[test]
fn without_the_options_no_request_names_the_node() {
    let cluster = Cluster::new("");
    let daemon = cluster.daemon();
    eventually("the tables", SOON, || {
        cluster.net.node().read_table(netlink_tests::reader::Family::Ip).map(drop)
    });
    // The jitter of the first request is a second.
    let synced = Instant::now();
    eventually("some seconds", SOON, || (synced.elapsed() > Duration::from_secs(3)).then_some(()));
    let Finished { stderr, .. } = daemon.terminate(SOON);
    assert!(!stderr.contains(NAME), "{stderr}");
    assert_eq!(single_requests(&cluster.api), 0);
    assert_eq!(cluster.taints(), ["example.com/a", NAME]);
}

/// A reporter in this process, whose readiness a test decides.
struct Reporter {
    api: ApiServer,
    observe: Observe,
    /// Requests without an answer.
    failed: Arc<AtomicUsize>,
    _created: watch::Sender<i64>,
}

impl Reporter {
    /// Must be called in a runtime. The first sync is done.
    fn start() -> Self {
        let api = ApiServer::with_web();
        api.push(node(1, &[]));
        Self::beside(api)
    }

    fn beside(api: ApiServer) -> Self {
        let failed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&failed);
        let observe = Observe::new();
        for family in Family::ALL {
            observe.synced(family, Instant::now());
        }
        let (sender, created) = watch::channel(0);
        let config = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n\
                      kind: KubeProxyConfiguration\nmode: nftables\n\
                      deltaproxy: {nodeReadiness: {condition: true}}\n";
        let reporter = ReadinessReporter {
            settings: Loaded::parse(config).unwrap().config.node_readiness,
            node_name: "node1".to_owned(),
            server: Address::of_kubeconfig(api.kubeconfig().to_owned()),
            requests: Arc::new(move |_, progress| {
                let is_failed = matches!(progress, Progress::Answered { code: None, .. });
                counted.fetch_add(is_failed.into(), Ordering::Relaxed);
            }),
            observe: observe.clone(),
            created,
            has_tables: false,
        };
        tokio::spawn(reporter.run());
        Self { api, observe, failed, _created: sender }
    }

    fn block(&self, is_blocked: bool) {
        self.observe.table_blocked(Family::Ip, is_blocked.then_some("owned by another program"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flapping_cause_writes_nothing_and_a_lasting_one_once() {
    let reporter = Reporter::start();
    wait_for(&reporter.api, "True", "FirstSyncDone");
    // A cause that comes and goes, for longer than one must last.
    let start = Instant::now();
    eventually("the end of the cause", SOON, || {
        let seconds = start.elapsed().as_secs();
        reporter.block((seconds / 4).is_multiple_of(2));
        (seconds > 15).then_some(())
    });
    assert_eq!(patches(&reporter.api).len(), 1);
    reporter.block(true);
    wait_for(&reporter.api, "False", "TablesBlocked");
    assert!(start.elapsed() > Duration::from_secs(30), "30 s lie between two writes");
    reporter.block(false);
    assert_eq!(patches(&reporter.api).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_gets_the_condition_once_it_is_back() {
    let api = ApiServer::with_web();
    api.push(node(1, &[]));
    api.stop();
    let reporter = Reporter::beside(api);
    eventually("a request without an answer", SOON, || {
        (reporter.failed.load(Ordering::Relaxed) > 0).then_some(())
    });
    reporter.api.reopen();
    wait_for(&reporter.api, "True", "FirstSyncDone");
    assert_eq!(patches(&reporter.api).len(), 1);
}
