//! The daemon with an API server of Kubernetes' own library and etcd.
//!
//! `make test-api-server` builds the server and names the folder with it, and with Debian's files of
//! etcd, in the variable `DELTAPROXY_API_SERVER`. Without it these tests are left out.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use daemon::source::kube::{ApiServer as Address, RestClient, RestError};
use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::{Net, Process, deltaproxy_binary, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAMS: &str = "DELTAPROXY_API_SERVER";

/// How long a program may take to start, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// More than one arrival has.
const SERVICES: usize = 700;

const CORE: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const NODES: &str = "/api/v1/nodes";

/// A node with an API server and etcd.
struct Cluster {
    net: Net,
    programs: PathBuf,
    folder: TempDir,
    _etcd: Process,
    server: Option<Process>,
}

impl Cluster {
    /// `None` without the programs.
    fn start() -> Option<Self> {
        let programs = PathBuf::from(env::var_os(PROGRAMS)?);
        let (net, folder) = (Net::new(), tempfile::tempdir().unwrap());
        let data = format!("--data-dir={}", folder.path().join("etcd").display());
        let etcd = net
            .node()
            .spawn(programs.join("root/usr/bin/etcd"), &[data.as_str(), "--unsafe-no-fsync"]);
        let certificate = folder.path().join("server.crt");
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: \"https://127.0.0.1:6443\", \
             certificate-authority: {}}}}}]\n\
             users: [{{name: test, user: {{token: test}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n",
            certificate.display()
        );
        fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let mut cluster = Self { net, programs, folder, _etcd: etcd, server: None };
        cluster.start_server();
        Some(cluster)
    }

    fn start_server(&mut self) {
        let folder = self.folder.path().to_str().unwrap();
        let program = self.programs.join("api-server");
        self.server = Some(self.net.node().spawn(program, &["--certificates", folder]));
        eventually("an answer of the server", SOON, || self.read(NODES).ok());
    }

    fn restart_server(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal(Signal::SIGKILL);
            server.finish(SOON);
        }
        self.start_server();
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Sends a request.
    fn send<T: Send>(
        &self,
        request: impl AsyncFnOnce(RestClient) -> Result<T, RestError> + Send,
    ) -> Result<T, RestError> {
        let address = Address::of_kubeconfig(self.kubeconfig());
        self.net.node().run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                // The server writes the certificate when it starts.
                let rest = loop {
                    match RestClient::load(&address).await {
                        Ok(rest) => break rest,
                        Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                };
                request(rest).await
            })
        })
    }

    fn read(&self, path: &str) -> Result<Value, RestError> {
        self.send(async |rest| rest.read(path).await)
    }

    #[track_caller]
    fn create(&self, path: &str, objects: &[Value]) {
        let created = self.send(async |rest| {
            for object in objects {
                rest.create(path, object).await?;
            }
            Ok(())
        });
        created.unwrap();
    }

    #[track_caller]
    fn merge(&self, path: &str, patch: &Value) {
        self.send(async |rest| rest.merge(path, patch).await).unwrap();
    }

    #[track_caller]
    fn delete(&self, path: &str) {
        assert!(self.send(async |rest| rest.delete(path).await).unwrap(), "{path}");
    }

    /// Removes from etcd what is older than the newest objects.
    fn compact(&self) {
        let list = self.read(CORE).unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let _ = self
            .net
            .node()
            .output(self.programs.join("root/usr/bin/etcdctl"), &["compact", version])
            .ok();
    }

    fn daemon(&self, flags: &[&str]) -> Process {
        let kubeconfig = self.kubeconfig();
        let arguments = [
            "run",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--hostname-override=node1",
            "--healthz-bind-address=",
            "--metrics-bind-address=",
        ];
        self.net.node().spawn(deltaproxy_binary(), &[&arguments, flags].concat())
    }

    /// Waits until the tables are those of the server's objects, with so many services.
    #[track_caller]
    fn wait_for(&self, services: usize) {
        let kubeconfig = self.kubeconfig();
        let arguments = ["verify", "--kubeconfig", kubeconfig.to_str().unwrap()];
        let expected = format!("the tables are as desired: {services} services");
        eventually(&expected, SOON, || {
            let verified = self.net.node().output(deltaproxy_binary(), &arguments);
            verified.stdout.contains(&expected).then_some(())
        });
    }
}

fn name(i: usize) -> String {
    format!("default/web-{i}")
}

#[test]
fn objects_of_a_real_server_are_followed_through_its_restart_and_a_compaction() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(NODES, &[node("node1", "10.0.0.1")]);
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    cluster.create(cidrs, &[service_cidr("kubernetes", "10.96.0.0/16")]);
    let of_service = |i: usize| service(&name(i), &format!("10.96.{}.{}", i / 250, i % 250), 80);
    let of_slice = |i: usize| {
        let addresses = ["10.244.0.1", "10.244.0.2", "10.244.0.3"];
        endpoint_slice(&name(i), &format!("web-{i}"), &addresses, 8080)
    };
    let all = 0..SERVICES;
    cluster.create(CORE, &all.clone().map(of_service).collect::<Vec<_>>());
    cluster.create(SLICES, &all.map(of_slice).collect::<Vec<_>>());
    let daemon = cluster.daemon(&[]);
    cluster.wait_for(SERVICES);

    let endpoints = json!({"endpoints": [{"addresses": ["10.244.0.9"]}]});
    cluster.merge(&format!("{SLICES}/web-1"), &endpoints);
    cluster.delete(&format!("{CORE}/web-2"));
    cluster.delete(&format!("{SLICES}/web-2"));
    cluster.wait_for(SERVICES - 1);

    // The daemon misses changes, and the last server has no events before its start.
    daemon.signal(Signal::SIGSTOP);
    cluster.restart_server();
    cluster.delete(&format!("{CORE}/web-3"));
    cluster.merge(&format!("{SLICES}/web-4"), &endpoints);
    cluster.compact();
    cluster.restart_server();
    daemon.signal(Signal::SIGCONT);
    cluster.wait_for(SERVICES - 2);

    let finished = daemon.terminate(SOON);
    let output = format!("{}{}", finished.stdout, finished.stderr);
    assert!(!output.contains("malformed") && !output.contains("protobuf"), "{output}");
    let events = cluster.read("/apis/events.k8s.io/v1/events").unwrap();
    let event = &events["items"][0];
    assert_eq!(event["reason"], "Starting", "{events}");
    assert_eq!(event["metadata"]["managedFields"][0]["manager"], "deltaproxy", "{events}");
}

/// The condition and the startup taint of the daemon.
const READY: &str = "deltaproxy.io/ServiceProxyReady";

/// Returns the taints and the conditions of the Node.
fn readiness(cluster: &Cluster) -> (Value, Value) {
    let node = cluster.read(&format!("{NODES}/node1")).unwrap();
    (node["spec"]["taints"].clone(), node["status"]["conditions"].clone())
}

#[test]
fn the_condition_and_the_taint_of_a_real_server_are_changed_beside_those_of_others() {
    let Some(cluster) = Cluster::start() else { return };
    let path = format!("{NODES}/node1");
    let other_taint = json!({"key": "example.com/a", "value": "x", "effect": "NoExecute"});
    let other_condition = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": "2026-11-28T10:00:00Z", "lastTransitionTime": "2026-11-28T10:00:00Z",
    });
    let mut new_node = node("node1", "10.0.0.1");
    new_node["spec"]["taints"] = json!([{"key": READY, "effect": "NoSchedule"}, other_taint]);
    new_node["status"]["conditions"] = json!([other_condition]);
    cluster.create(NODES, &[new_node.clone()]);
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    cluster.create(cidrs, &[service_cidr("kubernetes", "10.96.0.0/16")]);
    cluster.create(CORE, &[service(&name(1), "10.96.0.10", 80)]);
    cluster.create(SLICES, &[endpoint_slice(&name(1), "web-1", &["10.244.0.1"], 8080)]);

    let both = ["--node-condition=on", "--startup-taint=on"];
    let daemon = cluster.daemon(&both);
    let wait_for_both = || {
        eventually("the condition, and no startup taint", SOON, || {
            let (taints, conditions) = readiness(&cluster);
            let condition = conditions.as_array()?.iter().find(|it| it["type"] == READY)?;
            let is_done = condition["status"] == "True" && taints == json!([other_taint]);
            is_done.then(|| condition.clone())
        })
    };
    let condition = wait_for_both();
    assert_eq!(condition["lastTransitionTime"], condition["lastHeartbeatTime"], "{condition}");
    let conditions = readiness(&cluster).1;
    assert!(conditions.as_array().unwrap().contains(&other_condition), "{conditions}");

    // The patch of the taints holds the version: a stale one is refused whole.
    let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"taints": []}});
    let refused = cluster.send(async |rest| rest.merge(&path, &stale).await);
    assert!(refused.unwrap_err().is_conflict());
    assert_eq!(readiness(&cluster).0, json!([other_taint]));

    // `creationTimestamp` has whole seconds.
    std::thread::sleep(Duration::from_secs(1));
    cluster.delete(&path);
    cluster.create(NODES, &[new_node]);
    wait_for_both();
    daemon.terminate(SOON);

    let file = cluster.folder.path().join("config.yaml");
    let config = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
         mode: nftables\nclientConnection: {{kubeconfig: {}}}\n\
         deltaproxy: {{nodeReadiness: {{condition: on}}}}\n",
        cluster.kubeconfig().display()
    );
    fs::write(&file, config).unwrap();
    let arguments = ["cleanup", "--hostname-override=node1", "--config", file.to_str().unwrap()];
    let removed = cluster.net.node().output(deltaproxy_binary(), &arguments).ok();
    assert!(removed.contains(&format!("removed condition {READY} of node node1")), "{removed}");
    assert_eq!(readiness(&cluster).1, json!([other_condition]));
}
