//! Health and metrics over real sockets on the loopback interface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use daemon::observe::{
    CommitStage, Observe, ServedContent, Site, Startup, Transaction, bind, serve,
};
use daemon::open_files::raise;
use engine::model::{Change, Event, ObjectName};
use engine::schedule::Task;
use nft::family::Family;

/// The longest that any answer may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A daemon's server on a port of the system's choice; it ends with the runtime.
struct Server {
    observe: Observe,
    port: u16,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    fn start(site: Site, address: &str) -> Self {
        Self::of(ServedContent::new(Observe::new()), site, address)
    }

    fn of(content: ServedContent, site: Site, address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(async { bind(address.parse().unwrap()).unwrap() });
        let port = listener.local_addr().unwrap().port();
        let observe = content.observe.clone();
        runtime.spawn(serve(Arc::new(content), site, listener));
        Self { observe, port, _runtime: runtime }
    }

    #[track_caller]
    fn send(&self, request: &str) -> String {
        ask(SocketAddr::from(([127, 0, 0, 1], self.port)), request)
    }

    #[track_caller]
    fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }
}

#[track_caller]
fn ask(address: SocketAddr, request: &str) -> String {
    String::from_utf8(ask_bytes(address, request)).unwrap()
}

#[track_caller]
fn ask_bytes(address: SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // A server that refuses a long request may close before it has read all.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn the_log_says_once_why_the_daemon_is_not_alive() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let log = tracing_subscriber::fmt().with_writer(Mutex::new(file.reopen().unwrap()));
    // The server has threads of its own.
    tracing::subscriber::set_global_default(log.finish()).unwrap();
    let server = Server::start(Site::Health, "127.0.0.1:0");
    assert!(server.get("/livez").starts_with("HTTP/1.1 200 "));
    server.observe.queued(Instant::now().checked_sub(Duration::from_secs(60)).unwrap());
    for _ in 0..2 {
        assert!(server.get("/livez").starts_with("HTTP/1.1 503 "));
    }
    let log = std::fs::read_to_string(file.path()).unwrap();
    let line = "/livez answers 503: not ready: a change waits for too long";
    assert_eq!(log.matches(line).count(), 1, "{log}");
}

#[test]
fn healthz_follows_syncs_and_the_node() {
    let server = Server::start(Site::Health, "127.0.0.1:0");
    assert!(server.get("/healthz").starts_with("HTTP/1.1 503 "));
    assert!(server.get("/livez").starts_with("HTTP/1.1 200 "));
    assert!(server.get("/readyz").starts_with("HTTP/1.1 503 "));
    server.observe.node_eligible(true);
    Family::ALL.into_iter().for_each(|family| server.observe.synced(family, Instant::now()));
    let answer = server.get("/healthz?verbose");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for part in [
        "content-type: application/json\r\n",
        "x-content-type-options: nosniff\r\n",
        "\"nodeEligible\":true,\"healthy\":true,\"status\":{\"IPv4\":{",
    ] {
        assert!(answer.contains(part), "{answer}");
    }
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    server.observe.queued(long_ago);
    assert!(server.get("/healthz").starts_with("HTTP/1.1 503 "));
    assert!(server.get("/livez").starts_with("HTTP/1.1 503 "));
    assert!(server.get("/readyz").starts_with("HTTP/1.1 200 "));
    assert!(server.get("/nothing").starts_with("HTTP/1.1 404 "));
}

#[test]
fn idle_and_slow_connections_do_not_delay_answers() {
    // Both ends of each connection; the server closes most of its ends.
    assert!(raise().unwrap() >= 4_100, "the hard limit of open files (ulimit -Hn) is too low");
    let server = Server::start(Site::Health, "127.0.0.1:0");
    let started = Instant::now();
    let mut idle = Vec::new();
    for number in 0..2_000u32 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();
        }
        idle.push(stream);
        if number % 100 == 99 {
            assert!(server.get("/livez").starts_with("HTTP/1.1 200 "));
        }
    }
    // Waiting for places would take some 40 s.
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}

#[test]
fn any_method_is_answered() {
    let server = Server::start(Site::Health, "127.0.0.1:0");
    let post = "POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
    assert!(server.send(post).starts_with("HTTP/1.1 200 "));
    let head = server.send("HEAD /livez HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.0 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn all_ipv4_addresses_are_all_addresses_of_both_families() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let server = Server::start(Site::Health, address);
        assert!(server.get("/livez").starts_with("HTTP/1.1 200 "), "{address}");
        // A machine without IPv6 does not have this address.
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            let address = SocketAddr::from((Ipv6Addr::LOCALHOST, server.port));
            let answer = ask(address, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    }
}

#[test]
fn metrics_are_served_as_text_and_on_request_as_openmetrics() {
    let server = Server::start(Site::Metrics, "127.0.0.1:0");
    let gone = Change::Gone(ObjectName::written("default/web"));
    server.observe.event(&Event::Service(gone));
    let metrics = server.observe.metrics();
    (0..2).for_each(|_| metrics.own.problem("invalid"));
    metrics.kube_proxy.sync_took(Task::Commit, Duration::from_millis(3));
    server.observe.network_programmed(&[SystemTime::now()]);
    Family::ALL
        .into_iter()
        .for_each(|family| server.observe.sync_failed(family, false, Instant::now()));
    metrics.commits.refused();
    server.observe.committed(&Transaction {
        operations: &[("newsetelem", 5)],
        added: 7,
        bytes: 4_000,
        family: Some(Family::Ip),
        took: Duration::from_micros(90),
        ..Transaction::default()
    });
    metrics.commits.stage_took(CommitStage::Commit, Duration::from_micros(50));
    let accept = "Accept: application/openmetrics-text; version=1.0.0";
    let answer = server.send(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n\r\n"));
    for part in [
        "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n",
        "\n# TYPE kubeproxy_sync_proxy_rules_service_changes counter\n",
        "\nkubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.004\",ip_family=\"IPv4\"} 1\n",
        "\nkubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv6\"} 1\n",
        "\nkubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 1\n",
        "\nkubeproxy_sync_proxy_rules_service_changes_total 1\n",
        "\ndeltaproxy_problems_total{kind=\"invalid\"} 2\n",
        "\ndeltaproxy_operations_total{kind=\"newsetelem\"} 5\n",
        "\n# EOF\n",
    ] {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
    let answer = server.get("/metrics");
    for part in [
        "content-type: text/plain; version=0.0.4; charset=utf-8\r\n",
        "\n# TYPE kubeproxy_sync_proxy_rules_service_changes_total counter\n",
        "\nkubeproxy_sync_proxy_rules_service_changes_total 1\n",
        "\nkubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.004\",ip_family=\"IPv4\"} 1\n",
        "\ndeltaproxy_stage_duration_seconds_bucket{le=\"5e-05\",stage=\"commit\"} 1\n",
        "\ndeltaproxy_stage_duration_seconds_bucket{le=\"1\",stage=\"commit\"} 1\n",
        "\n# TYPE process_cpu_seconds_total counter\n",
        "\n# TYPE kubernetes_build_info gauge\n",
    ] {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
    assert!(!answer.contains("# EOF"), "{answer}");
    assert!(server.get("/proxyMode").ends_with("\r\n\r\nnftables"));
    assert!(server.get("/healthz").ends_with("\r\n\r\nok"));
}

#[test]
fn pages_of_kubernetes_components_are_served() {
    let startup = Startup {
        configuration: serde_json::json!({ "mode": "nftables" }),
        flags: vec![("v".to_owned(), "2".to_owned())],
    };
    let content = ServedContent { startup, ..ServedContent::new(Observe::new()) };
    let metrics = Server::of(content, Site::Metrics, "127.0.0.1:0");
    for (path, kind, body) in [
        ("/configz", "application/json", "{\"kubeproxy.config.k8s.io\":{\"mode\":\"nftables\"}}"),
        ("/flagz", "text/plain; charset=utf-8", "\ndeltaproxy flagz\n"),
        ("/flagz", "text/plain; charset=utf-8", "\nv=2\n"),
        ("/statusz", "text/plain; charset=utf-8", "\nUp: 0 hr 00 min "),
    ] {
        let answer = metrics.get(path);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains(&format!("content-type: {kind}\r\n")), "{answer}");
        assert!(answer.contains(body), "{answer}");
    }
    assert!(metrics.get("/debug/pprof/").starts_with("HTTP/1.1 404 "));
}

/// Clients of kube-proxy ask so for objects instead of text.
#[test]
fn statusz_and_flagz_are_objects_for_programs_and_406_for_unknown_formats() {
    let server = Server::start(Site::Metrics, "127.0.0.1:0");
    let ask = |path: &str, accept: &str| {
        server.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"))
    };
    for (path, kind) in [("/statusz", "Statusz"), ("/flagz", "Flagz")] {
        for media in ["json", "yaml"] {
            let accept = format!("application/{media};v=v1beta1;g=config.k8s.io;as={kind}");
            let answer = ask(path, &accept);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            let content_type = format!(
                "content-type: application/{media};g=config.k8s.io;v=v1beta1;as={kind}\r\n"
            );
            assert!(answer.contains(&content_type) && answer.contains(kind), "{answer}");
        }
        let answer = ask(path, "application/json");
        assert!(
            answer.starts_with("HTTP/1.1 406 ") && answer.contains("NotAcceptable"),
            "{answer}"
        );
    }
}

#[test]
fn metrics_are_compressed_for_clients_that_accept_gzip() {
    let server = Server::start(Site::Metrics, "127.0.0.1:0");
    for (path, content_type) in [
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/metrics/slis", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n");
        let address = SocketAddr::from(([127, 0, 0, 1], server.port));
        let answer = ask_bytes(address, &format!("{head}Accept-Encoding: gzip\r\n\r\n"));
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let (head_of_answer, body) = answer.split_at(end);
        let head_of_answer = String::from_utf8_lossy(head_of_answer);
        assert!(head_of_answer.contains("content-encoding: gzip\r\n"), "{head_of_answer}");
        assert!(head_of_answer.contains(content_type), "{head_of_answer}");
        assert_eq!(body[..2], [0x1f, 0x8b], "the magic number of gzip");
        let plain = server.send(&format!("{head}Accept-Encoding: gzip;q=0\r\n\r\n"));
        assert!(!plain.contains("content-encoding"), "{plain}");
        let none = server.send(&format!("{head}Accept-Encoding: identity;q=0\r\n\r\n"));
        assert!(none.starts_with("HTTP/1.1 406 "), "{none}");
    }
}

#[test]
fn browsers_guess_the_type_of_no_answer() {
    let health = Server::start(Site::Health, "127.0.0.1:0");
    let metrics = Server::start(Site::Metrics, "127.0.0.1:0");
    let mut answers = Vec::new();
    answers.extend(["/healthz", "/livez", "/readyz", "/nothing"].map(|path| health.get(path)));
    let paths = [
        "/",
        "/status.json",
        "/history.json",
        "/problems.json",
        "/metrics",
        "/metrics/slis",
        "/configz",
        "/flagz",
        "/statusz",
        "/healthz",
        "/proxyMode",
        "/nothing",
    ];
    answers.extend(paths.map(|path| metrics.get(path)));
    let elsewhere = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    answers.push(metrics.send(elsewhere));
    assert!(answers.last().unwrap().starts_with("HTTP/1.1 421 "));
    for (line, code) in [("Accept: a/b", "406"), ("Accept-Encoding: *;q=0", "406")] {
        let path = if line.contains("Encoding") { "/metrics" } else { "/statusz" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n");
        answers.push(metrics.send(&request));
        assert!(answers.last().unwrap().contains(code));
    }
    for answer in answers {
        assert!(answer.contains("\r\nx-content-type-options: nosniff\r\n"), "{answer}");
    }
}

#[test]
fn probes_are_counted_as_indicators() {
    let health = Server::start(Site::Health, "127.0.0.1:0");
    let metrics =
        Server::of(ServedContent::new(health.observe.clone()), Site::Metrics, "127.0.0.1:0");
    for path in ["/livez", "/healthz", "/readyz", "/readyz"] {
        let _ = health.get(path);
    }
    let answer = metrics.get("/metrics/slis");
    for part in [
        "content-type: text/plain; version=0.0.4; charset=utf-8\r\n",
        "# TYPE kubernetes_healthcheck gauge\n",
        "# TYPE kubernetes_healthchecks_total counter\n",
        "kubernetes_healthcheck{name=\"proxy\",type=\"livez\"} 1\n",
        "kubernetes_healthcheck{name=\"proxy\",type=\"healthz\"} 0\n",
        "kubernetes_healthchecks_total{name=\"proxy\",type=\"readyz\",status=\"error\"} 2\n",
    ] {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
}

#[test]
fn requests_have_bounds() {
    let server = Server::start(Site::Metrics, "127.0.0.1:0");
    let long = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    assert!(!server.send(&long).contains(" 200 "));
    assert!(!server.send("no request\r\n\r\n").contains(" 200 "));
    // Headers that never end: the connection is closed without an answer, and others go on.
    let started = Instant::now();
    assert!(!server.send("GET /healthz HTTP/1.1\r\n").contains(" 200 "));
    assert!(started.elapsed() < LIMIT);
    assert!(server.get("/healthz").contains(" 200 "));
}
