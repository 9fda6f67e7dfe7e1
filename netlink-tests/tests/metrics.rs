//! Every metric of the page moves when what it counts happens.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use deltaproxy::kernel::Release;
use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::reader::Family;
use netlink_tests::scenario::{Manifests, Node, WEB};
use netlink_tests::{Host, Net, Process, deltaproxy_binary, eventually};
use serde_json::{Value, json};

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// Metrics that stay as they are, and why.
const STILL: [(&str, &str); 4] = [
    ("deltaproxy_build_info", "the version does not change"),
    ("deltaproxy_affinity_clients_max", "the size of a set does not change"),
    ("deltaproxy_log_lines_dropped_total", "the log is read; `daemon` has one that is not"),
    ("deltaproxy_transactions_total{result=\"refused\"}", "the kernel refuses none"),
];

/// The page of a daemon, read again and again.
struct Page<'a> {
    host: &'a Host,
    /// All values that each metric was seen with; empty while it was absent.
    seen: BTreeMap<String, BTreeSet<String>>,
}

impl Page<'_> {
    /// Reads the page until a metric has another value than `former`; buckets are passed over.
    #[track_caller]
    fn wait(&mut self, metric: &str, former: &str) {
        eventually(&format!("{metric} other than {former}"), SOON, || {
            let found = self.read();
            found.get(metric).is_some_and(|value| value != former).then_some(())
        });
    }

    fn read(&mut self) -> BTreeMap<String, String> {
        let page = get(self.host, 10249, "/metrics");
        let lines = page.lines().filter(|it| !it.starts_with('#') && !it.contains("_bucket"));
        let values = lines.filter_map(|line| line.rsplit_once(' '));
        let ours = values.filter(|(name, _)| name.contains("proxy_"));
        let found: BTreeMap<_, _> =
            ours.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let is_first = self.seen.is_empty();
        for (name, value) in &found {
            let was_absent = BTreeSet::from_iter((!is_first).then(String::new));
            self.seen.entry(name.clone()).or_insert(was_absent).insert(value.clone());
        }
        found
    }
}

/// An answer of the daemon; empty if there is none.
fn get(host: &Host, port: u16, path: &str) -> String {
    host.run(|| {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let request = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_string(&mut text).unwrap();
        }
        text
    })
}

/// The service `web`, for UDP too.
fn web() -> Value {
    let mut web = service("default/web", "10.96.0.10", 80);
    let udp = json!({"name": "udp", "protocol": "UDP", "port": 80, "targetPort": 80});
    web["spec"]["ports"].as_array_mut().unwrap().push(udp);
    web
}

/// An endpoint of it, which became one just now.
fn endpoint(address: &str) -> Value {
    let mut slice = endpoint_slice("default/web-1", "web", &[address], 8080);
    let udp = json!({"name": "udp", "protocol": "UDP", "port": 8080});
    slice["ports"].as_array_mut().unwrap().push(udp);
    let key = "endpoints.kubernetes.io/last-change-trigger-time";
    slice["metadata"]["annotations"] = json!({key: jiff::Timestamp::now().to_string()});
    slice
}

fn daemon(host: &Host, api: &ApiServer) -> Process {
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    host.spawn(deltaproxy_binary(), &["run", &kubeconfig, "--hostname-override=node1"])
}

#[test]
fn every_metric_moves_when_what_it_counts_happens() {
    if Release::running().is_none_or(|release| release < Release::PERSISTENT_OWNERSHIP) {
        return; // Syncs fail here because the tables have another owner.
    }
    let net = Net::new();
    let pods = [net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6")];
    let _servers = [pods[0].serve_udp(8080, "a"), pods[1].serve_udp(8080, "b")];
    let client = net.outside("outside", "192.0.2.10");
    let api = net.node().run(ApiServer::start);
    api.push_all([node("node1", "192.168.50.2"), service_cidr("kubernetes", "10.96.0.0/16")]);

    // Syncs fail while another daemon owns the tables, and changes wait.
    let manifests = Manifests::new(&[("node", &Node::new())]);
    let other = manifests.run(net.node());
    let has_tables = || net.node().read_table(Family::Ip).map(drop);
    eventually("the tables of the other daemon", SOON, has_tables);
    let _daemon = daemon(net.node(), &api);
    let mut page = Page { host: net.node(), seen: BTreeMap::new() };
    let failures = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"}";
    page.wait(failures, "0");
    api.push_all([web(), endpoint("10.244.1.5")]);
    page.wait("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "0");
    page.wait("kubeproxy_sync_proxy_rules_service_changes_pending", "0");

    let _ = other.terminate(SOON);
    let mut flow = client.open_udp(WEB);
    let mut answers = |expected: &str| {
        eventually(&format!("an answer of {expected}"), SOON, || {
            format!("{:?}", flow.ask()).contains(expected).then_some(())
        });
    };
    answers("\"a\"");
    api.push(endpoint("10.244.1.6"));
    answers("\"b\"");
    page.wait("deltaproxy_conntrack_deleted_entries_total", "0");

    let mut bad = service("default/bad", "10.96.0.11", 80);
    bad["spec"]["externalIPs"] = json!(["somewhere"]);
    api.push(bad);
    for probe in ["/healthz", "/livez", "/readyz"] {
        assert!(get(net.node(), 10256, probe).contains("200 OK"), "{probe}");
    }
    page.wait("deltaproxy_problems_total", "0");
    let watches =
        ["services", "endpointslices.discovery.k8s.io", "nodes", "servicecidrs.networking.k8s.io"];
    let watches = watches.map(|it| format!("deltaproxy_watch_connected{{resource={it:?}}}"));
    api.stop();
    watches.iter().for_each(|connected| page.wait(connected, "1"));
    api.reopen();
    watches.iter().for_each(|connected| page.wait(connected, "0"));

    let may_move = |name: &str| !STILL.iter().any(|(still, _)| name.starts_with(still));
    let unmoved = page.seen.iter().filter(|(name, values)| values.len() < 2 && may_move(name));
    let unmoved: Vec<_> = unmoved.map(|(name, _)| name).collect();
    assert!(unmoved.is_empty(), "{unmoved:#?}");
}
