//! A run: objects, warm-up, changes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nft::family::Family;

use super::address::{self, AddressError};
use super::change_times::{ChangeTimes, Times, rows};
use super::commits::Commits;
use super::endpoint::{self, Which};
use super::error::{ProbeError, Unreached};
use super::objects::{PORT, change as patch, slice, slice_path};
use super::report::ProbeReport;
use super::settings::ProbeSettings;
use super::testbed::{Testbed, version};
use super::tries::{Seen, Tries};
use super::watch::Events;
use crate::figures::{Machine, Progress, interval, now};

/// Longest sleep between two checks of a requested stop.
const NAP: Duration = Duration::from_millis(50);

/// Creates the objects and makes the changes. Returns the results before an error or a requested
/// stop, if any. The caller cleans up.
pub fn measure(
    testbed: &Testbed,
    settings: &ProbeSettings,
    progress: &Progress,
) -> (Option<ProbeReport>, Result<(), ProbeError>) {
    let mut run = match Run::prepare(testbed, settings, progress) {
        Ok(Some(run)) => run,
        Ok(None) => return (None, Ok(())),
        Err(error) => return (None, Err(error)),
    };
    let outcome = run.make_changes();
    let outcome = outcome.and_then(|()| run.check_late());
    progress.clear();
    let report = run.report();
    ((!report.changes.is_empty()).then_some(report), outcome)
}

/// A run with its objects in the cluster.
struct Run<'a> {
    testbed: &'a Testbed,
    settings: &'a ProbeSettings,
    progress: &'a Progress,
    /// All times are counted from here.
    base: Instant,
    service: SocketAddr,
    endpoints: [SocketAddr; 2],
    /// The present endpoint of the EndpointSlice.
    current: Which,
    tries: Tries,
    events: Events,
    writers: Writers,
    /// Details about this machine, for errors.
    hint: String,
    changes: Vec<ChangeTimes>,
}

/// The commits that are seen, or why none is, and the programs that made them.
struct Writers {
    commits: Result<Commits, String>,
    committers: Vec<String>,
}

impl Writers {
    /// Forgets commits before a change.
    fn drain(&mut self) {
        if let Ok(commits) = &mut self.commits {
            commits.drain();
        }
    }

    /// Returns the time of the first commit with the endpoint, and notes its program.
    fn committed(&mut self, new: Which, sent: Duration) -> Option<Duration> {
        let commit = self.commits.as_mut().ok()?.first(new, sent)?;
        if !self.committers.contains(&commit.program) {
            self.committers.push(commit.program);
        }
        Some(commit.at)
    }
}

impl<'a> Run<'a> {
    /// Creates the objects and waits until the first endpoint is reached; `None` after a requested
    /// stop.
    fn prepare(
        testbed: &'a Testbed,
        settings: &'a ProbeSettings,
        progress: &'a Progress,
    ) -> Result<Option<Self>, ProbeError> {
        if let Some(address) = settings.address {
            address::check(address)?;
        }
        if progress.is_stopped() {
            return Ok(None);
        }
        progress.begin("the Service and its first endpoint", 1);
        testbed.create_namespace()?;
        let (node, hint) = find_node(testbed)?;
        let wanted = settings.address.map(Family::of);
        let cluster_ip = testbed.create_service(settings.protocol, wanted)?;
        let family = Family::of(cluster_ip);
        let address = match settings.address {
            Some(address) if Family::of(address) != family => {
                return Err(AddressError::Family(address, cluster_ip).into());
            }
            Some(address) => address,
            None => address::find(family, node.as_ref())
                .ok_or_else(|| AddressError::Unknown { node: testbed.node.clone(), family })?,
        };
        let (base, service) = (now(), SocketAddr::new(cluster_ip, PORT));
        let endpoints = endpoint::open(address, settings.protocol, base)?;
        let commits = Commits::follow(endpoints, base).map_err(|error| error.to_string());
        let object = slice(testbed.namespace(), settings.protocol, endpoints[0]);
        let version = testbed.create_slice(&object)?;
        let watched = (testbed.namespace(), version);
        let events = Events::follow(&testbed.runtime, testbed.rest.clone(), watched, base);
        let mut run = Self {
            testbed,
            settings,
            progress,
            base,
            service,
            endpoints,
            current: Which::A,
            tries: Tries::new(service, settings.protocol, base),
            events,
            writers: Writers { commits, committers: Vec::new() },
            hint,
            changes: Vec::new(),
        };
        let seen = run.reach()?;
        Ok((seen.reached.is_some()).then_some(run))
    }

    /// Makes the changes of the warm-up and the measured ones, each when it is due.
    fn make_changes(&mut self) -> Result<(), ProbeError> {
        self.progress.begin("warm-up", self.settings.warm_up.into());
        for _ in 0..self.settings.warm_up {
            if self.change(None)?.is_none() {
                return Ok(());
            }
            self.progress.step(1);
        }
        self.progress.begin("changes", self.settings.changes.into());
        let start = self.base.elapsed();
        for number in 0..self.settings.changes {
            let due = start + interval(self.settings.rate) * number;
            if !self.sleep_until(due) {
                return Ok(());
            }
            let due = (self.settings.rate > 0).then_some(due);
            let Some(change) = self.change(due)? else { return Ok(()) };
            self.changes.push(change);
            self.progress.step(1);
            // The next change requires a known endpoint.
            if self.changes.last().is_some_and(|change| change.reached.is_none())
                && self.reach()?.reached.is_none()
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes and measures one change, which may be overdue; `None` after a requested stop.
    fn change(&mut self, due: Option<Duration>) -> Result<Option<ChangeTimes>, ProbeError> {
        let new = self.current.other();
        let (rest, base) = (self.testbed.rest.clone(), self.base);
        let path = slice_path(self.testbed.namespace());
        let patch = patch(self.settings.protocol, self.endpoints[new.index()].port());
        self.writers.drain();
        let sent = base.elapsed();
        let has_failed = Arc::new(AtomicBool::new(false));
        let failing = Arc::clone(&has_failed);
        let request = self.testbed.runtime.spawn(async move {
            let answer = rest.merge(&path, &patch).await;
            let answered = base.elapsed();
            failing.store(answer.is_err(), Ordering::Relaxed);
            (answer, answered)
        });
        let ends = || self.progress.is_stopped() || has_failed.load(Ordering::Relaxed);
        let seen = self.tries.until(new, self.settings.limit(), ends);
        let answer = self.testbed.runtime.block_on(request);
        let (answer, answered) = answer.map_err(std::io::Error::other)?;
        let (version, seen) = (version(&answer?)?, seen?);
        self.current = new;
        if seen.reached.is_none() && self.progress.is_stopped() {
            return Ok(None);
        }
        let committed = self.writers.committed(new, sent);
        let event = self.events.arrival(&version);
        let due = due.unwrap_or(sent);
        Ok(Some(ChangeTimes::new(&Times { due, sent, answered, event, committed }, &seen)))
    }

    /// Waits until the present endpoint is reached, or for a requested stop.
    fn reach(&mut self) -> Result<Seen, ProbeError> {
        let limit = self.settings.limit();
        let seen = self.tries.until(self.current, limit, || self.progress.is_stopped())?;
        if seen.reached.is_some() || self.progress.is_stopped() {
            return Ok(seen);
        }
        Err(ProbeError::Unreached(Box::new(Unreached {
            protocol: self.settings.protocol,
            service: self.service,
            endpoint: self.endpoints[self.current.index()],
            limit,
            tries: seen.counts.to_string(),
            hint: self.hint.clone(),
        })))
    }

    /// Sleeps. Returns false after a requested stop.
    fn sleep_until(&self, due: Duration) -> bool {
        while !self.progress.is_stopped() {
            match due.checked_sub(self.base.elapsed()) {
                Some(left) if !left.is_zero() => thread::sleep(left.min(NAP)),
                _ => return true,
            }
        }
        false
    }

    fn check_late(&self) -> Result<(), ProbeError> {
        let late = self.changes.iter().filter(|change| change.reached.is_none()).count();
        let (changes, limit) = (self.changes.len(), self.settings.limit());
        if late > 0 { Err(ProbeError::Late { late, changes, limit }) } else { Ok(()) }
    }

    fn report(self) -> ProbeReport {
        ProbeReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::this(),
            node: self.testbed.node.clone(),
            service: self.service,
            endpoints: self.endpoints,
            committers: self.writers.committers,
            commits_unseen: self.writers.commits.err(),
            rows: rows(&self.changes),
            interrupted: self.changes.len() < self.settings.changes as usize,
            changes: self.changes,
            settings: self.settings.clone(),
        }
    }
}

/// Returns this machine's Node object, and a hint for errors if there is none.
fn find_node(testbed: &Testbed) -> Result<(Option<serde_json::Value>, String), ProbeError> {
    match testbed.read_node() {
        Ok(node) => Ok((node, String::new())),
        Err(error) if error.is_not_found() => {
            let name = &testbed.node;
            let hint = format!(
                "; the cluster has no Node {name}: is this machine one of its nodes? \
                 (--hostname-override gives another name)"
            );
            Ok((None, hint))
        }
        Err(error) => Err(error.into()),
    }
}
