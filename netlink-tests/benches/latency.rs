//! The time from an event of the API server to its commit, and what a change costs:
//! `make bench-latency`.
//!
//! Each change replaces one endpoint. It is measured from the return of the call that sends the last
//! byte of the event, with TLS, to the kernel's notification about the commit, so it is negative if
//! the commit ends first. `BEFORE` and `AFTER` name two binaries, which take turns, each with daemon
//! and namespace of its own; `AFTER` is `target/release/deltaproxy` by default, and without `BEFORE`
//! it runs alone. Each runs on an idle machine, and beside one endless loop for each processor.
//! The server and the reader of the notifications have real-time priority there, because they belong
//! to the measurement. `ROUNDS` is the number of turns, `CHANGES` that of changes in each.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::apiserver::{ApiServer, Authority, Credentials};
use netlink_tests::builds::{builds, number};
use netlink_tests::{Net, Process, commit_times};

/// Endpoints of each service.
const ENDPOINTS: u32 = 5;

/// Time between two changes: the one before is in the kernel.
const PAUSE: Duration = Duration::from_millis(3);

/// Nothing takes longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// As long as this without a commit: there will be none.
const QUIET: Duration = Duration::from_secs(3);

/// A change without a commit in this time has none.
const LOST: Duration = Duration::from_secs(1);

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let builds = builds();
    println!("| build | machine | latency: median / p99 / longest, µs | CPU | switches |");
    println!("|---|---|---|---|---|");
    for is_busy in [false, true] {
        for _ in 0..number("ROUNDS", 3) {
            for (name, binary) in &builds {
                let figures = Bench::start(binary).run(is_busy);
                println!("| {name} | {} | {figures} |", if is_busy { "busy" } else { "idle" });
            }
        }
    }
}

/// The value of a variable.
struct Bench {
    api: ApiServer,
    commits: Receiver<Instant>,
    daemon: Process,
    services: u32,
    _files: (Net, Credentials),
}

impl Bench {
    fn start(binary: &Path) -> Self {
        let services = number("SERVICES", 1_000);
        let net = Net::new();
        let api = net.node().run(ApiServer::start);
        let authority = Authority::new();
        api.use_tls(&authority, None);
        let pem = authority.pem();
        let files = [("ca.crt", &*pem), ("token", "secret")];
        let credentials = Credentials::new(api.address(), "{tokenFile: data/token}", &files);
        api.push_all([node("node1", "192.168.50.2"), service_cidr("kubernetes", "10.96.0.0/12")]);
        api.push_all((0..services).flat_map(|number| {
            let cluster_ip = format!("10.96.{}.{}", number / 250, number % 250 + 1);
            [service(&name(number), &cluster_ip, 80), slice(number, 0)]
        }));
        api.encode();
        let daemon = net.node().spawn(
            binary,
            &[
                "run",
                &format!("--kubeconfig={}", credentials.kubeconfig().display()),
                "--hostname-override=node1",
                "--cluster-cidr=10.244.0.0/16",
                "--healthz-bind-address=",
                "--metrics-bind-address=",
            ],
        );
        let commits = commit_times::listen(net.node());
        let bench = Self { api, commits, daemon, services, _files: (net, credentials) };
        bench.commits.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{}", bench.daemon.output()));
        while bench.commits.recv_timeout(QUIET).is_ok() {}
        bench
    }

    fn run(self, is_busy: bool) -> String {
        let processors = thread::available_parallelism().unwrap().get();
        let loops: Vec<_> = (0..processors).filter(|_| is_busy).map(|_| Loop::start()).collect();
        if is_busy {
            raise_priorities();
        }
        let (cpu, switches) = usage(&self.daemon);
        let changes = number("CHANGES", 2_000);
        let mut took = Vec::new();
        for number in 0..changes {
            while self.commits.try_recv().is_ok() {}
            self.api.push(slice(number % self.services, number / self.services + 1));
            let committed = self.commits.recv_timeout(LOST);
            // The server notes the time after it has sent.
            thread::sleep(PAUSE);
            let (Ok(committed), Some(sent)) = (committed, self.api.sent_at()) else { continue };
            took.push(commit_times::latency(committed, sent));
        }
        let after = usage(&self.daemon);
        drop(loops);
        took.sort_unstable_by(f64::total_cmp);
        let at = |per_mille: usize| took[(took.len() - 1) * per_mille / 1_000];
        let each = |total: u64| total as f64 / f64::from(changes);
        format!(
            "{:.0} / {:.0} / {:.0} ({}) | {:.0} µs | {:.1}",
            at(500),
            at(990),
            at(1_000),
            took.len(),
            each(after.0 - cpu) / 1e3,
            each(after.1 - switches),
        )
    }
}

/// A program that always computes.
struct Loop(Child);

impl Loop {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives all threads of this process real-time priority.
fn raise_priorities() {
    let own = std::process::id().to_string();
    let set = Command::new("chrt")
        .args(["--all-tasks", "--reset-on-fork", "--fifo", "--pid", "50", &own])
        .status();
    assert!(set.is_ok_and(|it| it.success()), "chrt of util-linux is needed, and root");
}

/// Processor time in nanoseconds and the number of context switches of all threads so far.
fn usage(process: &Process) -> (u64, u64) {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let tasks = tasks.map(|task| task.unwrap().path());
    tasks.fold((0, 0), |(cpu, switches), task| {
        let schedstat = fs::read_to_string(task.join("schedstat")).unwrap();
        let status = fs::read_to_string(task.join("status")).unwrap();
        let of = status.lines().filter(|line| line.contains("ctxt_switches"));
        let of = of.map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap());
        let ran: u64 = schedstat.split(' ').next().unwrap().parse().unwrap();
        (cpu + ran, switches + of.sum::<u64>())
    })
}

fn name(number: u32) -> String {
    format!("team-{}/service-{number}", number % 100)
}

/// The slice of a service; its last endpoint is another one in every round.
fn slice(number: u32, round: u32) -> serde_json::Value {
    let endpoint = |i: u32| {
        let host = if i + 1 < ENDPOINTS { i } else { i + round };
        format!("10.{}.{}.{}", 128 + host, number / 250, number % 250 + 1)
    };
    let endpoints: Vec<String> = (0..ENDPOINTS).map(endpoint).collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    let name = name(number);
    let (_, service) = name.split_once('/').unwrap();
    endpoint_slice(&format!("{name}-1"), service, &endpoints, 8080)
}
