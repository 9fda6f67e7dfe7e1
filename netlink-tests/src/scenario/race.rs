//! Races: flows that are opened without a pause while one commit follows the other.
//!
//! Every change of objects makes the next state; the first is state 0. A [`Way`] names the servers of
//! each state. The first packet of a flow passes the tables after the commits that had ended when the
//! flow was opened, and before the end of those that had begun when its answer came. So a server of
//! these states must answer, and no other may.

use std::collections::BTreeMap;
use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::expect::{Family, Protocol, destination};
use super::lab::Lab;
use super::proxy::{Proxy, Sent};
use super::world::World;
use test_hosts::Answer;
use test_hosts::Host;
use test_hosts::ip6_of;
use test_hosts::{Deadline, PATIENCE, eventually};

/// A client and the address to which it opens flows: by UDP and TCP, in both families.
#[derive(Debug, Clone)]
pub struct Way {
    client: &'static str,
    to: &'static str,
    servers: Vec<String>,
    /// Servers beside them that may answer while one of two states is committed.
    between: Vec<String>,
}

/// The parties of a race.
#[derive(Debug)]
pub struct Race<'a> {
    /// Each has a thread that opens flows.
    pub ways: &'a [Way],
    /// Fewest commits that count as a race.
    pub commits: usize,
    /// States in a row, after which commits wait for flows that see the last one only.
    pub burst: usize,
    /// Whether each commit replaces the tables whole: then each processor may lose the flow whose
    /// packet is inside the rules meanwhile, because it finds their maps empty.
    pub replaces_tables: bool,
}

/// A flow that failed.
#[derive(Debug)]
struct Failure {
    /// The states during the flow.
    states: RangeInclusive<usize>,
    /// No server answered.
    is_lost: bool,
    what: String,
}

/// The entry of `states` for a state; the first follows the last.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn cycle<T>(states: &[T], state: usize) -> &T {
    &states[state % states.len()]
}

impl Way {
    /// The servers (names between spaces) of each state, in turns. The name `-` stands for no answer:
    /// flows may be refused or lost.
    #[must_use]
    pub fn new(client: &'static str, to: &'static str, servers: &[impl AsRef<str>]) -> Self {
        Self { client, to, servers: owned(servers), between: vec![String::new()] }
    }

    /// The same, and servers of each state that may also answer during the commits before and after
    /// it: where two things change at once, a packet may see one of them only.
    #[must_use]
    pub fn or_between(self, servers: &[impl AsRef<str>]) -> Self {
        Self { between: owned(servers), ..self }
    }

    /// Whether a flow to this way may have this answer while the tables are in these states.
    fn check(&self, answer: &Answer, states: RangeInclusive<usize>) -> Result<(), String> {
        let lists = states.clone().map(|state| cycle(&self.servers, state));
        let is_commit = states.start() < states.end();
        let between = states.map(|state| cycle(&self.between, state)).filter(|_| is_commit);
        let mut names = lists.chain(between).flat_map(|names| names.split_whitespace());
        match answer {
            Answer::From { server, seen } => {
                if !names.any(|name| name == server) {
                    return Err(format!("{server} answered"));
                }
                if self.client == "outside" && OTHER_NODE.contains(&server.as_str()) {
                    return masqueraded(server, seen.ip());
                }
                Ok(())
            }
            Answer::Echoed | Answer::Refused | Answer::Silent | Answer::Unreachable(_) => {
                if names.any(|name| name == "-") { Ok(()) } else { Err(format!("{answer:?}")) }
            }
        }
    }
}

fn owned(servers: &[impl AsRef<str>]) -> Vec<String> {
    servers.iter().map(|names| names.as_ref().to_owned()).collect()
}

/// An endpoint on another node would answer a host outside directly, and not through this node.
fn masqueraded(server: &str, seen: IpAddr) -> Result<(), String> {
    let node = [IpAddr::from(crate::NODE_IP), crate::NODE_IP6.into()];
    if node.contains(&seen) { Ok(()) } else { Err(format!("{server} saw {seen}")) }
}

impl<'a> Race<'a> {
    /// A race of `COMMITS` commits or more.
    #[must_use]
    pub fn of(ways: &'a [Way]) -> Self {
        Self { ways, commits: COMMITS, burst: BURST, replaces_tables: false }
    }

    /// The same with another count of commits.
    #[must_use]
    pub fn commits(self, commits: usize) -> Self {
        Self { commits, ..self }
    }

    /// Opens flows on all ways while `change` sets one state after the other.
    ///
    /// # Panics
    /// When a flow fails or reaches a wrong server, or flows and commits are too slow to be many.
    #[track_caller]
    pub fn run(&self, lab: Lab, mut change: impl FnMut(&mut Proxy, usize) -> Sent) {
        let Lab { world, mut proxy } = lab;
        // The answer of an endpoint that has left meanwhile does not find its way without its entry.
        proxy.leave_flows();
        proxy.keep_unused_elements();
        let _ = change(&mut proxy, 0);
        for (name, seconds) in CONNTRACK_TIMEOUTS {
            world.node().sysctl(name, seconds);
        }
        let senders = self.senders(&world);
        let progress = Progress::new(senders.len());
        let (commits, failures) = thread::scope(|threads| {
            let running = senders.iter().map(|sender| threads.spawn(|| sender.send(&progress)));
            let running: Vec<_> = running.collect();
            let commits = self.commit(&mut proxy, &progress, &mut change);
            let failures: Vec<_> = running
                .into_iter()
                .flat_map(|thread| thread.join().unwrap_or_else(|it| panic::resume_unwind(it)))
                .collect();
            (commits, failures)
        });
        let failures = self.without_those_inside(failures);
        let flows = progress.flows();
        let result = format!("{flows} flows, {commits} commits, {} failures", failures.len());
        eprintln!("{}: {result}", thread::current().name().unwrap_or_default());
        assert!(failures.is_empty(), "{result}\n{}", failures.join("\n"));
    }

    /// Leaves out the flows that commits may lose.
    fn without_those_inside(&self, failures: Vec<Failure>) -> Vec<String> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut lost: BTreeMap<usize, usize> = BTreeMap::new();
        let may_be_inside = |failure: &Failure| {
            let during_commit = failure.states.start() < failure.states.end();
            if !self.replaces_tables || !failure.is_lost || !during_commit {
                return false;
            }
            let lost = lost.entry(*failure.states.end()).or_default();
            *lost += 1;
            *lost <= processors
        };
        let (_, others): (Vec<_>, Vec<_>) = failures.into_iter().partition(may_be_inside);
        others.into_iter().map(|failure| failure.what).collect()
    }

    /// Makes states until there were flows and commits enough, or a sender ends; returns how many
    /// commits that took.
    #[track_caller]
    fn commit(
        &self,
        proxy: &mut Proxy,
        progress: &Progress,
        change: &mut impl FnMut(&mut Proxy, usize) -> Sent,
    ) -> usize {
        let _end = End(&progress.ended);
        let wanted = wanted_flows().unwrap_or(FLOWS);
        let limit = Deadline::after(START + FLOW * u32::try_from(wanted).expect("some million"));
        let mut commits = 0;
        for state in 1.. {
            let enough = progress.flows() >= wanted && progress.fewest() >= FLOWS_OF_EACH;
            if progress.ended.load(SeqCst) || (enough && commits >= self.commits) {
                break;
            }
            let counts = format!("{:?} flows and {commits} commits", progress.flows);
            assert!(limit.left().is_some(), "the machine is too slow: {counts}");
            progress.begun.store(state, SeqCst);
            commits += change(proxy, state).transactions.len();
            progress.committed.store(state, SeqCst);
            if state % self.burst == 0 {
                progress.wait_for_flows();
            }
        }
        commits
    }

    fn senders<'w>(&'w self, world: &World) -> Vec<Sender<'w>> {
        let mut clients: Vec<_> = self.ways.iter().map(|way| way.client).collect();
        clients.sort_unstable();
        clients.dedup();
        for client in clients {
            add_sources(client, world.host(client));
        }
        let first_ports = (FIRST_PORT..).step_by(usize::from(PORTS));
        let sender = |((index, way), first_port): ((usize, &'w Way), u16)| {
            assert!(first_port <= u16::MAX - PORTS, "too many ways for the ports");
            let host = world.host(way.client).clone();
            Sender { sources: sources(way.client, &host), host, way, index, first_port }
        };
        self.ways.iter().enumerate().zip(first_ports).map(sender).collect()
    }
}

/// How far states and flows are.
#[derive(Debug)]
struct Progress {
    /// The last state whose commit has begun.
    begun: AtomicUsize,
    /// The last state whose commit has ended.
    committed: AtomicUsize,
    /// Flows that each sender has opened.
    flows: Vec<AtomicUsize>,
    /// Whether the race is over.
    ended: AtomicBool,
}

impl Progress {
    fn new(senders: usize) -> Self {
        let flows = (0..senders).map(|_| AtomicUsize::new(0)).collect();
        let [begun, committed] = [0, 0].map(AtomicUsize::new);
        Self { begun, committed, flows, ended: AtomicBool::new(false) }
    }

    fn flows(&self) -> usize {
        self.flows.iter().map(|flows| flows.load(SeqCst)).sum()
    }

    fn fewest(&self) -> usize {
        self.flows.iter().map(|flows| flows.load(SeqCst)).min().unwrap_or(0)
    }

    /// Waits until every sender has opened a flow since the last commit.
    #[track_caller]
    fn wait_for_flows(&self) {
        let before: Vec<_> = self.flows.iter().map(|flows| flows.load(SeqCst)).collect();
        eventually("a flow on each way", PATIENCE * 4, || {
            // The first that ends may have been on its way before.
            let more = self.flows.iter().zip(&before).all(|(now, was)| now.load(SeqCst) > was + 1);
            (more || self.ended.load(SeqCst)).then_some(())
        });
    }
}

/// Ends the race when it is dropped, also by a panic.
#[derive(Debug)]
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A client that opens flows on one way.
#[derive(Debug)]
struct Sender<'a> {
    host: Host,
    way: &'a Way,
    index: usize,
    sources: Vec<Ipv4Addr>,
    /// The first of its [`PORTS`] source ports. Those of other senders are different ones.
    first_port: u16,
}

impl Sender<'_> {
    /// Opens flows until the race ends; returns the failures, after [`MOST_FAILURES`] at once.
    fn send(&self, progress: &Progress) -> Vec<Failure> {
        let _end = End(&progress.ended);
        let work = || {
            leave_one_processor();
            let mut failures = Vec::new();
            let mut flow = 0;
            while !progress.ended.load(SeqCst) && failures.len() < MOST_FAILURES {
                let committed = progress.committed.load(SeqCst);
                let (label, answer) = self.open(flow);
                let begun = progress.begun.load(SeqCst);
                flow = progress.flows[self.index].fetch_add(1, SeqCst) + 1;
                let states = committed..=begun;
                if let Err(what) = self.way.check(&answer, states.clone()) {
                    let is_lost = !matches!(answer, Answer::From { .. });
                    let what =
                        format!("flow {flow} {label}: {what} (states {committed} to {begun})");
                    failures.push(Failure { states, is_lost, what });
                }
            }
            failures
        };
        self.host.run(work)
    }

    /// Opens a flow from a source address and port that had none for a long time.
    fn open(&self, flow: usize) -> (String, Answer) {
        let (family, protocol) = *cycle(&KINDS, flow);
        let turn = flow / KINDS.len();
        let source = family.of(*cycle(&self.sources, turn));
        let nth = turn / self.sources.len() % usize::from(PORTS);
        let port = self.first_port + u16::try_from(nth).expect("less than PORTS");
        let source = SocketAddr::new(source, port);
        let to = destination(self.way.to, family);
        let answer = match protocol {
            Protocol::Udp => self.host.send_udp_from(source, to),
            Protocol::Tcp => self.host.connect_tcp_from(source, to),
            Protocol::Sctp => self.host.send_sctp_from(port, to),
        };
        let label = format!("from {} ({source}) to {to} by {}", self.way.client, protocol.name());
        (label, answer)
    }
}

/// Keeps the first processor for the commits, which would be too rare beside many senders.
pub(super) fn leave_one_processor() {
    let usual = sched_getaffinity(Pid::from_raw(0)).expect("the kernel tells it");
    let usable = (0..CpuSet::count()).filter(|cpu| usual.is_set(*cpu).unwrap_or(false));
    let mut others = CpuSet::new();
    for cpu in usable.skip(1) {
        others.set(cpu).expect("less than the count");
    }
    // Refused where there is only one, which then serves all.
    let _ = sched_setaffinity(Pid::from_raw(0), &others);
}

/// The addresses of a client from which flows are opened: its own, and some beside it. The node, to
/// which addresses cost little, has so many that most have no record of affinity.
fn sources(name: &str, host: &Host) -> Vec<Ipv4Addr> {
    let [a, b, c, _] = host.ip().octets();
    let beside = (0..MORE_SOURCES).map(|i| Ipv4Addr::new(a, b, c, FIRST_SOURCE + i));
    let nodes =
        NODE_BLOCKS.flat_map(|block| (1..=u8::MAX).map(move |i| [10, 252, block, i].into()));
    let more: Vec<_> = if name == "node" { nodes.collect() } else { beside.collect() };
    std::iter::once(host.ip()).chain(more).collect()
}

/// Gives `host` the addresses from which flows are opened.
fn add_sources(name: &str, host: &Host) {
    let more = sources(name, host).into_iter().skip(1);
    let addresses = more.flat_map(|ip| [IpAddr::from(ip), ip6_of(ip).into()]);
    if name == "node" {
        host.add_addresses(addresses);
    } else {
        addresses.for_each(|address| host.add_address(address));
    }
}

/// Flows of a race, if the variable `RACE_FLOWS` has a count.
///
/// # Panics
/// If it is no number.
pub(super) fn wanted_flows() -> Option<usize> {
    let flows = env::var(RACE_FLOWS).ok()?;
    Some(flows.parse().unwrap_or_else(|_| panic!("{RACE_FLOWS} is no number: {flows}")))
}

const RACE_FLOWS: &str = "RACE_FLOWS";

/// Flows of a race, unless `RACE_FLOWS` has another count. They take about a second.
const FLOWS: usize = 4_000;

/// Fewest flows on each way.
const FLOWS_OF_EACH: usize = 200;

/// Fewest commits of a race.
const COMMITS: usize = 200;

/// A race may take so long, and [`FLOW`] for each flow: far more than it does.
const START: Duration = Duration::from_secs(60);
const FLOW: Duration = Duration::from_millis(1);

/// States in a row.
const BURST: usize = 8;

/// Each takes seconds if it is silence.
const MOST_FAILURES: usize = 5;

/// The kinds of flows, in turns.
const KINDS: [(Family, Protocol); 4] = [
    (Family::Ipv4, Protocol::Udp),
    (Family::Ipv4, Protocol::Tcp),
    (Family::Ipv6, Protocol::Udp),
    (Family::Ipv6, Protocol::Tcp),
];

/// Source ports of a sender, so that nine of them have their own.
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 6_000;

/// Addresses of a client beside its own.
const MORE_SOURCES: u8 = 3;
const FIRST_SOURCE: u8 = 201;

/// The third bytes of the node's further addresses, 255 of each.
const NODE_BLOCKS: RangeInclusive<u8> = 0..=4;

/// Servers behind another node.
const OTHER_NODE: [&str; 2] = ["c", "d"];

/// In seconds. With the usual ones a long race fills the conntrack table, and comes to source ports
/// whose flows are still tracked.
const CONNTRACK_TIMEOUTS: [(&str, &str); 2] = [
    ("netfilter/nf_conntrack_udp_timeout", "6"),
    ("netfilter/nf_conntrack_tcp_timeout_close", "2"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn from(server: &str, seen: &str) -> Answer {
        Answer::From { server: server.to_owned(), seen: SocketAddr::new(seen.parse().unwrap(), 1) }
    }

    #[test]
    fn a_server_may_answer_only_in_a_state_that_has_it() {
        let way = Way::new("pod", "10.96.0.10:80", &["a b", "b c", "d"]);
        let check = |server, states| way.check(&from(server, "10.244.1.9"), states).is_ok();
        assert!(check("a", 0..=0) && check("a", 2..=3) && check("c", 0..=1));
        assert!(!check("a", 1..=2) && !check("d", 3..=4) && !check("c", 0..=0));
    }

    #[test]
    fn a_server_between_two_states_may_answer_only_during_a_commit() {
        let way = Way::new("pod", "10.96.0.10:80", &["a", "b"]).or_between(&["c", "d"]);
        let check = |server, states| way.check(&from(server, "10.244.1.9"), states).is_ok();
        assert!(check("a", 0..=0) && check("c", 0..=1) && check("d", 0..=1));
        assert!(!check("c", 0..=0) && !check("d", 1..=1));
    }

    #[test]
    fn a_flow_may_be_refused_only_in_a_state_that_allows_it() {
        let way = Way::new("pod", "10.96.0.10:80", &["a b", "-"]);
        assert!(way.check(&Answer::Refused, 0..=1).is_ok());
        assert!(way.check(&Answer::Refused, 2..=2).is_err());
        assert!(way.check(&Answer::Silent, 0..=0).is_err());
    }

    #[test]
    fn an_endpoint_on_another_node_must_see_the_node_and_not_a_host_outside() {
        let check = |client, seen| {
            Way::new(client, "192.168.50.2:30080", &["c"]).check(&from("c", seen), 0..=0).is_ok()
        };
        assert!(check("outside", "192.168.50.2") && check("outside", "fd00:192:168:50::2"));
        assert!(!check("outside", "192.0.2.10") && check("pod", "10.244.1.9"));
    }
}
