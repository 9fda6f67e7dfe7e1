//! The status page: what its document has of what happened, and what a person sees in a browser.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // It draws a minute.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{endpoint_slice, service};
use netlink_tests::scenario::{Manifests, Node};
use netlink_tests::{Host, Net, Process, chromium_available, deltaproxy_binary, eventually};
use nft::kernel::Release;
use serde_json::{Value, json};

/// How long the daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// How long the browser may take.
const BROWSER: Duration = Duration::from_secs(60);

/// The name of a Service that is markup.
const MARKUP: &str = "<script><img src=x onerror=document.title=1>";

/// A node with an API server and a daemon.
struct Cluster {
    net: Net,
    api: ApiServer,
    daemon: Process,
}

impl Cluster {
    fn new() -> Self {
        let net = Net::new();
        let api = net.node().run(ApiServer::with_web);
        let daemon = daemon(net.node(), &api);
        let cluster = Self { net, api, daemon };
        cluster.wait("ready", |status| status["ready"] == true);
        cluster
    }

    /// Pushes a Service of which the address is wrong.
    fn push_problem(&self) {
        self.api.push(service(&format!("default/{MARKUP}"), "10.96.0.300", 80));
        self.wait("a problem", |status| status["problems"] != json!([]));
    }

    /// Waits until the document is so, and returns it.
    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait(self.net.node(), "/status.json", what, is_so)
    }
}

fn daemon(host: &Host, api: &ApiServer) -> Process {
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let arguments = ["run", &kubeconfig, "--hostname-override=node1", "--healthz-bind-address="];
    host.spawn(deltaproxy_binary(), &arguments)
}

#[track_caller]
fn wait(host: &Host, path: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, SOON, || document(host, path).filter(&is_so))
}

/// The document at a path.
fn document(host: &Host, path: &str) -> Option<Value> {
    let answer = request(host, "GET", path);
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// An answer of the daemon; empty if there is none.
fn request(host: &Host, method: &str, path: &str) -> String {
    host.run(|| {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect("127.0.0.1:10249") {
            let request = format!("{method} {path} HTTP/1.1\r\nhost: node\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_string(&mut text).unwrap();
        }
        text
    })
}

fn has_ownership() -> bool {
    Release::running().is_some_and(|release| release >= Release::PERSISTENT_OWNERSHIP)
}

#[test]
fn the_document_has_what_happened() {
    let cluster = Cluster::new();
    let status = cluster.wait("watches", |status| {
        let watches = status["watches"].as_array().unwrap();
        watches.len() == 4 && watches.iter().all(|watch| watch["connected"] == true)
    });
    assert_eq!((&status["node"], &status["healthy"]), (&json!("node1"), &json!(true)));
    let owner = if has_ownership() {
        format!("this process ({})", cluster.daemon.pid())
    } else {
        "none: ownership needs Linux 6.9".to_owned()
    };
    for (place, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
        let found = &status["families"][place];
        assert_eq!((&found["family"], &found["programmed"]), (&json!(family), &json!(true)));
        assert_eq!((&found["owner"], &found["blocked"]), (&json!(owner), &Value::Null));
    }
    assert!(status["source"].as_str().unwrap().starts_with("API server of /"), "{status}");
    assert_eq!((&status["latency"]["count"], &status["problems"]), (&json!(0), &json!([])));

    let transactions = status["transactions"].as_array().unwrap().len();
    cluster.api.push(endpoint_slice("default/web-1", "web", &["10.244.1.6"], 8080));
    let status = cluster.wait("a commit", |status| status["latency"]["count"] == 1);
    let last = &status["transactions"][0];
    assert!(status["transactions"].as_array().unwrap().len() > transactions, "{status}");
    assert_eq!(last["family"], "IPv4");
    assert!(
        ["added", "bytes", "took_us"].into_iter().all(|field| last[field].as_f64().unwrap() > 0.0),
        "{last}"
    );
    let slot = &status["latency"]["slots"][0];
    assert_eq!(slot["count"], 1);
    assert!(slot["p50_us"].as_u64().unwrap() > 0 && slot["p50_us"] == slot["p99_us"], "{slot}");
    let buckets = status["latency"]["buckets"].as_array().unwrap();
    assert_eq!(buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum::<u64>(), 1);

    cluster.push_problem();
    // The name is another problem.
    let wanted = |problem: &&Value| problem["message"].to_string().contains("10.96.0.300");
    let problems = cluster.wait("the problem", |status| {
        status["problems"].as_array().unwrap().iter().any(|problem| wanted(&problem))
    });
    let problem = problems["problems"].as_array().unwrap().iter().find(wanted).unwrap();
    assert_eq!(problem["object"], format!("Service default/{MARKUP}"));
    assert_eq!(
        (&problem["field"], &problem["kind"]),
        (&json!("spec.clusterIPs[0]"), &json!("invalid"))
    );

    cluster.api.stop();
    let status = cluster.wait("lost watches", |status| {
        let mut watches = status["watches"].as_array().unwrap().iter();
        watches.all(|it| it["connected"] == false && it["reason"] == "unreachable")
    });
    assert_eq!(status["ready"], true);
    cluster.api.reopen();
    cluster.wait("connected watches", |status| {
        status["watches"].as_array().unwrap().iter().all(|watch| watch["connected"] == true)
    });
}

#[test]
fn services_are_found_by_name_address_and_endpoint() {
    let cluster = Cluster::new();
    let host = cluster.net.node();
    let search = |text: &str| document(host, &format!("/status.json?services={text}")).unwrap();
    for text in ["web", "WEB:http", "10.96.0.10:80", "10.96.0.10%3A80%2Ftcp"] {
        let found = search(text);
        assert_eq!((&found["matches"], &found["total"]), (&json!(1), &json!(1)), "{text}");
        let line = &found["services"][0];
        assert_eq!((&line["service"], &line["port_name"]), (&json!("default/web"), &json!("http")));
        assert_eq!(
            (&line["frontend"], &line["endpoints"]),
            (&json!("10.96.0.10:80/tcp"), &json!(1))
        );
    }
    for text in ["10.244.1.5", "10.244.1.5%3A8080", "10.244.1.0%2F24"] {
        let found = search(text);
        assert_eq!(found["matches"], json!(1), "{text}");
        assert_eq!(found["services"][0]["service"], json!("default/web"), "{text}");
    }
    for text in ["10.244.1.6", "10.244.1.5%3A8081", "10.244.2.0%2F24"] {
        assert_eq!(search(text)["matches"], json!(0), "{text}");
    }
    assert_eq!(search("%00%ff%")["services"], json!([]));
    assert_eq!(search(&"x".repeat(9_000))["services"], json!([]));
    let many = (0..150).map(|n| service(&format!("default/many-{n}"), &format!("10.96.1.{n}"), 80));
    cluster.api.push_all(many);
    let found = wait(host, "/status.json?services=many", "all", |found| found["matches"] == 150);
    assert_eq!(found["services"].as_array().unwrap().len(), 100);
    assert_eq!(found["total"], 151);
    // They share an endpoint.
    let slices = (0..150).map(|n| {
        let name = format!("many-{n}");
        endpoint_slice(&format!("default/{name}-1"), &name, &["10.244.1.7"], 8080)
    });
    cluster.api.push_all(slices);
    let path = "/status.json?services=10.244.1.7";
    let found = wait(host, path, "those of an endpoint", |found| found["matches"] == 150);
    assert_eq!(found["services"].as_array().unwrap().len(), 100);
}

#[test]
fn a_node_port_has_the_address_that_serves_it() {
    let cluster = Cluster::new();
    let _server = cluster.net.pod("a", "10.244.1.5").serve_tcp(8080, "a");
    let client = cluster.net.outside("outside", "192.0.2.10");
    let host = cluster.net.node();
    let mut web = service("default/web", "10.96.0.10", 80);
    web["spec"]["type"] = json!("NodePort");
    web["spec"]["ports"][0]["nodePort"] = json!(30_080);
    cluster.api.push(web);
    let open = eventually("an answer", SOON, || client.open_tcp("192.168.50.2:30080").ok());
    for text in ["192.168.50.2:30080", ":30080/tcp"] {
        let path = format!("/status.json?services={text}");
        let found = wait(host, &path, "the node port", |found| found["matches"] == 1);
        assert_eq!(found["services"][0]["frontend"], "192.168.50.2:30080/tcp", "{text}");
    }
    cluster.api.push(endpoint_slice("default/web-1", "web", &["10.244.1.6"], 8080));
    let found = wait(host, "/status.json?draining", "a draining endpoint", |it| it["total"] == 1);
    assert_eq!(found["draining"][0]["frontend"], "192.168.50.2:30080/tcp");
    drop(open);
}

#[test]
fn searches_at_the_same_time_are_answered_and_bounded() {
    let cluster = Cluster::new();
    let host = cluster.net.node();
    let others: Vec<_> = (0..100)
        .map(|n| {
            let stream = host.run(|| TcpStream::connect("127.0.0.1:10249")).unwrap();
            write!(&stream, "GET /status.json?services={n} HTTP/1.1\r\nhost: node\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    assert_eq!(document(host, "/status.json?services=web").unwrap()["matches"], 1);
    drop(others);
    assert_eq!(cluster.wait("health", |_| true)["healthy"], true);
}

#[test]
fn the_page_is_there_with_manifests_and_names_their_problems() {
    let net = Net::new();
    let manifests = Manifests::new(&[("node", &Node::new())]);
    let mut arguments = manifests.arguments("run");
    arguments.push("--healthz-bind-address=");
    let _daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    let status = wait(net.node(), "/status.json", "ready", |status| status["ready"] == true);
    assert_eq!(status["source"], format!("Manifests of {}", manifests.path().display()));
    assert_eq!(status["watches"], json!([]));
    let mut bad = service("default/bad", "10.96.0.300", 80);
    bad["apiVersion"] = json!("v1");
    manifests.write_text("bad", &bad.to_string());
    // One for each field that holds the address.
    let fields = |status: &Value| {
        let problems = status["problems"].as_array().unwrap().iter();
        problems
            .map(|problem| problem["field"].as_str().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    let both = ["spec.clusterIP", "spec.clusterIPs[0]"];
    let both = both.map(str::to_owned).into();
    let has_both = |status: &Value| fields(status) == both;
    let status = wait(net.node(), "/status.json", "both problems", has_both);
    let object = status["problems"][0]["object"].as_str().unwrap();
    assert!(object.starts_with("Service default/bad (") && object.contains("bad.yaml"), "{object}");
}

#[test]
fn another_owner_of_the_tables_is_named() {
    if !has_ownership() {
        return;
    }
    let net = Net::new();
    let manifests = Manifests::new(&[("node", &Node::new())]);
    let mut arguments = manifests.arguments("run");
    arguments.extend(["--healthz-bind-address=", "--metrics-bind-address="]);
    let other = net.node().spawn(deltaproxy_binary(), &arguments);
    let has_table = || net.node().read_table(netlink_tests::reader::Family::Ip6).map(drop);
    eventually("the tables of the other daemon", SOON, has_table);
    let api = net.node().run(ApiServer::with_web);
    let _daemon = daemon(net.node(), &api);
    let blocked = |status: &Value| status["families"][0]["blocked"].is_string();
    let status = wait(net.node(), "/status.json", "another owner", blocked);
    let family = &status["families"][0];
    assert!(family["blocked"].as_str().unwrap().contains("own"), "{family}");
    assert_eq!((&family["owner"], &family["programmed"]), (&Value::Null, &json!(false)));
    let _ = other.terminate(SOON);
    let programmed = |status: &Value| status["families"][0]["programmed"] == true;
    let status = wait(net.node(), "/status.json", "tables of its own", programmed);
    assert_eq!(status["families"][0]["blocked"], Value::Null);
}

#[test]
fn the_page_has_a_policy_and_one_path() {
    let cluster = Cluster::new();
    let page = request(cluster.net.node(), "GET", "/");
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    let head = page.split_once("\r\n\r\n").unwrap().0;
    for part in
        ["content-security-policy: default-src 'none';", "nosniff", "cache-control: no-store"]
    {
        assert!(head.contains(part), "no {part} in {head}");
    }
    let (head, body) = (request(cluster.net.node(), "HEAD", "/"), "<!doctype");
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains(body), "{head}");
    assert!(request(cluster.net.node(), "GET", "/index.html").starts_with("HTTP/1.1 404 "));
}

#[test]
fn endpoints_that_drain_have_the_count_and_age_of_their_connections() {
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let _server = pod.serve_tcp(8080, "a");
    let client = net.outside("outside", "192.0.2.10");
    let api = net.node().run(ApiServer::with_web);
    let _daemon = daemon(net.node(), &api);
    let host = net.node();
    eventually("an answer", SOON, || client.open_tcp("10.96.0.10:80").ok().map(drop));
    host.sysctl("netfilter/nf_conntrack_timestamp", "1");
    let _open: Vec<_> = (0..2).map(|_| client.open_tcp("10.96.0.10:80").unwrap()).collect();
    let found = document(host, "/status.json?draining").unwrap();
    assert_eq!((&found["draining"], &found["total"]), (&json!([]), &json!(0)));
    api.push(endpoint_slice("default/web-1", "web", &["10.244.1.6"], 8080));
    let found = wait(host, "/status.json?draining", "a draining endpoint", |it| it["total"] == 1);
    let row = &found["draining"][0];
    let names = ["endpoint", "service", "frontend"].map(|name| row[name].as_str().unwrap());
    assert_eq!(names, ["10.244.1.5:8080", "default/web:http", "10.96.0.10:80/tcp"]);
    assert_eq!(row["connections"], 2);
    assert!(row["oldest_seconds"].as_u64().unwrap() < 3600, "{row}");
}

/// The page as the browser has it after some seconds, and the addresses that it requested.
#[track_caller]
fn look(host: &Host, fragment: &str, more: &[String]) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.json");
    let mut arguments: Vec<String> = BROWSER_ARGUMENTS.map(str::to_owned).to_vec();
    arguments.push(format!("--user-data-dir={}", folder.path().join("profile").display()));
    arguments.push(format!("--log-net-log={}", log.display()));
    arguments.extend_from_slice(more);
    arguments.push(format!("http://127.0.0.1:10249/{fragment}"));
    let started = host.run(|| which("chromium")).then(|| host.spawn("chromium", &arguments));
    let Some(browser) = started else {
        panic!(
            "cannot run chromium: install it (apt-get install chromium), or set \
             DELTAPROXY_WITHOUT_CHROMIUM=1"
        )
    };
    let finished = browser.finish(BROWSER);
    (finished.ok(), requested(&log))
}

const BROWSER_ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--virtual-time-budget=4000",
    "--window-size=1280,1500",
];

fn which(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// The addresses that the page requested, by the browser's own log, which has what the browser itself
/// requests too.
fn requested(log: &Path) -> Vec<String> {
    let log: Value = serde_json::from_str(&std::fs::read_to_string(log).unwrap()).unwrap();
    let params = log["events"].as_array().unwrap().iter().map(|event| &event["params"]);
    let of_page = params.filter(|it| it["initiator"].as_str().is_some_and(|by| by.contains("://")));
    let addresses = of_page.filter_map(|params| params["url"].as_str());
    addresses.filter(|address| address.starts_with("http")).map(str::to_owned).collect()
}

/// What stands between the tags of an element without others in it.
#[track_caller]
fn text<'a>(page: &'a str, id: &str) -> &'a str {
    let after = page.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}")).1;
    after.split_once('>').unwrap().1.split_once('<').unwrap().0
}

#[test]
fn a_person_sees_state_problems_transactions_and_services_in_a_browser() {
    if !chromium_available() {
        return;
    }
    let cluster = Cluster::new();
    let host = cluster.net.node();
    cluster.push_problem();
    cluster.api.push(endpoint_slice("default/web-1", "web", &["10.244.1.6"], 8080));
    // The Service may be measured too: the loop takes both batches at once if it is late.
    cluster.wait("a commit", |status| status["latency"]["count"].as_u64() >= Some(1));
    let _ = cluster.net.outside("outside", "192.0.2.10").send_udp("10.96.0.10:81");
    // By its endpoint.
    let (page, requested) = look(host, "#search=10.244.1.6", &["--dump-dom".to_owned()]);
    assert_eq!(text(&page, "state"), "ready");
    assert!(text(&page, "about").starts_with("node node1 · version "), "{page}");
    assert_eq!(text(&page, "found"), "1 of 1 frontends match.");
    let refused = text(&page, "refused");
    assert!(refused.starts_with("Refused packets: unknown_port "), "{refused}");
    for cell in [
        "<td>default/web</td>",
        "<td>10.96.0.10:80/tcp</td>",
        "<td>spec.clusterIP</td>",
        "<td class=\"good\">programmed</td>",
        "<td class=\"good\">connected</td>",
        "<td>IPv4</td>",
    ] {
        assert!(page.contains(cell), "no {cell} in {page}");
    }
    let escaped = MARKUP.replace('<', "&lt;").replace('>', "&gt;");
    assert!(page.contains(&format!("<td>Service default/{escaped}</td>")), "{page}");
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("<title>deltaproxy</title>"));
    let transactions = page.split_once("id=\"transactions\"").unwrap().1;
    assert!(transactions.matches(" UTC</td>").count() >= 2, "{transactions}");
    assert!(page.contains("<polyline class=\"first\" points=\"") && page.contains("class=\"bar\""));
    let own = "http://127.0.0.1:10249/";
    assert!(requested.iter().any(|address| address.contains("/status.json")), "{requested:?}");
    let other: Vec<_> = requested.iter().filter(|address| !address.starts_with(own)).collect();
    assert!(other.is_empty(), "{other:?}");
}

/// Draws the picture of docs/status.md, where the variable names a file for it.
#[test]
fn the_picture_of_the_documentation_is_drawn_on_request() {
    let Some(file) = std::env::var_os("DELTAPROXY_SCREENSHOT") else { return };
    let cluster = Cluster::new();
    let names = ["cart", "checkout", "web", "web-admin", "search", "payments", "mail", "stock"];
    for (n, name) in names.into_iter().enumerate() {
        let (object, slice) = (format!("shop/{name}"), format!("shop/{name}-1"));
        let endpoints = ["10.244.1.7", "10.244.2.8", "10.244.3.9"];
        cluster.api.push(service(&object, &format!("10.96.1.{}", n + 1), 80));
        cluster.api.push(endpoint_slice(&slice, name, &endpoints[..1 + n % 3], 8080));
    }
    cluster.api.push(service("shop/old", "10.96.0.300", 80));
    let mut changes = 0;
    // Over some slots of the chart.
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        let (n, address) = (changes % names.len(), format!("10.244.4.{}", changes % 250 + 1));
        let slice = format!("shop/{}-1", names[n]);
        cluster.api.push(endpoint_slice(&slice, names[n], &["10.244.1.7", &address], 8080));
        changes += 1;
        std::thread::sleep(Duration::from_millis(20 + 60 * (changes as u64 % 7)));
    }
    let screenshot = format!("--screenshot={}", Path::new(&file).display());
    let _ = look(cluster.net.node(), "#search=web", &[screenshot]);
}
