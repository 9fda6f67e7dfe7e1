//! `make demo`: real connections through services, a change, and its messages to the kernel.
//!
//! Everything happens in network namespaces and a temporary folder; they go with the program, also when
//! it is interrupted.

#![allow(clippy::expect_used, clippy::unwrap_used)] // Like a test: an error ends it.
#![allow(clippy::print_stdout)] // It prints its results.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;
use test_hosts::{
    Answer, Deadline, Host, Interrupted, Interruption, NODE_IP, NODE_IP6, Net, Process, Server,
};

/// Connections to each address.
const CONNECTIONS: usize = 30;

/// How long the daemon may take to follow a file.
const FOLLOW_LIMIT: Duration = Duration::from_secs(10);

/// The endpoint that a change takes away, and the one that takes its place.
const CHANGE: (&str, &str) = ("10.244.1.6", "10.244.1.7");

/// A connection: client, protocol, address and port, in words.
const VISITS: [(&str, &str, &str, &str); 8] = [
    ("client", "TCP", "10.96.0.10:80", "ClusterIP of web"),
    ("client", "UDP", "10.96.0.53:53", "ClusterIP of dns"),
    ("client", "TCP", "[fd00:10:96::10]:80", "ClusterIP of dual"),
    ("client", "UDP", "[fd00:10:96::10]:53", "ClusterIP of dual"),
    ("outside", "TCP", "192.168.50.2:30080", "NodePort of web"),
    ("outside", "UDP", "192.168.50.2:30053", "NodePort of dns"),
    ("outside", "TCP", "[fd00:192:168:50::2]:30081", "NodePort of dual"),
    ("outside", "UDP", "[fd00:192:168:50::2]:30054", "NodePort of dual"),
];

fn main() -> ExitCode {
    let interrupted = Interruption::listen();
    match Demo::new(interrupted).show() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Interrupted) => {
            println!("\ninterrupted; nothing is left behind");
            ExitCode::FAILURE
        }
    }
}

/// The hosts, the program and its manifests.
struct Demo {
    net: Net,
    hosts: BTreeMap<&'static str, Host>,
    /// They serve until this is dropped.
    _servers: Vec<Server>,
    program: PathBuf,
    manifests: TempDir,
    interruption: Interruption,
}

impl Demo {
    fn new(interruption: Interruption) -> Self {
        let net = Net::new();
        let hosts = BTreeMap::from([
            ("pod-a", net.pod("a", "10.244.1.5")),
            ("pod-b", net.pod("b", "10.244.1.6")),
            ("pod-c", net.pod("c", "10.244.1.7")),
            ("pod-r", net.remote_pod("r", "10.244.2.7")),
            ("client", net.pod("client", "10.244.1.9")),
            ("outside", net.outside("side", "192.0.2.10")),
        ]);
        let pods = hosts.iter().filter(|(name, _)| name.starts_with("pod"));
        let servers =
            pods.flat_map(|(name, pod)| [pod.serve_tcp(8080, name), pod.serve_udp(5353, name)]);
        let servers = servers.collect();
        let program = env::current_exe().expect("/proc is mounted").with_file_name("deltaproxy");
        assert!(program.is_file(), "{} is missing: make demo builds it", program.display());
        let manifests =
            copy_of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/manifests")));
        Self { net, hosts, _servers: servers, program, manifests, interruption }
    }

    fn show(&self) -> Result<(), Interrupted> {
        self.print_hosts();
        heading("The manifests of examples/manifests, applied to empty tables");
        let sent = self.apply();
        println!("  {}", described(&sent));
        self.check_that_a_second_run_sends_nothing();

        heading(&format!("Who answers {CONNECTIONS} connections"));
        VISITS.iter().try_for_each(|visit| self.visit(visit))?;

        let (old, new) = CHANGE;
        heading(&format!("In web.yaml the endpoint {old} (pod-b) becomes {new} (pod-c)"));
        self.edit("web.yaml", old, new);
        let plan = self.net.node().output(&self.program, &self.arguments("plan", &[]));
        assert_eq!(plan.code(), Some(1), "a change: {}", plan.stderr);
        for line in plan.stdout.lines() {
            println!("  {line}");
        }
        let sent = self.apply();
        println!("  {}", described(&sent));
        for visit in VISITS.iter().filter(|(.., what)| what.ends_with("web")) {
            self.visit(visit)?;
        }

        heading("The daemon follows the file; now the endpoint becomes pod-b again");
        let daemon = self.start_daemon();
        self.edit("web.yaml", new, old);
        self.wait_for("pod-b", "10.96.0.10:80")?;
        daemon.terminate(FOLLOW_LIMIT);
        self.visit(&VISITS[0])?;

        heading("Cleanup");
        print!("{}", self.net.node().output(&self.program, &["cleanup"]).ok());
        println!();
        Ok(())
    }

    fn print_hosts(&self) {
        let user = if geteuid().is_root() { "root" } else { "an ordinary user" };
        println!("The node {NODE_IP} {NODE_IP6} and, each in a network namespace, as {user}:");
        for (name, host) in &self.hosts {
            let what = match *name {
                "client" => "a pod that connects",
                "outside" => "a machine outside the cluster",
                "pod-c" => "serves, and is no endpoint yet",
                "pod-r" => "serves, on another node",
                _ => "serves TCP 8080 and UDP 5353",
            };
            println!("  {name:<8} {:<11} {:<20} {what}", host.ip(), host.ip6());
        }
    }

    /// Runs the program on the manifests in the node's namespace and returns what it printed.
    fn deltaproxy(&self, command: &str, more: &[&str]) -> String {
        self.net.node().output(&self.program, &self.arguments(command, more)).ok()
    }

    fn arguments(&self, command: &str, more: &[&str]) -> Vec<String> {
        let manifests = self.manifests.path().to_str().expect("a path of ours");
        let mut arguments = vec![command, "--manifests", manifests];
        arguments.extend(["--hostname-override", "demo-node"]);
        arguments.extend(["--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"]);
        arguments.extend(more);
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// The messages that `apply` sent.
    fn apply(&self) -> Value {
        let printed = self.deltaproxy("apply", &["--output", "json"]);
        serde_json::from_str(&printed).expect("one JSON object")
    }

    fn check_that_a_second_run_sends_nothing(&self) {
        let sent = self.apply();
        assert_eq!(sent["transactions"], 0, "{sent}");
        println!("  a second apply: {}", described(&sent));
    }

    /// Connects several times and prints the servers that answered.
    fn visit(
        &self,
        (client, protocol, to, what): &(&str, &str, &str, &str),
    ) -> Result<(), Interrupted> {
        let to: SocketAddr = to.parse().expect("an address and a port");
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..CONNECTIONS {
            self.interruption.check()?;
            *answers.entry(answerer(&self.probe(client, protocol, to))).or_default() += 1;
        }
        let answers: Vec<_> =
            answers.iter().map(|(name, count)| format!("{name} {count:>2}")).collect();
        let to = to.to_string();
        println!("  {client:<7} {protocol} {to:<27} {what:<17}  {}", answers.join("  "));
        Ok(())
    }

    fn probe(&self, client: &str, protocol: &str, to: SocketAddr) -> Answer {
        let client = &self.hosts[client];
        if protocol == "TCP" { client.connect_tcp(to) } else { client.send_udp(to) }
    }

    fn edit(&self, file: &str, old: &str, new: &str) {
        let path = self.manifests.path().join(file);
        let text = fs::read_to_string(&path).expect("we wrote it");
        assert!(text.contains(old), "{file} does not name {old}");
        fs::write(&path, text.replace(old, new)).expect("the folder is ours");
    }

    fn start_daemon(&self) -> Process {
        let quiet = ["--healthz-bind-address=", "--metrics-bind-address="];
        let arguments = self.arguments("run", &quiet);
        let mut daemon = self.net.node().spawn(&self.program, &arguments);
        daemon.wait_for_line("started", FOLLOW_LIMIT);
        daemon
    }

    /// Connects until that pod answers.
    fn wait_for(&self, pod: &str, to: &str) -> Result<(), Interrupted> {
        let to: SocketAddr = to.parse().expect("an address and a port");
        let deadline = Deadline::after(FOLLOW_LIMIT);
        while answerer(&self.probe("client", "TCP", to)) != pod {
            self.interruption.check()?;
            assert!(deadline.left().is_some(), "{pod} did not answer within {FOLLOW_LIMIT:?}");
        }
        let took = FOLLOW_LIMIT - deadline.left().unwrap_or_default();
        println!("  {pod} answered {} ms after the file was written", took.as_millis());
        Ok(())
    }
}

fn heading(text: &str) {
    println!("\n{text}:");
}

/// A folder with the same files.
fn copy_of(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for entry in fs::read_dir(folder).expect("the examples are there") {
        let entry = entry.expect("the examples can be listed");
        fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("the folder is ours");
    }
    copy
}

/// The server that answered, or the outcome without an answer.
fn answerer(answer: &Answer) -> String {
    match answer {
        Answer::From { server, .. } => server.clone(),
        Answer::Echoed | Answer::Refused | Answer::Silent | Answer::Unreachable(_) => {
            format!("{answer:?}").to_lowercase()
        }
    }
}

/// The summary of `apply` in one line.
fn described(sent: &Value) -> String {
    if sent["transactions"] == 0 {
        return "nothing differs, nothing sent".to_owned();
    }
    let messages = sent["messages"].as_object().expect("messages by kind");
    let messages: Vec<_> = messages.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!(
        "sent in {} transaction(s): {}; {} bytes, {} us in the kernel",
        sent["transactions"],
        messages.join(", "),
        sent["bytes"],
        sent["kernel_us"]
    )
}
