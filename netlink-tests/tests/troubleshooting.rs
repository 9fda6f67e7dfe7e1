//! The commands of `docs/troubleshooting.md` print what the page shows, on a node with the faults
//! that it is about.
//!
//! A block shows some lines of the output, in order. Times, durations, numbers, paths and the ports of
//! clients differ.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::http::get;
use netlink_tests::scenario::WEB;
use netlink_tests::{Connection, Host, Net, Process, Server, deltaproxy_binary, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// A command that the page shows, and the lines below it.
struct Block {
    command: String,
    lines: Vec<String>,
}

/// The blocks of the page with commands of ours.
fn blocks() -> Vec<Block> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/troubleshooting.md"));
    let page = fs::read_to_string(path).unwrap();
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    blocks.flat_map(|block| block.split("# deltaproxy ").skip(1)).map(Block::read).collect()
}

impl Block {
    fn read(text: &str) -> Self {
        let (command, lines) = text.split_once('\n').unwrap();
        Self { command: command.to_owned(), lines: lines.lines().map(str::to_owned).collect() }
    }
}

/// A node with faults, and with connections.
struct Faulty {
    net: Net,
    api: ApiServer,
    folder: TempDir,
    _daemon: Process,
    _hosts: ([Host; 2], [(Host, Server); 2]),
    _connections: Vec<Connection>,
}

impl Faulty {
    /// `clusterCIDR` lacks the range of the pods, `default/empty` has no endpoint, and `default/bad`
    /// a wrong address. `default/web` leads to a pod here and one on the node `n7`.
    fn new() -> Self {
        let net = Net::new();
        let pods = [net.pod("a", "10.244.1.5"), net.remote_pod("c", "10.244.2.7")];
        let pods = pods.map(|pod| {
            let server = pod.serve_tcp(8080, "web");
            (pod, server)
        });
        let client = net.pod_behind("pod0", "10.244.1.9");
        let outside = net.outside("x", "192.0.2.10");
        let api = net.node().run(ApiServer::start);
        let mut bad = service("default/bad", "10.96.0.40", 80);
        bad["spec"]["externalIPs"] = json!(["somewhere"]);
        let empty = service("default/empty", "10.96.0.30", 80);
        api.push_all([
            node("node1", "192.168.50.2"),
            service_cidr("kubernetes", "10.96.0.0/16"),
            service("default/web", "10.96.0.10", 80),
            endpoints(&["10.244.1.5"]),
            empty,
            bad,
        ]);
        let folder = tempfile::tempdir().unwrap();
        let faulty = |name: &str, range: &str| {
            let text = format!(
                "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                 mode: nftables\nclusterCIDR: {range}\n\
                 clientConnection: {{kubeconfig: {:?}}}\n",
                api.kubeconfig()
            );
            fs::write(folder.path().join(name), text).unwrap();
        };
        faulty("config.yaml", "10.243.0.0/16");
        faulty("new.yaml", "10.244.0.0/16");
        let config = format!("--config={}", folder.path().join("config.yaml").display());
        let arguments = ["run", &config, "--hostname-override=node1"];
        let daemon = net.node().spawn(deltaproxy_binary(), &arguments);
        eventually("readiness", SOON, || {
            let answer = get(net.node(), 10256, "/readyz")?;
            (answer.status == 200).then_some(())
        });
        api.push(endpoints(&["10.244.1.5", "10.244.2.7"]));
        eventually("the second endpoint", SOON, || {
            let shown = net.node().output(deltaproxy_binary(), &["show", "default/web"]).stdout;
            shown.contains("10.244.2.7").then_some(())
        });
        // At least one of each endpoint.
        let connections = (0..24).map(|_| client.open_tcp(WEB).unwrap()).collect();
        let hosts = ([client, outside], pods);
        Self { net, api, folder, _daemon: daemon, _hosts: hosts, _connections: connections }
    }

    /// The lines that a command prints.
    fn run(&self, command: &str) -> Vec<String> {
        let new = self.folder.path().join("new.yaml");
        let words = command.split_whitespace();
        let words: Vec<_> =
            words.map(|word| if word == "NEW" { new.to_str().unwrap() } else { word }).collect();
        let finished = self.net.node().output(deltaproxy_binary(), &words);
        let text = format!("{}{}", finished.stdout, finished.stderr);
        text.lines().map(str::to_owned).collect()
    }
}

/// The endpoints of `web`: all but the first are on the node `n7`.
fn endpoints(addresses: &[&str]) -> Value {
    let mut slice = endpoint_slice("default/web-1", "web", addresses, 8080);
    for (place, endpoint) in slice["endpoints"].as_array_mut().unwrap().iter_mut().enumerate() {
        endpoint["nodeName"] = json!(if place == 0 { "node1" } else { "n7" });
    }
    slice
}

/// A line without what differs from one run to the next, and without the width of columns.
fn shape(line: &str) -> String {
    let is_commit = line.starts_with("20") && line.contains('Z');
    let word = |word: &str| {
        let bare = word.trim_matches(|it| "(),;%".contains(it));
        let begins_with_digit = bare.starts_with(|it: char| it.is_ascii_digit());
        let is_number = bare.parse::<f64>().is_ok();
        let is_duration = begins_with_digit
            && bare.trim_start_matches(|it: char| it.is_ascii_digit() || "hm.".contains(it)).len()
                < 4
            && bare.ends_with(['s', 'm', 'h']);
        let is_version =
            word.split('.').count() == 3 && word.split('.').all(|it| it.parse::<u16>().is_ok());
        let port = bare.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if is_commit && bare.ends_with('Z') {
            "TIME".to_owned()
        } else if is_duration {
            "DURATION".to_owned()
        } else if is_number {
            "N".to_owned()
        } else if is_version {
            "VERSION".to_owned()
        } else if word.starts_with('/') {
            "PATH".to_owned()
        } else if port.is_some_and(|port| port >= 32_768) {
            bare.rsplit_once(':').unwrap().0.to_owned()
        } else {
            word.to_owned()
        }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// The first line of the block that the output lacks, or has in another order.
fn missing<'a>(block: &'a Block, output: &[String]) -> Option<&'a str> {
    let mut left = output.iter().map(|line| shape(line));
    block.lines.iter().map(String::as_str).find(|line| !left.any(|it| it == shape(line)))
}

#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    let node = Faulty::new();
    let (of_outage, others): (Vec<_>, Vec<_>) =
        blocks().into_iter().partition(|block| block.command.starts_with("top "));
    assert!(others.len() >= 8 && of_outage.len() == 1);
    let mut wrong = Vec::new();
    let mut check = |block: &Block| {
        let output = node.run(&block.command);
        let line = missing(block, &output);
        wrong.extend(line.map(|it| format!("{}: {it}\n{}", block.command, output.join("\n"))));
    };
    others.iter().for_each(&mut check);
    node.api.stop();
    eventually("the end of the watches", SOON, || {
        node.run("top --once --interval=100ms")[0].contains("services for").then_some(())
    });
    of_outage.iter().for_each(&mut check);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn lines_that_differ_are_noticed() {
    let output = ["a  10 b".to_owned(), "2026-11-25T03:02:11.123Z  event  7  1.5ms".to_owned()];
    let missing = |lines: &[&str]| {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        missing(&Block { command: String::new(), lines }, &output).map(str::to_owned)
    };
    assert_eq!(missing(&["a 7 b", "2026-01-01T00:00:00.000Z event 9 170µs"]), None);
    assert_eq!(missing(&["a 7 c"]).as_deref(), Some("a 7 c"));
    assert!(missing(&["2026-01-01T00:00:00.000Z event 9 2ms", "a 7 b"]).is_some(), "the order");
    assert_eq!(shape("x (invalid, for 62 s)"), "x (invalid, for N s)");
    assert_eq!(
        shape("10.244.1.9:40001 2h5m 10.96.0.10:80/tcp"),
        "10.244.1.9 DURATION 10.96.0.10:80/tcp"
    );
    assert_eq!(shape("version 0.1.0 of 10.244.1.9"), "version VERSION of 10.244.1.9");
}
