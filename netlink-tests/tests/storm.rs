//! New connections without a pause, while endpoints change all the time, the daemon is killed every
//! second, and tables are replaced whole by the same and by an earlier layout.
//!
//! No connection may fail or reach an endpoint that was gone before it began, and connections that
//! stay open survive. One exception comes from the kernel: a packet in the rules of a table while
//! a commit deletes that table finds its sets empty from then on (`nft_lookup_eval` takes the
//! generation anew), so each processor may lose one new connection when a table is replaced whole.
//! These are counted apart, and there may be no more of them. `STORM_CONNECTIONS` is the fewest connections, `STORM_CHANGES` the changes of
//! endpoint slices in a second.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::VecDeque;
use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use conntrack::ConntrackTable;
use engine::ruleset;
use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{endpoint_slice, node, service, service_cidr};
use netlink_tests::{
    Deadline, Host, NODE_IP, Net, Process, deltaproxy_binary, eventually, nft_can_load,
};
use nft::Family;
use nft::kernel::{Kernel, Nftables};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::clock::Clock;
use self::cluster::{ENDPOINT_PORT, ENDPOINTS, Endpoints, SERVICES};
use self::traffic::{
    Client, Failure, KEPT_AFFINITY_IP, KEPT_IP, KEPT_NODE_PORT, KEPT_VIP, Kept, Seen, serve, wake,
};

#[path = "storm/clock.rs"]
mod clock;
#[path = "storm/cluster.rs"]
mod cluster;
#[path = "storm/traffic.rs"]
mod traffic;

/// Fewest connections and changes a second, without variables.
const CONNECTIONS: usize = 5_000;
const CHANGES: usize = 1_000;

/// How long each daemon lives.
const LIFE: Duration = Duration::from_secs(1);

/// Fewest daemons that are killed: after them both replacements of the tables were made.
const KILLS: usize = 3;

/// A storm may take so long, and [`CONNECTION`] for each connection: far more than it does.
const START: Duration = Duration::from_secs(120);
const CONNECTION: Duration = Duration::from_millis(2);

/// The daemon does this within it, also beside a storm.
const SOON: Duration = Duration::from_secs(30);

const KEPT_PORT: u16 = 9090;

/// A cluster and the hosts around its node.
struct Storm {
    net: Net,
    api: ApiServer,
    endpoints: Endpoints,
    server: Host,
    pods: [Host; 2],
    outside: Host,
    seen: Seen,
    clock: Clock,
    ended: AtomicBool,
}

/// Counts of the faults applied to the daemon and its tables.
#[derive(Debug, Default)]
struct Interruptions {
    kills: usize,
    replaced: usize,
    downgraded: usize,
    /// When tables were replaced, by nft or by a daemon, in nanoseconds on the storm's clock.
    replacements: Vec<RangeInclusive<u64>>,
    /// The last of them with their times.
    last: VecDeque<String>,
}

/// Interruptions that are listed with each failure.
const LAST: usize = 12;

impl Interruptions {
    /// Divides failures into those of packets that were in a table when it was replaced, and others.
    fn divide(&self, failures: &[Failure]) -> (usize, Vec<String>) {
        let processors = thread::available_parallelism().unwrap().get();
        let mut left: Vec<_> = failures.iter().collect();
        let mut in_flight = 0;
        for replacement in &self.replacements {
            for _ in 0..processors {
                let Some(at) = left.iter().position(|it| replacement.contains(&it.start)) else {
                    break;
                };
                left.remove(at);
                in_flight += 1;
            }
        }
        (in_flight, left.into_iter().map(|failure| failure.what.clone()).collect())
    }

    fn note(&mut self, what: &str, clock: &Clock) {
        self.last.push_back(format!("{what} after {:?}", clock.elapsed()));
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }
}

#[test]
fn no_connection_fails_in_a_storm_of_changes_kills_and_replaced_tables() {
    let storm = Storm::new();
    let _pod_servers =
        [storm.pods[0].serve_tcp(KEPT_PORT, "kept"), storm.pods[0].serve_udp(KEPT_PORT, "kept")];
    let daemon = storm.daemon();
    let listener = storm.server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, ENDPOINT_PORT)));
    let listener = listener.unwrap();
    let mut kernel = storm.net.node().run(Nftables::open).unwrap();
    let mut interruptions = Interruptions::default();
    let mut took = Duration::ZERO;
    let mut kept = 0;
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let ended = &storm.ended;
        let _end = End(&storm);
        threads.spawn(|| serve(&listener, ended));
        threads.spawn(|| storm.endpoints.watch(&mut kernel, &storm.clock, ended));
        eventually("all endpoints", SOON, || storm.endpoints.are_settled().then_some(()));
        let open = Kept::open([&storm.pods[1], &storm.outside]);
        kept = open.count();
        let over = &over;
        let _over = Over(over);
        threads.spawn(|| open.ask("kept", &storm.seen, &storm.clock, over));
        threads
            .spawn(|| storm.endpoints.change(&storm.api, number("STORM_CHANGES", CHANGES), over));
        for (seed, (name, host)) in (0..).zip(storm.clients()) {
            let client = storm.client(name, seed);
            threads.spawn(move || host.run(|| client.run(over)));
        }
        let clock = Clock::start();
        let daemon = storm.strike(daemon, &mut interruptions);
        took = clock.elapsed();
        over.store(true, SeqCst);
        let settled = || storm.endpoints.are_settled().then_some(());
        eventually("the last changes in the kernel", SOON, settled);
        drop(daemon);
    });
    storm.report(&interruptions, took, kept);
}

/// Ends all threads when it is dropped, also by a panic.
struct End<'a>(&'a Storm);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, SeqCst);
        wake(&self.0.server, ENDPOINT_PORT);
    }
}

/// Ends clients and changes when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Storm {
    fn new() -> Self {
        let net = Net::new();
        let pods = [net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6")];
        let outside = net.outside("x", "192.0.2.10");
        let server = net.remote_pod("s", "10.244.2.7");
        server.add_range(ENDPOINTS, 16);
        net.route_everything_to(&server);
        // Its settings are there once it is loaded.
        net.node().run(|| ConntrackTable::load().unwrap());
        // Else a long storm fills the conntrack table.
        net.node().sysctl("netfilter/nf_conntrack_tcp_timeout_close", "2");
        let api = net.node().run(ApiServer::start);
        api.push(node("node1", &NODE_IP.to_string()));
        api.push(service_cidr("kubernetes", "10.96.0.0/15"));
        api.push_all(kept_services());
        let endpoints = Endpoints::push_all(&api);
        let (seen, clock) = (Seen::default(), Clock::start());
        let ended = AtomicBool::new(false);
        Self { net, api, endpoints, server, pods, outside, seen, clock, ended }
    }

    /// Two threads for each.
    fn clients(&self) -> impl Iterator<Item = (&'static str, &Host)> {
        let [a, b] = &self.pods;
        [("pod a", a), ("pod b", b), ("outside", &self.outside), ("node", self.net.node())]
            .into_iter()
            .cycle()
            .take(8)
    }

    fn client(&self, name: &'static str, seed: u64) -> Client<'_> {
        let (clock, endpoints, seen) = (&self.clock, &self.endpoints, &self.seen);
        Client { name, seed, clock, endpoints, seen }
    }

    fn daemon(&self) -> Process {
        let kubeconfig = format!("--kubeconfig={}", self.api.kubeconfig().display());
        let arguments = [
            "run",
            &kubeconfig,
            "--hostname-override=node1",
            "--cluster-cidr=10.244.0.0/16",
            "--healthz-bind-address=",
            "--metrics-bind-address=",
        ];
        self.net.node().spawn(deltaproxy_binary(), &arguments)
    }

    /// Kills the daemon every second, replaces its tables now and then, and starts the next, until
    /// there were connections and kills enough. Returns the last.
    #[track_caller]
    fn strike(&self, mut daemon: Process, interruptions: &mut Interruptions) -> Process {
        let wanted = number("STORM_CONNECTIONS", CONNECTIONS);
        let limit = Deadline::after(START + CONNECTION * u32::try_from(wanted).unwrap());
        let connections = || self.seen.connections.load(SeqCst);
        let fails = |interruptions: &Interruptions| {
            !interruptions.divide(&self.seen.failures.lock().unwrap()).1.is_empty()
        };
        while !fails(interruptions) && (interruptions.kills < KILLS || connections() < wanted) {
            assert!(
                limit.left().is_some(),
                "too slow: {} connections, {interruptions:?}",
                connections()
            );
            thread::sleep(LIFE);
            daemon.signal(Signal::SIGKILL);
            let _ = daemon.finish(SOON);
            interruptions.note("daemon killed", &self.clock);
            let [replaces, downgrades] =
                [0, 1].map(|it| nft_can_load() && interruptions.kills % 3 == it);
            if replaces {
                interruptions.replacements.push(self.replace_tables(str::to_owned));
                interruptions.replaced += 1;
                interruptions.note("tables replaced", &self.clock);
            }
            if downgrades {
                interruptions.replacements.push(self.replace_tables(in_layout_2));
                interruptions.downgraded += 1;
                interruptions.note("tables of layout 2", &self.clock);
            }
            interruptions.kills += 1;
            let start = self.clock.nanoseconds();
            daemon = self.daemon();
            if downgrades {
                eventually("the present layout", SOON, || self.has_present_layout().then_some(()));
                interruptions.replacements.push(start..=self.clock.nanoseconds());
                interruptions.note("tables in the present layout", &self.clock);
            }
        }
        daemon
    }

    /// Replaces both tables by what `change` makes of them, in one transaction; returns when.
    fn replace_tables(&self, change: fn(&str) -> String) -> RangeInclusive<u64> {
        let node = self.net.node();
        let listing = node.nft("list ruleset");
        let tables = ["ip kube-proxy", "ip6 kube-proxy"];
        // On a slow machine the first daemon may be killed before it wrote the second table.
        let there = tables.iter().filter(|table| listing.contains(&format!("table {table} ")));
        let gone: String = there.map(|table| format!("delete table {table}\n")).collect();
        let start = self.clock.nanoseconds();
        node.nft_script(&(gone + &change(&without_table_flags(&listing))));
        start..=self.clock.nanoseconds()
    }

    fn has_present_layout(&self) -> bool {
        let mut kernel = self.net.node().run(Nftables::open).unwrap();
        let table = kernel.read_table(&ruleset::table(Family::Ip));
        let comment = table.ok().flatten().and_then(|contents| contents.table.comment);
        comment == Some(ruleset::table_comment())
    }

    #[track_caller]
    fn report(&self, interruptions: &Interruptions, took: Duration, kept: usize) {
        let seconds = took.as_secs_f64();
        let Seen { connections, longest, kept: answers, failures } = &self.seen;
        let connections = connections.load(SeqCst);
        let (in_flight, failures) = interruptions.divide(&failures.lock().unwrap());
        let changes = self.endpoints.changes.load(SeqCst);
        let rate = |count: usize| count as f64 / seconds;
        eprintln!(
            "{connections} new connections to {SERVICES} services in {seconds:.1} s ({:.0} a second), \
             the longest {:.1} ms; {in_flight} lost in a table that was replaced, {} other failures",
            rate(connections),
            longest.load(SeqCst) as f64 / 1e6,
            failures.len(),
        );
        eprintln!(
            "{changes} endpoints added or removed ({:.0} a second), compared with the kernel {} times",
            rate(changes),
            self.endpoints.looks.load(SeqCst),
        );
        eprintln!(
            "{} daemons killed; tables replaced {} times by themselves, {} times by those of layout 2",
            interruptions.kills, interruptions.replaced, interruptions.downgraded,
        );
        eprintln!("{} answers on {kept} connections that stayed open", answers.load(SeqCst));
        assert!(failures.is_empty(), "{}\n{:#?}", failures.join("\n"), interruptions.last);
    }
}

/// Two services of one endpoint that never changes, for TCP and UDP.
fn kept_services() -> Vec<Value> {
    let ports = |node_port: Value| {
        ["TCP", "UDP"].map(|protocol| {
            let name = protocol.to_lowercase();
            json!({"name": name, "protocol": protocol, "port": 80, "nodePort": node_port})
        })
    };
    let mut everywhere = service("kept/everywhere", &KEPT_IP.to_string(), 80);
    everywhere["spec"]["type"] = "LoadBalancer".into();
    everywhere["spec"]["ports"] = ports(KEPT_NODE_PORT.into()).to_vec().into();
    let ingress = json!([{"ip": KEPT_VIP.to_string()}]);
    everywhere["status"] = json!({"loadBalancer": {"ingress": ingress}});
    let mut sticky = service("kept/sticky", &KEPT_AFFINITY_IP.to_string(), 80);
    sticky["spec"]["ports"] = ports(Value::Null).to_vec().into();
    sticky["spec"]["sessionAffinity"] = "ClientIP".into();
    sticky["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10_800}});
    let slice = |name: &str| {
        let mut slice = endpoint_slice(&format!("kept/{name}-1"), name, &["10.244.1.5"], 0);
        slice["ports"] = ["TCP", "UDP"]
            .map(|it| json!({"name": it.to_lowercase(), "protocol": it, "port": KEPT_PORT}))
            .to_vec()
            .into();
        slice
    };
    vec![slice("everywhere"), slice("sticky"), everywhere, sticky]
}

/// nft before 1.1 does not load the flags of a table whose owner has ended.
fn without_table_flags(listing: &str) -> String {
    let flag_line = |line: &&str| line.starts_with("\tflags ");
    listing.lines().filter(|line| !flag_line(line)).map(|line| line.to_owned() + "\n").collect()
}

/// The same tables as layout 2 has them: it remembers each client by its address.
fn in_layout_2(listing: &str) -> String {
    let (mut script, mut in_clients, mut in_elements) = (String::new(), false, false);
    for line in listing.lines() {
        in_clients = (in_clients && line != "\t}") || line == "\tmap affinity-clients {";
        in_elements = in_clients && (in_elements || line.starts_with("\t\telements = "));
        if in_elements {
            continue;
        }
        let is_type = in_clients && line.starts_with("\t\ttypeof ");
        script += if is_type { "\t\ttype classid . ipv4_addr : classid" } else { line };
        script.push('\n');
    }
    let hash = ["ip", "ip6"].map(|family| format!("jhash {family} saddr mod 32768 seed 0x1"));
    assert!(script.contains(&ruleset::table_comment()), "{script}");
    let comment = format!("{}2", ruleset::TABLE_COMMENT);
    let script = script.replace(&ruleset::table_comment(), &comment).replace("1048576", "4194304");
    let (ip, ip6) = script.split_once("table ip6 ").unwrap();
    let ip6 = ip6
        .replace(&hash[1], "ip6 saddr")
        .replace(". ipv4_addr : classid", ". ipv6_addr : classid");
    format!("{}table ip6 {ip6}", ip.replace(&hash[0], "ip saddr"))
}

fn number(variable: &str, default: usize) -> usize {
    env::var(variable)
        .map_or(default, |it| it.parse().unwrap_or_else(|_| panic!("{variable}={it}")))
}
