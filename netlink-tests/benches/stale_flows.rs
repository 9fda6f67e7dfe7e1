//! What stale UDP flows cost the daemon while services change, and how long they stay.
//!
//! Each change replaces the endpoints of a UDP service, so flows to the former ones are stale.
//! Conntrack has `FLOWS` other entries meanwhile. Now and then a flow to the present endpoint is
//! added right before a change; it stays until its entry is gone. `BEFORE` and `AFTER` name two
//! binaries, which take turns, each with daemon and namespace of its own; `AFTER` is
//! `target/release/deltaproxy` by default, and without `BEFORE` it runs alone. `ROUNDS` is the
//! number of turns, `SECONDS` the time of each case.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::builds::{builds, number};
use netlink_tests::{Net, Process, Tracked, TrackedFlows};
use nix::sys::signal::Signal;
use serde_json::Value;

const METRICS: &str = "127.0.0.1:10249";

const UDP: u8 = 17;

/// Nothing takes longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// Time between two checks whether a flow is gone.
const LOOK: Duration = Duration::from_millis(1);

/// Flows whose end is timed, each this long after the one before at the earliest.
const TIMED_EACH: Duration = Duration::from_millis(500);

/// A commit takes less.
const SETTLE: Duration = Duration::from_millis(100);

/// Services that change in turn, if not only one does.
const SERVICES: u32 = 20;

fn main() {
    // `cargo test` runs benches too, with this argument.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let builds = builds();
    println!("| build | entries | changes | CPU of the thread | passes | of each | stale for |");
    println!("|---|---|---|---|---|---|---|");
    for flows in [0, number("FLOWS", 200_000)] {
        for _ in 0..number("ROUNDS", 2) {
            for (name, binary) in &builds {
                Bench::start(binary, flows).run(name);
            }
        }
    }
}

/// The value of a variable.
/// A stream of changes.
struct Case {
    what: &'static str,
    /// Time between two changes.
    interval: Duration,
    services: u32,
    /// Endpoints that follow one another; then the first one is back.
    endpoints: u32,
}

const CASES: [Case; 4] = [
    Case { what: "1 in 2 s", interval: Duration::from_secs(2), services: 1, endpoints: 50_000 },
    Case {
        what: "100 a second, 2 endpoints take turns",
        interval: Duration::from_millis(10),
        services: 1,
        endpoints: 2,
    },
    Case {
        what: "100 a second, each to a new endpoint",
        interval: Duration::from_millis(10),
        services: 1,
        endpoints: 50_000,
    },
    Case {
        what: "100 a second, of 20 services, each to a new endpoint",
        interval: Duration::from_millis(10),
        services: SERVICES,
        endpoints: 50_000,
    },
];

struct Bench {
    net: Net,
    api: ApiServer,
    daemon: Process,
    /// Number of entries beside those of the services.
    flows: u32,
}

impl Bench {
    fn start(binary: &Path, flows: u32) -> Self {
        let net = Net::new();
        net.node().run(|| fill(flows));
        let api = net.node().run(ApiServer::start);
        api.push_all([node("node1", "192.168.50.2"), service_cidr("kubernetes", "10.96.0.0/12")]);
        api.push_all((0..SERVICES).flat_map(|number| [dns(number), slice(number, 0)]));
        let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
        let metrics = format!("--metrics-bind-address={METRICS}");
        let arguments = [
            "run",
            &kubeconfig,
            "--hostname-override=node1",
            "--cluster-cidr=10.244.0.0/16",
            "--healthz-bind-address=",
            &metrics,
        ];
        let daemon = net.node().spawn(binary, &arguments);
        let bench = Self { net, api, daemon, flows };
        let start = Instant::now();
        let synced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}";
        while bench.metric(synced).is_none_or(|value| value <= 0.0) {
            assert!(start.elapsed() < LIMIT, "not ready:\n{}", bench.daemon.output());
            thread::sleep(Duration::from_millis(20));
        }
        // The first list of all flows is over.
        thread::sleep(Duration::from_secs(2));
        bench
    }

    fn run(self, build: &str) {
        let time = Duration::from_secs(number("SECONDS", 20).into());
        for case in &CASES {
            // So the rest after the last pass of the case before is over.
            thread::sleep(Duration::from_secs(4));
            let (passes, spent) = (self.passes(), self.thread_time());
            let start = Instant::now();
            let stale = self.net.node().run(|| self.change(case, time));
            let elapsed = start.elapsed().as_secs_f64();
            let cpu = (self.thread_time() - spent).as_secs_f64() / elapsed * 100.0;
            let now = self.passes();
            let (count, sum) = (now.0 - passes.0, now.1 - passes.1);
            println!(
                "| {build} | {} | {} | {cpu:.2} % | {count} | {:.2} ms | {} |",
                self.flows,
                case.what,
                sum / count * 1e3,
                spread(stale)
            );
        }
        self.daemon.signal(Signal::SIGKILL);
    }

    /// Makes the changes of a case for some time. Returns how long flows were stale.
    fn change(&self, case: &Case, time: Duration) -> Vec<Duration> {
        let mut table = TrackedFlows::open();
        let start = Instant::now();
        let mut gone = Vec::new();
        let mut timed: Option<(SocketAddr, Tracked, Instant)> = None;
        let (mut next, mut changes, mut clients) = (start, 0_u32, 40_000_u16..);
        while start.elapsed() < time || timed.is_some() {
            if let Some((client, entry, since)) = timed
                && !table.contains(client, &entry)
            {
                gone.push(since.elapsed());
                timed = None;
            }
            assert!(start.elapsed() < time + LIMIT, "a stale flow stays");
            if Instant::now() < next {
                thread::sleep(LOOK);
                continue;
            }
            next += case.interval;
            let service = changes % case.services;
            let round = changes / case.services;
            let is_due = start.elapsed() >= TIMED_EACH * u32::try_from(gone.len()).unwrap();
            if timed.is_none() && is_due && round > 0 && start.elapsed() < time {
                let client = (Ipv4Addr::new(10, 244, 77, 1), clients.next().unwrap()).into();
                let entry = Tracked {
                    protocol: UDP,
                    sent_to: (cluster_ip(service), 53).into(),
                    answered_by: (endpoint(service, round % case.endpoints), 53).into(),
                };
                // The tables have this endpoint: the change before is committed. Later changes make
                // up for the pause.
                thread::sleep(SETTLE);
                table.add(client, &entry);
                timed = Some((client, entry, Instant::now()));
            }
            self.api.push(slice(service, (round + 1) % case.endpoints));
            changes += 1;
        }
        gone
    }

    /// Number of passes and their seconds.
    fn passes(&self) -> (f64, f64) {
        let metric = |suffix| {
            let name = format!("deltaproxy_conntrack_delete_duration_seconds_{suffix}");
            self.metric(&name).unwrap_or_else(|| panic!("no metric {name}"))
        };
        (metric("count"), metric("sum"))
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let page = self.net.node().run(page)?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    /// Time that the thread which deletes flows has spent on processors.
    fn thread_time(&self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.daemon.pid())).unwrap();
        let file = |thread: &Path, name| fs::read_to_string(thread.join(name)).unwrap();
        let mut threads = threads.map(|thread| thread.unwrap().path());
        let thread = threads.find(|thread| file(thread, "comm").trim() == "conntrack").unwrap();
        let statistics = file(&thread, "schedstat");
        Duration::from_nanos(statistics.split_whitespace().next().unwrap().parse().unwrap())
    }
}

fn page() -> Option<String> {
    let mut stream = TcpStream::connect(METRICS).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {METRICS}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Adds flows to a resolver outside, of many clients.
fn fill(flows: u32) {
    let mut table = TrackedFlows::open();
    let resolver = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 1), 53));
    let entry = Tracked { protocol: UDP, sent_to: resolver, answered_by: resolver };
    for number in 0..flows {
        let port = u16::try_from(1024 + number % 50_000).unwrap();
        let client = Ipv4Addr::from(0x0af4_4e01 + number / 50_000);
        table.add((client, port).into(), &entry);
    }
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_millis();
    format!("{} / {} ms", at(50), at(100))
}

fn cluster_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a60_0100 + number)
}

fn endpoint(service: u32, round: u32) -> IpAddr {
    Ipv4Addr::from(0x0af5_0000 + service * 0x1_0000 + round).into()
}

fn dns(number: u32) -> Value {
    let mut service = service(&name(number), &cluster_ip(number).to_string(), 53);
    service["spec"]["ports"][0]["protocol"] = "UDP".into();
    service
}

fn slice(number: u32, round: u32) -> Value {
    let address = endpoint(number, round).to_string();
    let mut slice = endpoint_slice(&name(number), &name(number)[5..], &[&address], 53);
    slice["ports"][0]["protocol"] = "UDP".into();
    slice
}

fn name(number: u32) -> String {
    format!("team/dns-{number}")
}
