//! Rows about the run loop of the daemon: end to end, bursts, and delays of small changes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ahash::HashMap;
use engine::model::{Event, Resource};
use hdrhistogram::Histogram;

use super::baseline::Baseline;
use super::change::ChangeKind;
use super::cluster::{Cluster, ZONES};
use super::daemon::{Commit, Daemon, FIRST_COMMIT};
use super::error::BenchError;
use super::loopback;
use super::pace::Pace;
use super::pipeline::received;
use super::random::Random;
use super::size::{Bench, milliseconds};
use super::traffic::{Background, Flows, compare};
use super::watch_frame::WatchFrame;
use crate::figures::{Row, histogram, now, record};

/// Most slices in a burst; fewer in a smaller cluster.
const BURST: u32 = 5_000;

/// Objects in one batch of a watch.
const BATCH: usize = 512;

/// Rate of small changes during a large one, per second.
const SMALL_RATE: u32 = 200;

/// Time limit of a small change; beyond it a large change is assumed to hang.
const LOST: Duration = Duration::from_secs(20);

/// Longest time until a requested stop is noticed.
const STOP: Duration = Duration::from_millis(100);

/// Rows about packets: in our namespace, and in that of kube-proxy's layout.
const UDP: [&str; 4] = [
    "UDP without a service",
    "UDP through services",
    "UDP without a service, kube-proxy's layout",
    "UDP through kube-proxy's layout",
];

impl Bench<'_> {
    /// Measures everything that needs the run loop, and the same packets through kube-proxy's
    /// layout.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn live(&mut self, baseline: Option<Baseline>) -> Result<(), BenchError> {
        if self.progress.is_stopped() {
            return Ok(());
        }
        let mut daemon = self.start_daemon()?;
        let traffic = self.start_traffic(baseline.as_ref())?;
        // The following measurements are of ours only.
        drop(baseline);
        self.end_to_end(&mut daemon)?;
        self.burst(&mut daemon)?;
        self.zone_change(&mut daemon)?;
        if let Some(traffic) = traffic {
            let rows = traffic.end().rows("UDP through services while they change");
            self.report.rows.extend(rows);
        }
        daemon.end();
        Ok(())
    }

    /// Measures packets without changes, and then continues to send some.
    fn start_traffic(
        &mut self,
        baseline: Option<&Baseline>,
    ) -> Result<Option<Background>, BenchError> {
        if !self.settings.traffic {
            return Ok(None);
        }
        self.progress.begin("first packets of UDP flows", 1);
        loopback::prepare().map_err(BenchError::Traffic)?;
        let mut places = vec![Flows::open().map_err(BenchError::Traffic)?];
        places.extend(baseline.map(Baseline::flows).transpose()?);
        let mut random = Random::new(self.settings.seed);
        let sent = compare(&mut places, &self.cluster, &mut random);
        for (sent, name) in sent.iter().flatten().zip(UDP) {
            self.report.rows.extend(sent.rows(name));
        }
        self.progress.step(1);
        let ours = places.swap_remove(0);
        Ok(Some(Background::start(ours, self.cluster.clone(), random)))
    }

    /// Loads all objects into the loop, and waits until a change passes through it.
    fn start_daemon(&mut self) -> Result<Daemon, BenchError> {
        let mut daemon = Daemon::start()?;
        daemon.pass_on(Resource::ALL.map(Event::Relist).into())?;
        daemon.pass_on(vec![Cluster::service_cidr()])?;
        for frames in self.objects("the run loop starts") {
            daemon.send(&frames)?;
        }
        daemon.pass_on(Resource::ALL.map(Event::Listed).into())?;
        // Unused elements of the stages before are removed, so there is a commit.
        daemon.wait_until_ready(self.progress)?;
        Ok(daemon)
    }

    /// Makes changes one by one, each after the commit of the one before.
    fn end_to_end(&mut self, daemon: &mut Daemon) -> Result<(), BenchError> {
        self.progress.begin("end to end, through the run loop", self.settings.changes.into());
        let mut spreads: BTreeMap<ChangeKind, Histogram<u64>> = BTreeMap::new();
        let mut pace = Pace::new(self.settings.rate);
        for _ in 0..self.settings.changes {
            if self.progress.is_stopped() {
                break;
            }
            let change = self.changes.next(&mut self.cluster);
            pace.wait();
            if let Some(took) = daemon.change(&change.frames)? {
                record(spreads.entry(change.deed.kind()).or_insert_with(histogram), took);
            }
            self.progress.step(1);
        }
        for (kind, samples) in &spreads {
            let name = format!("{}: end to end", kind.name());
            self.report.rows.extend(Row::spread(name, samples));
        }
        Ok(())
    }

    /// Changes thousands of slices at once.
    fn burst(&mut self, daemon: &mut Daemon) -> Result<(), BenchError> {
        let size = BURST.min(self.cluster.services());
        self.progress.begin("many slices at once", size.into());
        // Successive services, from a random one on.
        let first = self.changes.any_service(&self.cluster);
        let mut frames: Vec<WatchFrame> = Vec::new();
        for number in 0..size {
            let service = (first + number) % self.cluster.services();
            frames.extend(self.changes.endpoint_of(&mut self.cluster, service).frames);
        }
        if self.progress.is_stopped() {
            return Ok(());
        }
        daemon.forget_commits();
        let mut batches: Vec<_> = frames.chunks(BATCH).map(received).collect();
        let start = now();
        for batch in &mut batches {
            self.progress.step(batch.len() as u64);
            daemon.receive(std::mem::take(batch))?;
        }
        self.report.rows.push(Row::count("slices at once", size as usize));
        self.settle(daemon, "slices at once", start).map(drop)
    }

    /// Waits for the commits of a large change that began at `start`. Returns their duration.
    fn settle(
        &mut self,
        daemon: &mut Daemon,
        name: &str,
        start: Instant,
    ) -> Result<Duration, BenchError> {
        let (transactions, last) = daemon.settle(FIRST_COMMIT)?;
        let took = last.map_or(Duration::ZERO, |last| last - start);
        self.report.rows.push(milliseconds(&format!("{name}: committed"), took));
        self.report.rows.push(Row::count(format!("{name}: transactions"), transactions));
        Ok(took)
    }

    /// Moves the node to a zone, which touches every service, and back, while services change.
    fn zone_change(&mut self, daemon: &mut Daemon) -> Result<(), BenchError> {
        if self.progress.is_stopped() {
            return Ok(());
        }
        self.progress.begin("the node changes its zone", 2);
        daemon.forget_commits();
        let frame = self.cluster.node(Some(ZONES[0]));
        let start = now();
        daemon.send(&[frame])?;
        let took = self.settle(daemon, "zone change", start)?;
        self.progress.step(1);
        if self.progress.is_stopped() {
            return Ok(());
        }
        let frame = self.cluster.node(None);
        daemon.send(&[frame])?;
        let waits = self.small_changes(daemon, now() + took)?;
        self.report.rows.extend(Row::spread("zone change: small changes wait", &waits));
        Ok(())
    }

    /// Makes small changes until `end`, and measures the time of each to its commit.
    fn small_changes(
        &mut self,
        daemon: &mut Daemon,
        end: Instant,
    ) -> Result<Histogram<u64>, BenchError> {
        let mut waits = Waits { sent: HashMap::default(), took: histogram() };
        let mut pace = Pace::new(SMALL_RATE);
        let next = self.cluster.new_endpoint();
        daemon.report_from(Cluster::endpoint_address(next));
        // At least one, however short the large change is. Each service once: an endpoint that is
        // replaced before its commit never gets one.
        for service in 0..self.cluster.services() {
            let (change, endpoint) = self.changes.replace_in_first_zone(&mut self.cluster, service);
            waits.sent.insert(Cluster::endpoint_address(endpoint), now());
            daemon.send(&change.frames)?;
            while let Some(commit) = daemon.next_commit(Duration::ZERO)? {
                waits.note(&commit);
            }
            if now() >= end {
                break;
            }
            pace.wait();
        }
        let give_up = now() + LOST;
        while !waits.sent.is_empty() && now() < give_up && !self.progress.is_stopped() {
            if let Some(commit) = daemon.next_commit(STOP)? {
                waits.note(&commit);
            }
        }
        Ok(waits.took)
    }
}

/// Small changes without a commit yet, by the endpoint that they add.
struct Waits {
    sent: HashMap<Ipv4Addr, Instant>,
    took: Histogram<u64>,
}

impl Waits {
    fn note(&mut self, commit: &Commit) {
        for address in &commit.added {
            if let Some(sent) = self.sent.remove(address) {
                record(&mut self.took, commit.ended - sent);
            }
        }
    }
}
