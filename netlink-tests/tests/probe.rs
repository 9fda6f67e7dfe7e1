//! `deltaproxy probe` as a user starts it: beside our own daemon and an API server.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use daemon::yaml;
use netlink_tests::apiserver::{ApiServer, Kind, On, Request, object};
use netlink_tests::{Finished, Host, NODE_IP, Net, Process, deltaproxy_binary};
use nix::sys::signal::Signal;
use serde_json::Value;

/// How long a small run may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// How often and how long the daemon is stopped: a busy machine may hide one stop.
const STOPS: usize = 3;
const STOPPED: Duration = Duration::from_millis(200);

/// A node with a default route, and an API server on its loopback.
struct Cluster {
    net: Net,
    api: ApiServer,
    /// The next hop of its default route.
    _router: Option<Host>,
}

impl Cluster {
    fn new() -> Self {
        let cluster = Self::without_route();
        let router = cluster.net.outside("router", "192.0.2.10");
        cluster.net.route_everything_to(&router);
        Self { _router: Some(router), ..cluster }
    }

    fn without_route() -> Self {
        let net = Net::new();
        let api = net.node().run(ApiServer::start);
        api.push(object::node("node1", &NODE_IP.to_string()));
        api.push(object::service_cidr("kubernetes", "10.96.0.0/16"));
        Self { net, api, _router: None }
    }

    fn start(&self, arguments: &[&str]) -> Process {
        self.start_on("node1", arguments)
    }

    /// Starts a command under the name of a node.
    fn start_on(&self, node: &str, arguments: &[&str]) -> Process {
        let kubeconfig = self.api.kubeconfig().to_str().unwrap();
        let server = ["--kubeconfig", kubeconfig, "--hostname-override", node];
        let (command, flags) = arguments.split_first().unwrap();
        self.net.node().spawn(deltaproxy_binary(), &[&[*command], &server[..], flags].concat())
    }

    /// Our daemon.
    fn proxy(&self) -> Process {
        self.start(&["run", "--healthz-bind-address=", "--metrics-bind-address="])
    }

    /// Starts a run with so many changes, one warm-up before them.
    fn start_probe(&self, changes: &str, flags: &[&str]) -> Process {
        let run = ["probe", "--output=json", "--warm-up=1", "--changes", changes];
        self.start(&[&run[..], flags].concat())
    }

    fn probe(&self, changes: &str, flags: &[&str]) -> Finished {
        self.start_probe(changes, flags).finish(SOON)
    }

    /// Waits until so many changes were sent.
    #[track_caller]
    fn wait_for_changes(&self, count: usize) {
        self.api.wait_for_requests(SOON, |requests| sent_changes(requests) >= count);
    }

    /// Waits until so many more changes were sent.
    #[track_caller]
    fn wait_for_more_changes(&self, count: usize) {
        self.wait_for_changes(sent_changes(&self.api.requests()) + count);
    }

    #[track_caller]
    fn check_nothing_left(&self) {
        for kind in [Kind::Namespace, Kind::Service, Kind::EndpointSlice] {
            assert_eq!(self.api.names(kind), [""; 0], "{kind:?}");
        }
    }
}

fn sent_changes(requests: &[Request]) -> usize {
    requests.iter().filter(|request| request.method == "PATCH").count()
}

#[track_caller]
fn report(finished: &Finished) -> Value {
    let read = serde_json::from_str(&finished.stdout);
    read.unwrap_or_else(|error| panic!("{error}: {}{}", finished.stdout, finished.stderr))
}

fn changes(report: &Value) -> &Vec<Value> {
    report["changes"].as_array().unwrap()
}

/// Checks that a change has all times, in their order.
#[track_caller]
fn check_order(change: &Value) {
    let time = |name: &str| change[name].as_f64().unwrap_or_else(|| panic!("{name}: {change}"));
    assert!(time("answered") > 0.0 && time("event") > 0.0, "{change}");
    assert!(time("committed") > 0.0 && time("committed") <= time("reached"), "{change}");
    assert_eq!(change["counts"]["old_after_new"], 0, "{change}");
    let count = |name: &str| change["counts"][name].as_u64().unwrap();
    // A try counts as lost after half a second, also on a busy machine.
    assert!(count("new") > 0 && count("new") + count("lost") > 10, "{change}");
}

#[track_caller]
fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    &row.unwrap_or_else(|| panic!("no {name}: {report}"))["value"]
}

#[test]
fn every_change_is_measured_in_all_stages_and_nothing_is_left() {
    let cluster = Cluster::new();
    let _proxy = cluster.proxy();
    let folder = tempfile::tempdir().unwrap();
    let [json, svg] = ["a.json", "a.svg"].map(|name| folder.path().join(name));
    let finished = cluster.probe("5", &["--rate=20", "--plot", svg.to_str().unwrap()]);
    let found = report(&finished);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    assert_eq!(finished.stderr, "");
    assert_eq!((changes(&found).len(), &found["interrupted"]), (5, &Value::Bool(false)));
    changes(&found).iter().for_each(check_order);
    assert_eq!(row(&found, "change: first packet at the new endpoint")["count"], 5);
    assert_eq!(row(&found, "after our watch: commit to nftables")["count"], 5);
    assert_eq!(*row(&found, "changes: without a commit"), 0.0);
    // The loop commits by itself unless something is queued for the thread of the kernel's socket.
    let committers = found["committers"].as_array().unwrap();
    assert!(!committers.is_empty(), "{found}");
    for committer in committers {
        assert!(committer == "deltaproxy" || committer == "nftables", "{found}");
    }
    assert!(found["endpoints"][0].as_str().unwrap().starts_with("192.168.50.2:"), "{found}");
    cluster.check_nothing_left();

    fs::write(&json, &finished.stdout).unwrap();
    let json = json.to_str().unwrap();
    let compared =
        cluster.net.node().output(deltaproxy_binary(), &["bench", "compare", json, json]);
    assert!(compared.ok().contains("change: first packet at the new endpoint, us"));
    assert_eq!(fs::read_to_string(svg).unwrap().matches("<polyline").count(), 5);
}

/// Verb and resource of a request of the probe.
fn right(request: &Request) -> (String, String) {
    let parts: Vec<&str> = request.path.split('/').collect();
    let resource = match parts[..] {
        [.., "namespaces", _, resource] | [.., "namespaces", _, resource, _] => resource,
        [.., resource @ ("namespaces" | "nodes"), _] => resource,
        [.., resource] => resource,
        [] => "",
    };
    let verb = match (request.method.as_str(), request.on) {
        ("POST", _) => "create",
        ("GET", On::Watch) => "watch",
        ("GET", _) if request.kind.is_some() => "list",
        (method, _) => &method.to_lowercase(),
    };
    (verb.to_owned(), resource.to_owned())
}

#[test]
fn the_rights_of_the_manifest_are_those_that_a_run_uses() {
    let cluster = Cluster::new();
    let _proxy = cluster.proxy();
    let _ = cluster.probe("1", &[]).ok();
    let requests = cluster.api.requests();
    // The daemon lists and watches all namespaces at once.
    let of_probe = requests
        .iter()
        .filter(|request| request.path.contains("/namespaces") || request.path.contains("/nodes/"));
    // The daemon writes an Event of its start.
    let of_probe = of_probe.filter(|request| !request.path.ends_with("/events"));
    let used: BTreeSet<_> = of_probe.map(right).collect();

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/probe-rbac.yaml");
    let objects = yaml::parse(&fs::read_to_string(path).unwrap()).unwrap();
    let role = objects.iter().find(|object| object.value["kind"] == "ClusterRole").unwrap();
    let texts = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).unwrap() };
    let rules = role.value["rules"].as_array().unwrap().iter();
    let allowed = rules.flat_map(|rule| {
        let verbs = texts(&rule["verbs"]);
        texts(&rule["resources"]).into_iter().flat_map(move |resource| {
            verbs.clone().into_iter().map(move |verb| (verb, resource.clone()))
        })
    });
    assert_eq!(used, allowed.collect());
}

#[test]
fn udp_is_measured_in_a_cluster_with_ipv6_only() {
    let cluster = Cluster::new();
    cluster.api.allocate_only_ipv6();
    let _proxy = cluster.proxy();
    // The Node has no address of that family, but the default route has.
    let found = report(&cluster.probe("3", &["--protocol=udp", "--rate=20"]));
    assert!(found["service"].as_str().unwrap().starts_with("[fd00:10:96::c8:"), "{found}");
    assert_eq!(changes(&found).len(), 3);
    changes(&found).iter().for_each(check_order);
    cluster.check_nothing_left();
}

#[test]
fn without_an_address_for_endpoints_it_is_said_where_it_was_looked_for() {
    let cluster = Cluster::without_route();
    cluster.api.allocate_only_ipv6();
    let finished = cluster.probe("1", &[]);
    assert!(finished.stderr.contains("no IPv6 address for endpoints: Node node1"), "{finished:?}");
    cluster.check_nothing_left();
    let finished = cluster.probe("1", &["--address=192.168.50.2"]);
    assert!(finished.stderr.contains("not configured on this cluster"), "{finished:?}");
    cluster.check_nothing_left();
}

#[test]
fn a_proxy_that_stands_still_shows_in_the_figures() {
    let cluster = Cluster::new();
    let proxy = cluster.proxy();
    // Some 20 ms from one change to the next, so that one of them falls into the time.
    let probe = cluster.start_probe("100000", &["--rate=50"]);
    cluster.wait_for_changes(2);
    for _ in 0..STOPS {
        proxy.signal(Signal::SIGSTOP);
        thread::sleep(STOPPED);
        proxy.signal(Signal::SIGCONT);
        cluster.wait_for_more_changes(3);
    }
    let found = report(&probe.terminate(SOON));
    let time = |change: &Value, name: &str| change[name].as_f64().unwrap_or_default();
    let least = STOPPED.as_secs_f64() * 1e6 / 2.0;
    let by_proxy = |change: &Value| time(change, "committed") - time(change, "event");
    let shows = |change: &Value, next: &Value| {
        by_proxy(change) >= least
            // Packets went to the old endpoint until then.
            && time(change, "reached") >= time(change, "committed")
            && time(change, "last_old") >= least
            && change["counts"]["old"].as_u64() > Some(20)
            // The changes that were due meanwhile count from then on.
            && time(next, "late") >= least / 2.0
    };
    assert!(changes(&found).windows(2).any(|pair| shows(&pair[0], &pair[1])), "{found}");
    let mean = |name: &str| row(&found, name)["mean"].as_f64().unwrap();
    let from_due = mean("change: first packet, from when it was due");
    assert!(from_due > mean("change: first packet at the new endpoint"), "{found}");
}

#[test]
fn a_run_that_is_ended_prints_what_it_has_and_leaves_nothing() {
    let cluster = Cluster::new();
    let _proxy = cluster.proxy();
    let probe = cluster.start_probe("100000", &["--rate=50"]);
    cluster.wait_for_changes(4);
    let finished = probe.terminate(SOON);
    assert_eq!(finished.code(), Some(1));
    assert!(finished.stderr.contains("ended before everything was measured"), "{finished:?}");
    let found = report(&finished);
    assert_eq!(found["interrupted"], true);
    assert!(!changes(&found).is_empty());
    cluster.check_nothing_left();
}

#[test]
fn a_second_signal_ends_it_at_once_and_names_what_is_left() {
    let cluster = Cluster::new();
    let _proxy = cluster.proxy();
    let probe = cluster.start_probe("100000", &["--rate=50"]);
    cluster.wait_for_changes(2);
    cluster.api.ignore("delete", "namespaces");
    probe.signal(Signal::SIGTERM);
    cluster.api.wait_for_requests(SOON, |requests| {
        requests
            .iter()
            .any(|it| it.method == "DELETE" && it.path.contains("/namespaces/deltaproxy"))
    });
    let finished = probe.terminate(SOON);
    let [namespace] = &cluster.api.names(Kind::Namespace)[..] else { panic!("one namespace") };
    let line = format!("namespace {namespace} is left in the cluster");
    assert!(finished.stderr.contains(&line), "{finished:?}");
}

#[test]
fn what_a_killed_run_leaves_is_named_by_the_next_one_and_cleaned_up() {
    let cluster = Cluster::new();
    let _proxy = cluster.proxy();
    let probe = cluster.start_probe("100000", &["--rate=50"]);
    cluster.wait_for_changes(2);
    drop(probe);
    let [namespace] = &cluster.api.names(Kind::Namespace)[..] else { panic!("one namespace") };

    let next = cluster.probe("1", &[]);
    assert_eq!(changes(&report(&next)).len(), 1);
    assert!(next.stderr.contains(&format!("namespace {namespace} is left")), "{next:?}");
    assert_eq!(&cluster.api.names(Kind::Namespace)[0], namespace);

    let of_other = cluster.start_on("node2", &["probe", "--cleanup"]).finish(SOON).ok();
    assert_eq!(of_other, format!("namespace {namespace} is of node node1: clean up there\n"));
    let cleaned = cluster.start(&["probe", "--cleanup"]).finish(SOON).ok();
    assert_eq!(cleaned, format!("namespace {namespace} deleted\n"));
    cluster.check_nothing_left();
    let cleaned = cluster.start(&["probe", "--cleanup"]).finish(SOON).ok();
    assert_eq!(cleaned, "nothing is left of earlier runs\n");
}

#[test]
fn without_a_proxy_it_is_said_what_was_tried() {
    let cluster = Cluster::new();
    let finished = cluster.probe("1", &["--timeout=1"]);
    assert_eq!((finished.code(), finished.stdout.as_str()), (Some(1), ""));
    for part in ["no TCP connection to 10.96.200.", "192.168.50.2:", "within 1 s", " tries, "] {
        assert!(finished.stderr.contains(part), "{part}: {finished:?}");
    }
    assert!(!finished.stderr.contains("no Node"), "{finished:?}");
    cluster.check_nothing_left();

    cluster.api.delete(Kind::Node, "node1");
    let flags = ["--timeout=1", "--address=192.168.50.2"];
    let finished = cluster.probe("1", &flags);
    assert!(finished.stderr.contains("the cluster has no Node node1"), "{finished:?}");
}

#[test]
fn missing_rights_are_named_and_nothing_is_left() {
    let cluster = Cluster::new();
    let _proxy = cluster.proxy();
    // From the last request to the first, since those before are forbidden still.
    for (verb, resource) in [
        ("patch", "endpointslices"),
        ("create", "endpointslices"),
        ("create", "services"),
        ("create", "namespaces"),
    ] {
        cluster.api.forbid(verb, resource);
        let finished = cluster.probe("1", &[]);
        assert_eq!(finished.code(), Some(1));
        let right = format!("cannot {verb} resource \"{resource}\"");
        assert!(finished.stderr.contains(&right), "{finished:?}");
        assert!(finished.stderr.contains("deploy/probe-rbac.yaml"), "{finished:?}");
        cluster.check_nothing_left();
    }
}

#[test]
fn a_namespace_that_cannot_be_deleted_is_named() {
    let cluster = Cluster::new();
    cluster.api.forbid("create", "services");
    cluster.api.forbid("delete", "namespaces");
    let finished = cluster.probe("1", &[]);
    let [namespace] = &cluster.api.names(Kind::Namespace)[..] else { panic!("one namespace") };
    assert!(finished.stderr.contains(&format!("namespace {namespace} is left")), "{finished:?}");
    assert!(finished.stderr.contains("cannot delete resource"), "{finished:?}");
}

#[test]
fn flags_and_servers_that_cannot_be_used_change_nothing() {
    let cluster = Cluster::new();
    for (address, why) in [
        ("127.0.0.1", "no loopback, link-local, multicast or unspecified address"),
        ("192.0.2.77", "is not an address of this machine"),
    ] {
        let finished = cluster.probe("1", &["--address", address]);
        assert!(finished.stderr.contains(why), "{finished:?}");
    }
    cluster.check_nothing_left();
    cluster.api.stop();
    let finished = cluster.probe("1", &[]);
    assert_eq!(finished.code(), Some(1));
    assert!(finished.stderr.contains("the API server cannot be reached"), "{finished:?}");
}
