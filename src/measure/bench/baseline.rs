//! Baseline: the layout of kube-proxy 1.36, written by the program `nft`.
//!
//! The table is in a second network namespace, where `nft` makes the same changes and the same
//! flows are sent. Hooks belong to a namespace, so no packet passes both tables. Other work of
//! kube-proxy's sync is left out, above all listing the table.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ahash::HashMap;
use hdrhistogram::Histogram;

use super::change::{ChangeKind, ClusterChange, Deed};
use super::cluster::{Cluster, State};
use super::error::BenchError;
use super::kube_proxy::{self, FIXED};
use super::loopback;
use super::namespace::Beside;
use super::traffic::Flows;
use crate::figures::{Progress, Row, histogram, now, record, timed};

/// A network namespace with the layout of kube-proxy.
#[derive(Debug)]
pub(super) struct Baseline {
    namespace: Beside,
    program: &'static str,
}

/// Paths of the program: `sbin` is often absent from the path of users other than root.
const PROGRAMS: [&str; 2] = ["nft", "/usr/sbin/nft"];

/// Error of `nft` where it may not enlarge its send buffer, as in a user namespace.
const TOO_LONG: &str = "Message too long";

/// Services that fit into a send buffer of the default size.
const PART: u32 = 100;

/// Interval of checks of a running `nft` for a requested stop.
const LOOK: Duration = Duration::from_millis(20);

impl Baseline {
    /// Creates an empty namespace, and finds the program.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn new() -> Result<Self, BenchError> {
        let works = |program: &&&str| {
            // Its input would be that of this process, which shows whether the first one lives.
            let mut version = Command::new(program);
            version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
            let version = version.status();
            version.is_ok_and(|status| status.success())
        };
        let program = PROGRAMS.iter().find(works);
        let program = program.ok_or(BenchError::NoNft)?;
        Ok(Self { namespace: Beside::new()?, program })
    }

    /// Loads every service. Returns the duration of `nft`, or `None` after a requested stop.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn load(
        &self,
        cluster: &Cluster,
        progress: &Progress,
    ) -> Result<Option<Duration>, BenchError> {
        let services = cluster.services();
        let whole = self
            .load_part(&format!("{FIXED}{}", kube_proxy::whole(cluster, 0..services)), progress);
        match whole {
            Err(BenchError::Nft(words)) if words.contains(TOO_LONG) => {
                self.load_in_parts(cluster, progress)
            }
            done => done,
        }
    }

    /// Likewise, where the kernel does not allow `nft` so large a send buffer.
    fn load_in_parts(
        &self,
        cluster: &Cluster,
        progress: &Progress,
    ) -> Result<Option<Duration>, BenchError> {
        let services = cluster.services();
        let Some(mut took) = self.load_part(FIXED, progress)? else { return Ok(None) };
        for first in (0..services).step_by(PART as usize) {
            let part = kube_proxy::whole(cluster, first..services.min(first + PART));
            let Some(more) = self.load_part(&part, progress)? else { return Ok(None) };
            took += more;
        }
        Ok(Some(took))
    }

    fn load_part(&self, script: &str, progress: &Progress) -> Result<Option<Duration>, BenchError> {
        self.namespace.run(|| wait(self.start(script)?, progress))?
    }

    /// Runs a script that changes the table. Returns the duration of `nft`.
    fn change(&self, script: &str) -> Result<Duration, BenchError> {
        let (done, took) = self.namespace.run(|| timed(|| finish(self.start(script)?)))?;
        done.map(|()| took)
    }

    /// Opens sockets whose flows pass this table, on any thread.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn flows(&self) -> Result<Flows, BenchError> {
        let opened = self.namespace.run(|| loopback::prepare().and_then(|()| Flows::open()))?;
        opened.map_err(BenchError::Traffic)
    }

    /// Starts `nft` in the namespace of this thread, and writes the script to it.
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
            // If `nft` ended early, its own message gives the reason.
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

/// Waits for the end; the error has the message of `nft`.
fn finish(started: Started) -> Result<(), BenchError> {
    let output = started.child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(BenchError::Nft(words.lines().next().unwrap_or("without a word").to_owned()))
}

/// Waits for the end, or kills `nft` after a requested stop.
fn wait(mut started: Started, progress: &Progress) -> Result<Option<Duration>, BenchError> {
    while started.child.try_wait().map_err(|error| failed(&error))?.is_none() {
        if progress.is_stopped() {
            // Both calls fail only if the process has ended already.
            let _ = started.child.kill();
            let _ = started.child.wait();
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
    let took = started.began.elapsed();
    finish(started).map(|()| Some(took))
}

/// Changes of kube-proxy's layout, interleaved with ours.
pub(super) struct Turns<'a> {
    baseline: &'a Baseline,
    /// One of this many endpoint changes, the most frequent kind, is made.
    every: u32,
    seen: u32,
    spent: Duration,
    /// Services that differ from their initial state in this table; `None` if deleted.
    changed: HashMap<u32, Option<State>>,
    samples: BTreeMap<ChangeKind, Histogram<u64>>,
}

/// Most changes of an endpoint by `nft`.
const MOST: u32 = 100;

/// Time after which no more changes are made.
const LIMIT: Duration = Duration::from_secs(60);

impl<'a> Turns<'a> {
    pub(super) fn new(baseline: &'a Baseline, changes: u32) -> Self {
        Self {
            baseline,
            every: changes.div_ceil(MOST),
            seen: 0,
            spent: Duration::ZERO,
            changed: HashMap::default(),
            samples: BTreeMap::new(),
        }
    }

    /// Updates the service to its state in the cluster, if this change is selected.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn change(
        &mut self,
        cluster: &mut Cluster,
        change: &ClusterChange,
    ) -> Result<(), BenchError> {
        let kind = change.deed.kind();
        self.seen += u32::from(kind == ChangeKind::Endpoint);
        let is_left_out = kind == ChangeKind::Endpoint && !self.seen.is_multiple_of(self.every);
        if is_left_out || self.spent > LIMIT {
            return Ok(());
        }
        let service = change.service;
        let after = (change.deed != Deed::RemoveService).then(|| cluster.state(service).clone());
        let before = self.changed.remove(&service).unwrap_or_else(|| {
            (service < cluster.services()).then(|| kube_proxy::original(cluster, service))
        });
        let script = kube_proxy::change(service, before.as_ref(), after.as_ref());
        self.changed.insert(service, after);
        let took = self.baseline.change(&script)?;
        self.spent += took;
        record(self.samples.entry(kind).or_insert_with(histogram), took);
        Ok(())
    }

    /// Returns the rows about the durations of changes.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.samples.iter().filter_map(|(kind, samples)| {
            Row::spread(format!("{}: kube-proxy's layout by nft", kind.name()), samples)
        })
    }
}
