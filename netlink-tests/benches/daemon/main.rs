//! What the daemon costs beside an API server of many services: `make bench-daemon`.
//!
//! The server runs in this process, the daemon in its own; both in one network namespace. Times
//! include the server's, which is no fast one, and the reading of its objects. `SERVICES=50000`
//! says how many services there are. With `API_SERVER_JSON=1` the server answers JSON alone.
//! `BEFORE` and `AFTER` name two binaries: then starts alone are measured, in turns; `ROUNDS` is the
//! number of turns. With `PUBLISHED=1` it measures the clusters of [`published`] instead.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

mod objects;
mod published;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{node, service_cidr};
use netlink_tests::builds::{builds_in_turns, number};
use netlink_tests::{Host, Net, Process, deltaproxy_binary};
use nft::kernel::{Kernel, Nftables};
use nft::{Family, Operation, Table, Transaction};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Endpoints of each service.
const ENDPOINTS: u32 = 5;

/// Slices that change at once.
const BURST: u32 = 5_000;

/// Slices that change one by one.
const CHANGES: u32 = 2_000;

/// Time between them: for most, the one before is in the kernel.
const PAUSE: Duration = Duration::from_millis(3);

/// `sysconf(_SC_CLK_TCK)`, which is 100 a second on every machine that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

/// Nothing takes longer than this.
const LIMIT: Duration = Duration::from_secs(600);

/// Time between two checks whether the daemon is ready: each costs it a page of metrics.
const LOOK: Duration = Duration::from_millis(20);

/// As long as this without a commit: there will be none.
const QUIET: Duration = Duration::from_secs(2);

const METRICS: &str = "127.0.0.1:10249";

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    if number("PUBLISHED", 0) != 0 {
        return published::measure();
    }
    let services = number("SERVICES", 50_000);
    let objects = (0..services).flat_map(|number| [objects::service(number), slice(number, 0)]);
    let mut bench = Bench::of(objects);
    let kill = |daemon: Process| daemon.signal(Signal::SIGKILL);
    if let Some(builds) = builds_in_turns() {
        return bench.compare(&builds, number("ROUNDS", 5));
    }
    println!("| {services} services with {ENDPOINTS} endpoints each | time | commits | memory |");
    println!("|---|---|---|---|");
    kill(bench.start("start on an empty table", None));
    kill(bench.start("start on the table of the run before", None));
    let beside = "the same beside 200 commits a second of another program";
    kill(bench.start(beside, Some(Others::start)));
    let daemon = bench.start("start on the table of the run before, again", None);
    let burst = (0..BURST.min(services)).map(|number| slice(number, 1)).collect();
    bench.change("5,000 slices change at once", &daemon, burst);
    bench.change("this node gets a zone: all services change", &daemon, vec![node_in_a_zone()]);
    // A round that no other change has.
    bench.change("one slice changes", &daemon, vec![slice(services / 2, 9)]);
    bench.changes_one_by_one(&daemon, services);
}

struct Bench {
    net: Net,
    api: ApiServer,
    watch: Option<Nftables>,
}

/// A daemon that is ready, and the seconds that it took and worked.
struct Started {
    daemon: Process,
    took: f64,
    worked: f64,
}

impl Bench {
    /// A node beside an API server with these objects.
    fn of(objects: impl Iterator<Item = Value>) -> Self {
        let net = Net::new();
        let api = net.node().run(ApiServer::start);
        api.push_all([node("node1", "192.168.50.2"), service_cidr("kubernetes", "10.96.0.0/12")]);
        api.push_all(objects);
        api.compact();
        api.encode();
        Self { net, api, watch: None }
    }

    fn start(&mut self, what: &str, others: Option<fn(&Host) -> Others>) -> Process {
        self.settled();
        let before = self.generation();
        let others = others.map(|start| start(self.net.node()));
        let Started { daemon, took, worked } = self.start_build(&deltaproxy_binary());
        let of_others = others.map_or(0, Others::stop);
        self.settled();
        let commits = self.generation() - before - of_others;
        let memory = memory(&daemon);
        println!("| {what} | {took:.2} s, CPU {worked:.2} s | {commits} | {memory} |");
        daemon
    }

    /// Measures starts of builds in turns, on an empty table and on that of the start before.
    fn compare(&mut self, builds: &[(&str, PathBuf)], rounds: u32) {
        println!("| build | start on | time, s | CPU, s |");
        println!("|---|---|---|---|");
        for (build, binary) in (0..rounds).flat_map(|_| builds) {
            _ = self.net.node().output(binary, &["cleanup"]).ok();
            for tables in ["no table", "its tables"] {
                self.settled();
                let Started { daemon, took, worked } = self.start_build(binary);
                println!("| {build} | {tables} | {took:.3} | {worked:.2} |");
                self.settled();
                daemon.signal(Signal::SIGKILL);
            }
        }
    }

    /// Starts a build, and waits until the kernel holds the desired state.
    fn start_build(&self, binary: &Path) -> Started {
        let kubeconfig = format!("--kubeconfig={}", self.api.kubeconfig().display());
        let metrics = format!("--metrics-bind-address={METRICS}");
        let arguments = [
            "run",
            &kubeconfig,
            "--hostname-override=node1",
            "--cluster-cidr=10.244.0.0/16",
            "--healthz-bind-address=",
            &metrics,
        ];
        let start = Instant::now();
        let daemon = self.net.node().spawn(binary, &arguments);
        while !self.net.node().run(is_synced) {
            assert!(start.elapsed() < LIMIT, "not ready in {LIMIT:?}:\n{}", daemon.output());
            std::thread::sleep(LOOK);
        }
        let (took, worked) = (start.elapsed().as_secs_f64(), processor_time(&daemon).as_secs_f64());
        Started { daemon, took, worked }
    }

    fn change(&mut self, what: &str, daemon: &Process, objects: Vec<Value>) {
        let before = self.generation();
        let start = Instant::now();
        self.api.push_all(objects);
        while self.generation() == before {
            assert!(start.elapsed() < LIMIT, "no commit in {LIMIT:?}");
        }
        let took = self.settled() - start;
        let commits = self.generation() - before;
        println!("| {what} | {:.3} s | {commits} | {} |", took.as_secs_f64(), memory(daemon));
    }

    /// What slices that change every few milliseconds cost the daemon, each by itself.
    fn changes_one_by_one(&mut self, daemon: &Process, services: u32) {
        let (before, worked) = (self.generation(), processor_time(daemon));
        for number in 0..CHANGES {
            self.api.push(slice(number % services, number / services + 2));
            std::thread::sleep(PAUSE);
        }
        self.settled();
        let commits = self.generation() - before;
        let each = (processor_time(daemon) - worked) / CHANGES;
        let memory = memory(daemon);
        println!(
            "| {CHANGES} slices change one by one, CPU of each | {each:.0?} | {commits} | {memory} |"
        );
    }

    /// Waits until no program commits any more; when the last commit was seen.
    fn settled(&mut self) -> Instant {
        let (mut last, mut known) = (Instant::now(), self.generation());
        while last.elapsed() < QUIET {
            std::thread::sleep(Duration::from_micros(500));
            let generation = self.generation();
            if generation != known {
                (last, known) = (Instant::now(), generation);
            }
        }
        last
    }

    fn generation(&mut self) -> u32 {
        let node = self.net.node();
        let kernel = self.watch.get_or_insert_with(|| node.run(|| Nftables::open().unwrap()));
        kernel.generation().unwrap().0
    }
}

/// Another program, which changes a table of its own.
struct Others {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

/// Time between its commits.
const OTHERS_PAUSE: Duration = Duration::from_millis(5);

impl Others {
    fn start(node: &Host) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        // A thread begins in the namespace of the one that starts it.
        let thread = node.run(|| std::thread::spawn(move || Self::commit_until(&flag)));
        Self { is_over, thread }
    }

    fn commit_until(is_over: &AtomicBool) -> u32 {
        let mut kernel = Nftables::open().unwrap();
        let table = Table::new(Family::Ip, "other");
        let (add, delete) = (Operation::AddTable(table.clone()), table.reference());
        let operations = [add, Operation::DeleteTable(delete)];
        let commits = operations.iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed));
        let commit = |operation: &Operation| {
            kernel.commit(&Transaction { operations: vec![operation.clone()] }).unwrap();
            std::thread::sleep(OTHERS_PAUSE);
        };
        u32::try_from(commits.map(commit).count()).unwrap()
    }

    /// Ends it; returns how many commits it made.
    fn stop(self) -> u32 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Whether the daemon says that the tables are right.
fn is_synced() -> bool {
    let Ok(mut stream) = TcpStream::connect(METRICS) else { return false };
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {METRICS}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let received =
        stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    let line = "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} ";
    let value = answer.lines().find_map(|found| found.strip_prefix(line));
    received.is_ok() && value.is_some_and(|value| value.parse::<f64>().unwrap() > 0.0)
}

/// Time that a process has spent on processors.
fn processor_time(process: &Process) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    // proc_pid_stat(5): utime and stime, counted from after the name, which may hold blanks.
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
    TICK * u32::try_from(ticks).unwrap()
}

/// Resident memory now, and the most it has been.
fn memory(process: &Process) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let mebibytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
    };
    format!("{:.1} MiB, at most {:.1} MiB", mebibytes("VmRSS:"), mebibytes("VmHWM:"))
}

fn node_in_a_zone() -> Value {
    let mut node = node("node1", "192.168.50.2");
    node["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "zone-1"});
    node
}

/// The slice of a service; its endpoints are others in every round.
fn slice(number: u32, round: u32) -> Value {
    let first = 0x0af4_0000 + round * 0x0100_0000 + number * 8;
    objects::slice(number, 0, first..first + ENDPOINTS)
}
