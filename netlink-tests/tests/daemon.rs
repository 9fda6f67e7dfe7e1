//! The daemon with an API server: from the server's objects to packets.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // It measures a limit.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::object::{endpoint_slice, labelled, node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Fault, Kind, On};
use netlink_tests::http::get;
use netlink_tests::reader::Family;
use netlink_tests::scenario::WEB;
use netlink_tests::{Answer, Host, Net, Process, Server, deltaproxy_binary, eventually};
use nft::kernel::Nftables;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// Time between two attempts to write the Event of the start.
const START_RETRY: Duration = Duration::from_secs(10);

/// Where the daemon serves its metrics.
const METRICS: &str = "127.0.0.1:10249";

/// A node with two pods that serve, an API server on its loopback or on the host outside, and that
/// host.
struct Cluster {
    net: Net,
    api: ApiServer,
    _pods: [(Host, Server); 2],
    outside: Host,
}

impl Cluster {
    fn new() -> Self {
        Self::with_api(|node, _| node.run(ApiServer::with_web))
    }

    fn with_api(start: impl FnOnce(&Host, &Host) -> ApiServer) -> Self {
        let net = Net::new();
        let pod = |name: &str, ip: &str| {
            let host = net.pod(name, ip);
            let server = host.serve_tcp(8080, name);
            (host, server)
        };
        let pods = [pod("a", "10.244.1.5"), pod("b", "10.244.1.6")];
        let outside = net.outside("outside", "192.0.2.10");
        let api = start(net.node(), &outside);
        Self { net, api, _pods: pods, outside }
    }

    fn arguments<'a>(&'a self, metrics: &'a str) -> [&'a str; 7] {
        [
            "run",
            "--kubeconfig",
            self.api.kubeconfig().to_str().unwrap(),
            "--hostname-override=node1",
            "--cluster-cidr=10.244.0.0/16",
            "--healthz-bind-address=",
            metrics,
        ]
    }

    fn daemon(&self) -> Process {
        let arguments = self.arguments("--metrics-bind-address=");
        self.net.node().spawn(deltaproxy_binary(), &arguments)
    }

    /// A daemon whose standard error is not read.
    fn unread_daemon(&self) -> Process {
        let metrics = format!("--metrics-bind-address={METRICS}");
        self.net.node().spawn_unread(deltaproxy_binary(), &self.arguments(&metrics))
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> Option<u64> {
        let page = self.net.node().run(|| {
            let mut stream = TcpStream::connect(METRICS)?;
            stream.set_read_timeout(Some(SOON))?;
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n")?;
            io::read_to_string(stream)
        });
        let page = page.ok()?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.parse().ok()
    }

    /// Waits until new connections reach this pod.
    #[track_caller]
    fn wait_for(&self, pod: &str) {
        eventually(&format!("an answer of {pod}"), SOON, || {
            let answer = self.outside.connect_tcp(WEB);
            (format!("{answer:?}").contains(&format!("{pod:?}"))).then_some(())
        });
    }

    fn has_tables(&self) -> bool {
        self.net.node().read_table(Family::Ip).is_some()
    }

    /// Whether packets to addresses of ServiceCIDRs without a service are dropped.
    fn has_service_cidrs(&self) -> bool {
        let table = self.net.node().read_table(Family::Ip);
        // The first rule concerns services.
        table.is_some_and(|table| table.chains["cluster-ips-check"].rules.len() == 2)
    }

    fn replace_endpoint(&self, address: &str) {
        self.api.push(endpoint_slice("default/web-1", "web", &[address], 8080));
    }
}

#[test]
fn objects_of_the_server_are_routed_and_their_changes_followed() {
    let cluster = Cluster::new();
    let _daemon = cluster.daemon();
    cluster.wait_for("a");
    cluster.replace_endpoint("10.244.1.6");
    cluster.wait_for("b");
}

#[test]
fn nothing_is_written_before_every_resource_is_listed() {
    for late in [Kind::EndpointSlice, Kind::ServiceCidr] {
        let cluster = Cluster::new();
        let fault = Fault::Status(500, "InternalError");
        cluster.api.misbehave(late, On::Any, fault, usize::MAX);
        let _daemon = cluster.daemon();
        // Two random waits: for more, ServiceCIDRs could come after the 10 s for which they are
        // awaited.
        cluster.api.wait_for_requests(SOON, |requests| {
            requests.iter().filter(|request| request.kind == Some(late)).count() >= 3
        });
        assert!(!cluster.has_tables(), "{late:?}");
        cluster.api.heal();
        cluster.wait_for("a");
        eventually("the rules of ServiceCIDRs", SOON, || cluster.has_service_cidrs().then_some(()));
    }
}

#[test]
fn service_cidrs_that_are_never_listed_delay_the_first_commit_by_ten_seconds() {
    let cluster = Cluster::new();
    cluster.api.misbehave(Kind::ServiceCidr, On::Any, Fault::Silence, usize::MAX);
    let before = Instant::now();
    let mut daemon = cluster.daemon();
    daemon.wait_for_line("ServiceCIDRs are not listed after 10 s", SOON * 2);
    assert!(before.elapsed() >= Duration::from_secs(10), "{:?}", before.elapsed());
    cluster.wait_for("a");
    assert!(!cluster.has_service_cidrs());

    cluster.api.heal();
    cluster.api.stop();
    cluster.api.reopen();
    eventually("the rules of ServiceCIDRs", SOON, || cluster.has_service_cidrs().then_some(()));
}

#[test]
fn a_server_without_streaming_lists_is_followed_by_list_and_watch() {
    let cluster = Cluster::new();
    for kind in Kind::ALL {
        cluster.api.misbehave(kind, On::StreamingList, Fault::Status(422, "Invalid"), usize::MAX);
    }
    let _daemon = cluster.daemon();
    cluster.wait_for("a");
    cluster.replace_endpoint("10.244.1.6");
    cluster.wait_for("b");
}

#[test]
fn the_rules_stay_while_the_server_is_down_and_missed_changes_follow() {
    let cluster = Cluster::new();
    let mut daemon = cluster.daemon();
    cluster.wait_for("a");
    cluster.api.stop();
    cluster.replace_endpoint("10.244.1.6");
    cluster.api.push(service("default/gone", "10.96.0.99", 80));
    cluster.wait_for("a");
    daemon.wait_for_line("trying again", SOON);
    cluster.api.compact();
    cluster.api.reopen();
    cluster.wait_for("b");
    cluster.api.delete(Kind::Service, "default/gone");
    let has_gone = || format!("{:?}", cluster.net.node().read_table(Family::Ip)).contains("gone");
    eventually("the deleted service to go", SOON, || (!has_gone()).then_some(()));
}

/// The lines of the log about the watches, the first sync, the start and the end.
fn lines_with<'a>(log: &'a str, words: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(words)).collect()
}

#[test]
fn the_log_has_a_line_when_the_server_is_lost_and_one_when_it_is_found_again() {
    let cluster = Cluster::new();
    let mut daemon = cluster.daemon();
    cluster.wait_for("a");
    let at = format!(
        "following services, endpointslices.discovery.k8s.io, nodes, \
         servicecidrs.networking.k8s.io at {}",
        cluster.api.address()
    );
    cluster.api.stop();
    let lost = daemon.wait_for_line(&at, SOON);
    assert!(lost.contains("WARN") && lost.contains("the API server cannot be reached"), "{lost}");
    // Each watch tries some more times.
    std::thread::sleep(Duration::from_secs(3));
    cluster.api.reopen();
    let found = daemon.wait_for_line(&format!("{at} again after "), SOON * 4);
    let seconds = found.trim().strip_suffix(" s").unwrap().rsplit(' ').next().unwrap();
    assert!((3.0..60.0).contains(&seconds.parse::<f64>().unwrap()), "{found}");
    let log = daemon.terminate(SOON).stderr;
    assert_eq!(lines_with(&log, "following ").len(), 2, "{log}");
    let [end] = lines_with(&log, "stopped")[..] else { panic!("{log}") };
    assert!(end.contains("signal=\"SIGTERM\"") && end.contains(" seconds="), "{end}");
    assert!(end.contains(" tables="), "{end}");
    // At the end the kernel may be busy with transactions of other tests.
    let lines = log.lines().filter(|line| !line.contains("the kernel has not answered for "));
    let lines = lines.count();
    assert_eq!(lines, lines_with(&log, " INFO ").len() + 1, "{log}");
}

#[test]
fn a_server_that_refuses_one_resource_is_logged_for_it_alone() {
    let cluster = Cluster::new();
    cluster.api.misbehave(Kind::Node, On::Any, Fault::Status(403, "no nodes"), usize::MAX);
    let mut daemon = cluster.daemon();
    let at = cluster.api.address();
    let words = format!("following nodes at {at}: the API server forbids it (403)");
    daemon.wait_for_line(&words, SOON);
    cluster.api.heal();
    daemon.wait_for_line(&format!("following nodes at {at} again after "), SOON * 2);
    let log = daemon.terminate(SOON).stderr;
    assert_eq!(lines_with(&log, "following ").len(), 2, "{log}");
}

#[test]
fn debug_lines_are_those_of_our_crates() {
    let cluster = Cluster::new();
    let arguments = cluster.arguments("--metrics-bind-address=");
    let arguments = [&arguments[..], &["-v", "4", "--log-format=json"]].concat();
    let daemon = cluster.net.node().spawn(deltaproxy_binary(), &arguments);
    cluster.wait_for("a");
    cluster.api.stop();
    cluster.api.reopen();
    cluster.replace_endpoint("10.244.1.6");
    cluster.wait_for("b");
    let log = daemon.terminate(SOON).stderr;
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_others = |line: &&Value| !line["target"].as_str().unwrap().starts_with("deltaproxy");
    assert_eq!(lines.iter().filter(of_others).collect::<Vec<_>>(), [&Value::Null; 0]);
    assert!(lines.iter().any(|line| line["level"] == "DEBUG"), "{log}");
}

#[test]
fn a_server_that_refuses_us_is_named_and_the_rules_stay() {
    for (status, reason) in [(401, "Unauthorized"), (403, "Forbidden")] {
        let cluster = Cluster::new();
        let daemon = cluster.daemon();
        cluster.wait_for("a");
        daemon.terminate(SOON);
        for kind in Kind::ALL {
            cluster.api.misbehave(kind, On::Any, Fault::Status(status, reason), usize::MAX);
        }
        let mut daemon = cluster.daemon();
        daemon.wait_for_line(&status.to_string(), SOON);
        assert!(daemon.is_running());
        cluster.wait_for("a");
    }
}

#[test]
fn an_object_that_is_left_out_gets_one_event() {
    let cluster = Cluster::new();
    let mut bad = service("default/bad", "10.96.0.11", 80);
    bad["metadata"]["uid"] = "0c2b52f6".into();
    bad["spec"]["externalIPs"] = serde_json::json!(["somewhere"]);
    cluster.api.push(bad);
    // Both claim the same address.
    cluster.api.push(service("default/zzz", "10.96.0.10", 80));
    for round in 1..=2 {
        let daemon = cluster.daemon();
        cluster.wait_for("a");
        let noted = |name: &str, words: &str| {
            let of_it = |event: &Value| {
                event["regarding"]["name"] == name && event["note"].to_string().contains(words)
            };
            eventually(words, SOON, || cluster.api.events().into_iter().find(of_it))
        };
        let event = noted("bad", "spec.externalIPs[0]: \\\"somewhere\\\" is not an IP address");
        assert_eq!(event["regarding"]["uid"], "0c2b52f6");
        assert_eq!(event["reportingInstance"], "deltaproxy-node1");
        noted("zzz", "default/web");
        // All nodes would write it, and this one at each start; and that it starts.
        cluster.api.wait_for_requests(SOON, |requests| {
            requests.iter().filter(|request| request.posted.is_object()).count() >= 3 * round
        });
        daemon.terminate(SOON);
    }
    let events = cluster.api.events();
    let starts: Vec<_> = events.iter().filter(|event| event["reason"] == "Starting").collect();
    assert_eq!((events.len(), starts.len()), (4, 2), "{events:#?}");
    assert_eq!(starts[0]["regarding"]["kind"], "Node");
    assert_eq!(starts[0]["regarding"]["name"], "node1");
}

#[test]
fn a_server_that_takes_no_events_is_followed_all_the_same() {
    let cluster = Cluster::new();
    cluster.api.forbid_events();
    cluster.api.push(service("default/zzz", "10.96.0.10", 80));
    let mut daemon = cluster.daemon();
    daemon.wait_for_line("cannot write events", SOON);
    cluster.wait_for("a");
    cluster.replace_endpoint("10.244.1.6");
    cluster.wait_for("b");
}

/// The server may start after the node.
#[test]
fn the_event_of_the_start_is_written_once_the_server_accepts_it() {
    let cluster = Cluster::new();
    cluster.api.forbid_events();
    let _daemon = cluster.daemon();
    cluster.api.wait_for_requests(SOON, |requests| {
        requests.iter().any(|request| request.posted["reason"] == "Starting")
    });
    assert_eq!(cluster.api.events(), Vec::<Value>::new());
    cluster.api.allow_events();
    let limit = START_RETRY + SOON;
    eventually("the event", limit, || {
        cluster.api.events().into_iter().find(|event| event["reason"] == "Starting")
    });
}

/// The ranges hold the node, its gateway and the API server, which are three hosts.
#[test]
fn service_cidrs_over_other_networks_are_reported_and_cut_the_node_off_from_nothing() {
    for (server, wrong) in [
        ("192.0.2.10", ["192.0.2.0/24", "192.168.0.0/16", "198.51.100.0/24"]),
        ("fd00:192:0:2::10", ["fd00:192:0:2::/64", "fd00:192:168::/48", "fd00:198:51:100::/64"]),
    ] {
        let server: IpAddr = server.parse().unwrap();
        let cluster =
            Cluster::with_api(|_, outside| outside.run(|| ApiServer::with_web_at(server)));
        let (node, api) = (cluster.net.node(), &cluster.api);
        let gateway = cluster.net.outside("gateway", "198.51.100.1");
        cluster.net.route_everything_to(&gateway);
        let _servers = [node.serve_tcp(10250, "node"), gateway.serve_tcp(53, "gateway")];
        let [own, router]: [IpAddr; 2] = match server {
            IpAddr::V4(_) => ["192.168.50.2", "198.51.100.1"],
            IpAddr::V6(_) => ["fd00:192:168:50::2", "fd00:198:51:100::1"],
        }
        .map(|address| address.parse().unwrap());
        let names = ["a", "b", "c"];
        let push =
            || names.iter().zip(wrong).for_each(|(name, it)| api.push(service_cidr(name, it)));
        let problems = || node.output(deltaproxy_binary(), &["problems"]).stdout;
        for (pod, address, signal) in [
            ("b", "10.244.1.6", Signal::SIGKILL),
            ("a", "10.244.1.5", Signal::SIGTERM),
            ("b", "10.244.1.6", Signal::SIGTERM),
        ] {
            let daemon =
                node.spawn(deltaproxy_binary(), &cluster.arguments("--metrics-bind-address="));
            push();
            let expected = [
                format!("{} holds {server}, an address of the API server;", wrong[0]),
                format!("{} holds {own}, an address of this node;", wrong[1]),
                format!("{} holds {router}, a gateway of this node;", wrong[2]),
            ];
            eventually("the problems", SOON, || {
                let found = problems();
                expected.iter().all(|line| found.contains(line)).then_some(())
            });
            // Watches that are broken need new connections.
            api.stop();
            api.reopen();
            cluster.replace_endpoint(address);
            cluster.wait_for(pod);
            daemon.signal(signal);
            let _ = daemon.finish(SOON);
            for client in [&cluster.outside, node] {
                assert_eq!(client.connect_tcp((own, 10250)).server(), "node", "{own}");
            }
            assert_eq!(node.connect_tcp((router, 53)).server(), "gateway", "{router}");
        }
        let _daemon =
            node.spawn(deltaproxy_binary(), &cluster.arguments("--metrics-bind-address="));
        cluster.wait_for("b");
        names.iter().for_each(|name| api.delete(Kind::ServiceCidr, name));
        eventually("no problem", SOON, || (problems() == "nothing is left out\n").then_some(()));
        let of_overlap = |event: &&Value| event["reason"] == "Overlap";
        let events = api.events();
        let kinds = events.iter().filter(of_overlap).map(|it| it["regarding"]["kind"].clone());
        assert!(kinds.eq(["ServiceCIDR"; 3]));
    }
}

#[test]
fn a_missing_kubeconfig_is_named_and_waited_for() {
    let net = Net::new();
    let arguments = [
        "run",
        "--kubeconfig=/nonexistent/config",
        "--hostname-override=node1",
        "--healthz-bind-address=",
        "--metrics-bind-address=",
    ];
    let mut daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    daemon.wait_for_line("/nonexistent/config", SOON);
    assert!(daemon.is_running());
}

/// More problems than the pipe and the queue before it take, a line each: 2 MB. Only the first
/// problems of an object are listed.
fn push_problems(api: &ApiServer) {
    for i in 0..800 {
        let address = format!("10.96.{}.{}", 1 + i / 200, 1 + i % 200);
        let mut bad = service(&format!("default/bad-{i}"), &address, 80);
        let addresses: Vec<_> = (0..20).map(|j| format!("somewhere-{j}")).collect();
        bad["spec"]["externalIPs"] = addresses.into();
        api.push(bad);
    }
}

#[test]
fn routing_and_sigterm_work_while_standard_error_is_not_read() {
    let cluster = Cluster::new();
    push_problems(&cluster.api);
    let daemon = cluster.unread_daemon();
    cluster.wait_for("a");
    cluster.replace_endpoint("10.244.1.6");
    cluster.wait_for("b");
    let dropped = || cluster.metric(LOG_LINES_DROPPED).filter(|lines| *lines > 0);
    eventually("dropped log lines", SOON, dropped);
    daemon.terminate(SOON);
}

#[test]
fn a_log_that_is_read_again_has_the_number_of_dropped_lines() {
    let cluster = Cluster::new();
    push_problems(&cluster.api);
    let mut daemon = cluster.unread_daemon();
    let dropped = || cluster.metric(LOG_LINES_DROPPED).filter(|lines| *lines > 0);
    eventually("dropped log lines", SOON, dropped);
    // Everything is listed by then, and has been reported.
    cluster.wait_for("a");
    daemon.read_output();
    // A slow machine may have written a count before the pipe was full.
    let mut count = 0;
    while count < dropped().unwrap() {
        let line = daemon.wait_for_line(" log lines were dropped", SOON);
        let (before, _) = line.split_once(" log lines were dropped").unwrap();
        count += before.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    }
    assert_eq!(count, dropped().unwrap());
    cluster.replace_endpoint("10.244.1.6");
    cluster.wait_for("b");
    cluster.api.push(service("default/zzz", "10.96.0.10", 80));
    daemon.wait_for_line("default/zzz", SOON);
}

const LOG_LINES_DROPPED: &str = "deltaproxy_log_lines_dropped_total";

/// The size of a process in memory, in bytes.
fn size(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The number of threads of a process with tokio's name.
fn runtime_threads(process: &Process) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let named = tasks.flatten().filter_map(|it| name(it).ok()).filter(|it| it == "deltaproxy\n");
    // The first thread has the same name.
    named.count() - 1
}

#[test]
fn the_daemon_has_no_transparent_huge_pages() {
    let cluster = Cluster::new();
    let daemon = cluster.daemon();
    cluster.wait_for("a");
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    assert!(status.lines().any(|line| line == "THP_enabled:\t0"), "{status}");
}

/// A limit of processes does not bind root. A thread that has no room for its stack fails likewise.
#[test]
fn without_a_further_thread_the_daemon_answers_and_follows_on() {
    let cluster = Cluster::new();
    let node = cluster.net.node();
    let arguments = cluster.arguments("--metrics-bind-address=127.0.0.1:10249");
    let daemon = node.spawn(deltaproxy_binary(), &arguments);
    cluster.wait_for("a");
    // Two workers, and those for blocking calls, which never end.
    assert!(runtime_threads(&daemon) >= 2 + 4, "{} threads", runtime_threads(&daemon));
    let limit = format!("--as={}", size(&daemon) + (3 << 19));
    let _ = node.output("prlimit", &["--pid", &daemon.pid().to_string(), &limit]).ok();
    for path in ["/metrics", "/flagz", "/metrics"] {
        let answer = get(node, 10249, path).map(|answer| answer.status);
        assert!(matches!(answer, Some(200 | 503)), "{path}: {answer:?}");
    }
    cluster.replace_endpoint("10.244.1.6");
    cluster.wait_for("b");
    let finished = daemon.terminate(SOON);
    assert_eq!(finished.code(), Some(0));
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}

#[test]
fn a_start_without_threads_ends_with_an_error_that_names_the_limit() {
    let cluster = Cluster::new();
    let arguments = cluster.arguments("--metrics-bind-address=");
    let program = deltaproxy_binary();
    let stack = format!("RUST_MIN_STACK={}", 1_u64 << 50);
    let command = [&[&*stack, program.to_str().unwrap()], &arguments[..]].concat();
    let finished = cluster.net.node().output("env", &command);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    let error = finished.stderr;
    assert!(error.contains("threads are needed, but no more than 0 can be started"), "{error}");
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn a_start_beside_an_empty_list_keeps_the_services_of_the_daemon_before() {
    let cluster = Cluster::new();
    let first = cluster.daemon();
    cluster.wait_for("a");
    first.signal(Signal::SIGKILL);
    drop(first);
    for kind in [Kind::Service, Kind::EndpointSlice] {
        cluster.api.misbehave(kind, On::Any, Fault::Empty, 1);
    }
    let mut second = cluster.daemon();
    let doubt = second.wait_for_line("lists none, but it had some", SOON);
    assert!(doubt.contains("WARN following services, endpointslices"), "{doubt}");
    assert_eq!(cluster.outside.connect_tcp(WEB).server(), "a");
    second.wait_for_line("the tables are complete services=1", SOON);
    assert_eq!(cluster.outside.connect_tcp(WEB).server(), "a");
}

/// Services that another zone of the node changes in several transactions.
const MANY: u32 = 20_000;

/// Most connections beside a change, also if the test fails meanwhile.
const MOST: usize = 20_000;

/// The cluster IP of one of the many services.
fn ip(number: u32) -> Ipv4Addr {
    (u32::from(Ipv4Addr::new(10, 96, 16, 0)) + number).into()
}

/// One of the many services, and its slice: pod `a` is for zone `a`, pod `b` for zone `b`.
fn zoned(number: u32) -> [Value; 2] {
    let service = service(&format!("default/many-{number}"), &ip(number).to_string(), 8080);
    let (name, pods) = (format!("many-{number}"), ["10.244.1.5", "10.244.1.6"]);
    let mut slice = endpoint_slice(&format!("default/{name}-1"), &name, &pods, 8080);
    for (endpoint, zone) in ["a", "b"].into_iter().enumerate() {
        slice["endpoints"][endpoint]["hints"] = json!({"forZones": [{"name": zone}]});
    }
    [service, slice]
}

#[test]
fn services_answer_while_another_zone_of_the_node_changes_all_of_them() {
    let cluster = Cluster::new();
    cluster.api.push_all((0..MANY).flat_map(zoned));
    let _daemon = cluster.daemon();
    cluster.wait_for("a");
    let mut kernel = cluster.net.node().run(|| Nftables::open().unwrap());
    let address = |number| format!("{}:8080", ip(number));
    let asked = [0, MANY / 2, MANY - 1].map(address);
    let checked = || (0..MANY).step_by(200).map(address);
    let answers = |answer: &Answer| matches!(answer, Answer::From { .. });
    // Packets to addresses that no service has yet are dropped.
    checked().chain(asked.clone()).for_each(|to| {
        let first = || answers(&cluster.outside.connect_tcp(&to)).then_some(());
        eventually(&format!("{to} to be loaded"), SOON, first);
    });
    for zone in ["b", "a"].repeat(2) {
        // Before the first change, each answer is of either pod.
        let reaches_zone =
            |to: &str| (0..8).all(|_| cluster.outside.connect_tcp(to).server() == zone);
        let before = kernel.generation().unwrap().0;
        let is_over = AtomicBool::new(false);
        let failed = thread::scope(|threads| {
            let asking = threads.spawn(|| {
                let to = asked.iter().cycle().take(MOST);
                let all = to.map(|to| cluster.outside.connect_tcp(to));
                let until_over = all.take_while(|_| !is_over.load(Ordering::Relaxed));
                until_over.filter(|it| !answers(it)).collect::<Vec<_>>()
            });
            let node = node("node1", "192.168.50.2");
            cluster.api.push(labelled(node, "topology.kubernetes.io/zone", zone));
            for to in checked() {
                eventually(&format!("{to} to change"), SOON, || reaches_zone(&to).then_some(()));
            }
            is_over.store(true, Ordering::Relaxed);
            asking.join().unwrap()
        });
        assert!(failed.is_empty(), "{failed:?}");
        checked().for_each(|to| assert!(reaches_zone(&to), "{to}"));
        let commits = kernel.generation().unwrap().0 - before;
        assert!(commits > 4, "{commits}");
    }
}
