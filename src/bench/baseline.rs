//! What kube-proxy 1.36 does, for comparison: its layout, written by the program `nft`.
//!
//! Every service port has a chain of its own, whose rule has an anonymous map of all its endpoints;
//! a verdict map leads to the chains. A change of an endpoint writes the whole rule anew. What
//! kube-proxy does besides in a sync, above all listing the table, is left out.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::BenchError;
use super::change::{Change, ChangeKind};
use super::clock::{now, timed};
use super::cluster::Cluster;
use super::loopback;
use super::namespace::Beside;
use super::progress::Progress;
use super::random::Random;
use super::report::Row;
use super::spreads::{histogram, record};
use super::traffic::{Flows, Sent};

/// A network namespace with the layout of kube-proxy.
#[derive(Debug)]
pub(super) struct Baseline {
    namespace: Beside,
    program: &'static str,
}

/// Where the program is: users that are not root often lack `sbin` in their path.
const PROGRAMS: [&str; 2] = ["nft", "/usr/sbin/nft"];

/// The chains, sets and rules that are there whatever services there are.
const FIXED: &str = "
table ip kube-proxy {
    comment \"rules for kube-proxy\"
    set cluster-ips { type ipv4_addr; }
    set hairpin-connections { type ipv4_addr . ipv4_addr . inet_proto . inet_service; }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }
    map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    chain reject-chain { reject; }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
        fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
    }
    chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain nodeport-endpoints-check {
        ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
    chain masquerading {
        mark and 0x004000 != 0 mark set mark xor 0x004000 masquerade fully-random
        ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections \\
            masquerade fully-random
    }
    chain cluster-ips-check { ip daddr @cluster-ips reject; }
    chain filter-prerouting-pre-dnat {
        type filter hook prerouting priority -110; ct state new jump firewall-check;
    }
    chain filter-output-pre-dnat {
        type filter hook output priority -110; ct state new jump firewall-check;
    }
    chain filter-input {
        type filter hook input priority 0
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-forward {
        type filter hook forward priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-output {
        type filter hook output priority 0
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
";

/// What `nft` says where it may not make its send buffer large enough, as in a user namespace.
const TOO_LONG: &str = "Message too long";

/// Services that fit into a send buffer as it is by default.
const PART: u32 = 100;

/// How often a running `nft` is looked at, to see whether somebody wants the end.
const LOOK: Duration = Duration::from_millis(20);

impl Baseline {
    /// An empty namespace, and the program found.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn new() -> Result<Self, BenchError> {
        let works = |program: &&&str| {
            let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            version.is_ok_and(|status| status.success())
        };
        let program = PROGRAMS.iter().find(works);
        let program = program.ok_or(BenchError::NoNft)?;
        Ok(Self { namespace: Beside::new()?, program })
    }

    /// Loads every service; how long `nft` took, `None` if somebody wanted the end.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn load(
        &self,
        cluster: &Cluster,
        progress: &Progress,
    ) -> Result<Option<Duration>, BenchError> {
        let services = cluster.services();
        let whole = self.load_part(&format!("{FIXED}{}", script(cluster, 0..services)), progress);
        match whole {
            Err(BenchError::Nft(words)) if words.contains(TOO_LONG) => {
                self.load_in_parts(cluster, progress)
            }
            done => done,
        }
    }

    /// The same where the kernel does not let `nft` send so much at once.
    fn load_in_parts(
        &self,
        cluster: &Cluster,
        progress: &Progress,
    ) -> Result<Option<Duration>, BenchError> {
        let services = cluster.services();
        let Some(mut took) = self.load_part(FIXED, progress)? else { return Ok(None) };
        for first in (0..services).step_by(PART as usize) {
            let part = script(cluster, first..services.min(first + PART));
            let Some(more) = self.load_part(&part, progress)? else { return Ok(None) };
            took += more;
        }
        Ok(Some(took))
    }

    fn load_part(&self, script: &str, progress: &Progress) -> Result<Option<Duration>, BenchError> {
        self.namespace.run(|| wait(self.start(script)?, progress))?
    }

    /// Writes the rule of a service anew; how long `nft` took.
    ///
    /// # Errors
    /// See [`BenchError`].
    fn change(&self, service: u32, endpoints: &[u32]) -> Result<Duration, BenchError> {
        let name = chain_name(service);
        let mut script = format!("flush chain ip kube-proxy {name}\n");
        write_rule(&mut script, service, endpoints);
        let (done, took) = self.namespace.run(|| timed(|| finish(self.start(&script)?)))?;
        done.map(|()| took)
    }

    /// First packets without a service and through services, in this namespace.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn flows(
        &self,
        cluster: &Cluster,
        random: &mut Random,
    ) -> Result<[Sent; 2], BenchError> {
        let flows = self.namespace.run(|| {
            loopback::prepare()?;
            Ok(Flows::open()?.compare(cluster, random))
        })?;
        flows.map_err(BenchError::Traffic)
    }

    /// Starts `nft` in the namespace of this thread with all of the script.
    fn start(&self, script: &str) -> Result<Started, BenchError> {
        let began = now();
        let mut child = Command::new(self.program)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        if let Some(mut input) = child.stdin.take() {
            // If it ended early, its own words say why.
            let _ = input.write_all(script.as_bytes());
        }
        Ok(Started { child, began })
    }
}

/// A running `nft`.
struct Started {
    child: Child,
    began: Instant,
}

fn failed(error: &io::Error) -> BenchError {
    BenchError::Nft(error.to_string())
}

/// Waits for the end; what it said if it failed.
fn finish(started: Started) -> Result<(), BenchError> {
    let output = started.child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(BenchError::Nft(words.lines().next().unwrap_or("without a word").to_owned()))
}

/// Waits for the end, or ends it when somebody wants that.
fn wait(mut started: Started, progress: &Progress) -> Result<Option<Duration>, BenchError> {
    while started.child.try_wait().map_err(|error| failed(&error))?.is_none() {
        if progress.is_stopped() {
            // Both fail only if it has ended meanwhile.
            let _ = started.child.kill();
            let _ = started.child.wait();
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
    let took = started.began.elapsed();
    finish(started).map(|()| Some(took))
}

/// Changes of kube-proxy's layout, made in turn with ours.
pub(super) struct Turns<'a> {
    baseline: &'a Baseline,
    every: u32,
    seen: u32,
    spent: Duration,
    samples: Histogram<u64>,
}

/// So many changes are made with `nft` at most.
const MOST: u32 = 100;

/// No more changes are made once they have taken so long.
const LIMIT: Duration = Duration::from_secs(60);

impl<'a> Turns<'a> {
    pub(super) fn new(baseline: &'a Baseline, changes: u32) -> Self {
        let every = changes.div_ceil(MOST);
        Self { baseline, every, seen: 0, spent: Duration::ZERO, samples: histogram() }
    }

    /// Makes the same change, if it is one of an endpoint and its turn.
    pub(super) fn change(
        &mut self,
        cluster: &mut Cluster,
        change: &Change,
    ) -> Result<(), BenchError> {
        let endpoints = &cluster.state(change.service).endpoints;
        if change.deed.kind() != ChangeKind::Endpoint || endpoints.is_empty() || self.spent > LIMIT
        {
            return Ok(());
        }
        self.seen += 1;
        if self.seen.is_multiple_of(self.every) {
            let took = self.baseline.change(change.service, endpoints)?;
            self.spent += took;
            record(&mut self.samples, took);
        }
        Ok(())
    }

    /// What the changes took.
    pub(super) fn row(&self) -> Option<Row> {
        Row::spread("endpoint change: kube-proxy's layout by nft", &self.samples)
    }
}

/// Some services, as a script.
fn script(cluster: &Cluster, services: Range<u32>) -> String {
    let mut script = "table ip kube-proxy {\n".to_owned();
    for service in services.clone() {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(script, "chain {} {{ }}", chain_name(service));
    }
    script.push_str("}\n");
    for service in services {
        let endpoints: Vec<u32> = cluster.original(service).collect();
        write_rule(&mut script, service, &endpoints);
        let (address, protocol) = (Cluster::cluster_ip(service), protocol(service));
        let _ = writeln!(script, "add element ip kube-proxy cluster-ips {{ {address} }}");
        let _ = writeln!(
            script,
            "add element ip kube-proxy service-ips {{ {address} . {protocol} . 80 : goto {} }}",
            chain_name(service)
        );
    }
    script
}

fn write_rule(script: &mut String, service: u32, endpoints: &[u32]) {
    let count = endpoints.len();
    let _ = write!(
        script,
        "add rule ip kube-proxy {} meta l4proto {} dnat ip addr . port to numgen random mod \
         {count} map {{ ",
        chain_name(service),
        protocol(service)
    );
    for (slot, endpoint) in endpoints.iter().enumerate() {
        let separator = if slot > 0 { ", " } else { "" };
        let address = Cluster::endpoint_address(*endpoint);
        let _ = write!(script, "{separator}{slot} : {address} . 8080");
    }
    script.push_str(" }\n");
}

/// As kube-proxy names it: a hash, and the service port in words.
fn chain_name(service: u32) -> String {
    let (namespace, protocol) = (service % 100, protocol(service));
    format!("service-{service:08X}-bench-{namespace}/service-{service}/{protocol}/http")
}

fn protocol(service: u32) -> &'static str {
    if Cluster::takes_traffic(service) { "udp" } else { "tcp" }
}
