//! Every metric of the page moves when what it counts happens, and the page has what dashboards and
//! alerts for kube-proxy ask.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "metrics/page.rs"]
mod page;
#[path = "metrics/queries.rs"]
mod queries;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Fault, Kind, On};
use netlink_tests::http::{body, get};
use netlink_tests::metrics::{Sample, samples};
use netlink_tests::reader::Family;
use netlink_tests::scenario::{Manifests, Node, WEB};
use netlink_tests::{Host, Net, Process, deltaproxy_binary, eventually};
use nft::kernel::Release;
use queries::{ABSENT, QUERIES};
use serde_json::{Value, json};

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// Metrics that stay as they are, and why.
const STILL: [(&str, &str); 43] = [
    ("deltaproxy_direct_", "direct return is off"),
    ("deltaproxy_problems_present{kind=\"direct_return\"}", "direct return is off"),
    ("deltaproxy_problems_total{kind=\"direct_return\"}", "direct return is off"),
    ("deltaproxy_build_info", "the version does not change"),
    ("deltaproxy_set_elements", "the test below compares them with the kernel's"),
    ("deltaproxy_problems_total{kind=\"conflict\"}", "one kind is enough"),
    ("deltaproxy_problems_total{kind=\"limit\"}", "one kind is enough"),
    ("deltaproxy_problems_total{kind=\"refused\"}", "one kind is enough"),
    ("deltaproxy_problems_total{kind=\"closed_port\"}", "one kind is enough"),
    ("deltaproxy_problems_total{kind=\"missing_node\"}", "see `problems`"),
    ("deltaproxy_problems_present{kind=\"conflict\"}", "one kind is enough"),
    ("deltaproxy_problems_present{kind=\"limit\"}", "one kind is enough"),
    ("deltaproxy_problems_present{kind=\"refused\"}", "one kind is enough"),
    ("deltaproxy_problems_present{kind=\"closed_port\"}", "one kind is enough"),
    ("deltaproxy_problems_present{kind=\"missing_node\"}", "see `problems`"),
    ("deltaproxy_node_missing", "see `problems`"),
    ("deltaproxy_configuration_last_load_timestamp_seconds", "there is no file"),
    ("deltaproxy_configuration_refused", "there is no file"),
    ("deltaproxy_node_ports_closed", "see `problems`"),
    (
        "deltaproxy_check_differences_total",
        "the kernel loses nothing; see `background_check_kernel`",
    ),
    ("deltaproxy_check_repairs_total", "the kernel loses nothing; see `background_check_kernel`"),
    ("deltaproxy_conntrack_delete_failures_total", "the kernel refuses none"),
    ("deltaproxy_least_connections_changed_slots_total", "one endpoint; see `least_connections`"),
    ("deltaproxy_least_connections_failures_total", "conntrack is always read"),
    ("kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv6\"}", "all are IPv4"),
    ("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", "the kernel refuses none"),
    (
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
        "see `ports_without_an_endpoint_on_the_node_are_counted_by_policy`",
    ),
    (
        "deltaproxy_watch_failures_total{resource=\"services\",reason=\"incomplete\"}",
        "an empty list is doubtful once, perhaps before the first reading",
    ),
    (
        "deltaproxy_watch_failures_total{resource=\"endpointslices.discovery.k8s.io\",reason=\"incomplete\"}",
        "an empty list is doubtful once, perhaps before the first reading",
    ),
    ("deltaproxy_problems_present{kind=\"overlap\"}", "see `daemon`"),
    ("deltaproxy_problems_total{kind=\"overlap\"}", "see `daemon`"),
    ("deltaproxy_services{scheduler=\"mh", "no service has it; see `schedulers`"),
    ("kubeproxy_network_programming_duration_seconds", "moves in both families at once"),
    ("deltaproxy_affinity_clients_max", "the size of a set does not change"),
    ("deltaproxy_slots_budget", "the setting does not change"),
    ("deltaproxy_slots_requested", "one endpoint; `slot_budget` has many"),
    ("deltaproxy_slots_given", "one endpoint; `slot_budget` has many"),
    ("deltaproxy_services_reduced", "one endpoint; `slot_budget` has many"),
    ("kubeproxy_nftables_localhost_nodeport_", "see `localhost_ipv6`"),
    ("deltaproxy_localhost_", "see `localhost_ipv6`"),
    ("deltaproxy_log_lines_dropped_total", "the log is read; `daemon` has one that is not"),
    ("deltaproxy_transactions_total{result=\"refused\"}", "the kernel refuses none"),
    ("deltaproxy_refused_packets_total", "no packet is refused; `refused_packets` has some"),
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
        let page = body(self.host, 10249, "/metrics");
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

/// The service `web`, for UDP too, with scheduler `lc`.
fn web() -> Value {
    let mut web = service("default/web", "10.96.0.10", 80);
    web["metadata"]["annotations"] = json!({"deltaproxy.io/scheduler": "lc"});
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
    let every_second = ["--check-period=1s", "--least-connections=1s"];
    let arguments =
        [&["run", &kubeconfig, "--hostname-override=node1"][..], &every_second].concat();
    host.spawn(deltaproxy_binary(), &arguments)
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
            format!("{:?}", flow.ask_hastily()).contains(expected).then_some(())
        });
    };
    answers("\"a\"");
    api.push(endpoint("10.244.1.6"));
    answers("\"b\"");
    let deleted = "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"}";
    page.wait(deleted, "0");
    page.wait("deltaproxy_least_connections_services_total", "0");
    page.wait("deltaproxy_least_connections_entries", "0");

    let mut bad = service("default/bad", "10.96.0.11", 80);
    bad["spec"]["externalIPs"] = json!(["somewhere"]);
    api.push(bad);
    for probe in ["/healthz", "/livez", "/readyz"] {
        let answer = get(net.node(), 10256, probe);
        assert_eq!(answer.map(|it| it.status), Some(200), "{probe}");
    }
    page.wait("deltaproxy_problems_total{kind=\"invalid\"}", "0");
    let round = "deltaproxy_check_last_round_timestamp_seconds";
    let last = page.read().get(round).cloned().unwrap_or_default();
    page.wait(round, &last);
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

/// The page of a daemon that has followed a server which refuses now and then, with the labels that
/// Prometheus adds.
fn scrape(net: &Net) -> String {
    let api = net.node().run(ApiServer::start);
    api.push_all([node("node1", "192.168.50.2"), service_cidr("kubernetes", "10.96.0.0/16")]);
    api.misbehave(Kind::Service, On::Any, Fault::Status(503, "busy"), 1);
    api.forbid_events();
    let _daemon = daemon(net.node(), &api);
    let sample = |name: &str| {
        let page = body(net.node(), 10249, "/metrics");
        let line = page.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned())
    };
    let above_zero = |name: &str| sample(name).is_some_and(|value| value != "0");
    let synced = "deltaproxy_programmed{ip_family=\"IPv4\"}";
    eventually("a sync", SOON, || above_zero(synced).then_some(()));
    api.push_all([web(), endpoint("10.244.1.5")]);
    for name in [
        "kubeproxy_network_programming_duration_seconds_count",
        "deltaproxy_event_to_commit_duration_seconds_count",
        "rest_client_request_duration_seconds_count{verb=\"POST\"",
    ] {
        eventually(name, SOON, || above_zero(name).then_some(()));
    }
    body(net.node(), 10249, "/metrics")
}

#[test]
fn a_scrape_answers_the_queries_of_dashboards_and_alerts_for_kube_proxy() {
    let text = &scrape(&Net::new());
    let mistakes = page::mistakes(text);
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    let mut samples = samples(text);
    samples.push(Sample::read("up 1"));
    for sample in &mut samples {
        for (name, value) in [("job", "kube-proxy"), ("instance", "node1:10249"), ("cluster", "")] {
            let former = sample.labels.insert(name.to_owned(), value.to_owned());
            assert_eq!(former, None, "{name} is Prometheus' label");
        }
    }
    let missing = |query: &str| queries::missing(query, &samples);
    let unanswered: Vec<_> = QUERIES.iter().flat_map(|query| missing(query)).collect();
    assert!(unanswered.is_empty(), "{unanswered:#?} in\n{text}");
    for (query, why) in ABSENT {
        assert!(!missing(query).is_empty(), "{query} has an answer, and was to have none: {why}");
    }
}

/// The elements of each set of ours by the page of metrics, and by the kernel.
fn set_sizes(net: &Net) -> [BTreeMap<(String, String), usize>; 2] {
    let samples = samples(&body(net.node(), 10249, "/metrics"));
    let ours = samples.iter().filter(|sample| sample.name == "deltaproxy_set_elements");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few")]
    let reported = ours.map(|sample| {
        let key = (sample.label("ip_family").to_owned(), sample.label("set").to_owned());
        (key, sample.value as usize)
    });
    let families = [("IPv4", Family::Ip), ("IPv6", Family::Ip6)];
    let found = families.into_iter().flat_map(|(name, family)| {
        let sets = net.node().read_table(family).map(|table| table.sets).unwrap_or_default();
        sets.into_iter().map(move |(set, it)| ((name.to_owned(), set), it.elements.len()))
    });
    let counted = found.filter(|((_, set), _)| set != "affinity-clients");
    let counted: BTreeMap<_, _> = counted.collect();
    // A set that the table lacks has no elements: those of port ranges.
    let found_in_table = |(key, size): &(_, usize)| *size > 0 || counted.contains_key(key);
    [reported.filter(found_in_table).collect(), counted]
}

/// Waits until the page and the kernel have the same number of elements in each set, and so many in
/// that of the services of IPv4.
#[track_caller]
fn wait_for_equal_sizes(net: &Net, services: usize) {
    let mut seen = Default::default();
    let equal = || {
        seen = set_sizes(net);
        let [reported, counted] = &seen;
        let key = ("IPv4".to_owned(), "services".to_owned());
        (reported == counted && reported.get(&key) == Some(&services)).then_some(())
    };
    eventually("equal sizes of all sets", SOON, equal);
}

#[test]
fn the_elements_of_each_set_are_those_of_the_kernel() {
    let net = Net::new();
    let api = net.node().run(ApiServer::start);
    api.push_all([node("node1", "192.168.50.2"), service_cidr("kubernetes", "10.96.0.0/16")]);
    let mut guarded = service("default/guarded", "10.96.0.12", 80);
    guarded["spec"]["type"] = json!("LoadBalancer");
    guarded["spec"]["ports"][0]["nodePort"] = json!(30080);
    guarded["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24", "198.51.100.0/25"]);
    guarded["status"]["loadBalancer"]["ingress"] = json!([{"ip": "203.0.113.1"}]);
    let mut sticky = service("default/sticky", "10.96.0.13", 80);
    sticky["spec"]["sessionAffinity"] = json!("ClientIP");
    api.push_all([web(), endpoint("10.244.1.5"), guarded, sticky]);
    for name in ["guarded", "sticky"] {
        let (slice, addresses) = (format!("default/{name}-1"), ["10.244.1.7", "10.244.1.8"]);
        api.push(endpoint_slice(&slice, name, &addresses, 8080));
    }
    let running = daemon(net.node(), &api);
    // Two ports of `web`, two addresses of `guarded`, one of `sticky`.
    wait_for_equal_sizes(&net, 5);
    api.delete(Kind::Service, "default/guarded");
    wait_for_equal_sizes(&net, 3);
    let _ = running.terminate(SOON);
    let _running = daemon(net.node(), &api);
    wait_for_equal_sizes(&net, 3);
}

#[test]
fn ports_without_an_endpoint_on_the_node_are_counted_by_policy() {
    let net = Net::new();
    let api = net.node().run(ApiServer::start);
    api.push_all([node("node1", "192.168.50.2"), service_cidr("kubernetes", "10.96.0.0/16")]);
    let _daemon = daemon(net.node(), &api);
    let wait = |expected: [f64; 2]| {
        eventually(&format!("{expected:?}"), SOON, || {
            let samples = samples(&body(net.node(), 10249, "/metrics"));
            let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
            let count = |policy: &str| {
                let wanted = |it: &&Sample| {
                    it.name == name
                        && it.label("ip_family") == "IPv4"
                        && it.label("traffic_policy") == policy
                };
                samples.iter().find(wanted).map(|it| it.value)
            };
            (["internal", "external"].map(count) == expected.map(Some)).then_some(())
        });
    };
    wait([0.0, 0.0]);
    let mut local = web();
    local["spec"]["internalTrafficPolicy"] = json!("Local");
    local["spec"]["type"] = json!("NodePort");
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    api.push(local.clone());
    wait([0.0, 0.0]);
    api.push(endpoint("10.244.1.5"));
    wait([2.0, 2.0]);
    let mut here = endpoint("10.244.1.5");
    here["endpoints"][0]["nodeName"] = json!("node1");
    api.push(here);
    wait([0.0, 0.0]);
    api.push(endpoint("10.244.1.5"));
    wait([2.0, 2.0]);
    local["spec"]["internalTrafficPolicy"] = json!("Cluster");
    api.push(local);
    wait([0.0, 2.0]);
    api.delete(Kind::Service, "default/web");
    wait([0.0, 0.0]);
}
