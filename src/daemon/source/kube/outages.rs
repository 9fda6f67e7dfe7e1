//! Joins the failures of the watches, so that the log has one line for each state.
//!
//! ```text
//! (followed) --failure--> new --JOIN--> logged --all of its line again--> (followed)
//!                          |              |
//!                          |              +--fails for another reason--> new
//!                          +--again within JOIN--> (followed), one line for both
//! ```

use std::sync::Arc;
use std::time::Duration;

use engine::model::Resource;
use engine::printable::Printable;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::outlet::{SourceReport, plural};

/// Time in which failures join one line. A server that ends breaks open connections before it
/// refuses new ones, and a watch counts as working a second after it was opened.
const JOIN: Duration = Duration::from_secs(2);

/// The failures of all watches. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Outages {
    shared: Arc<SharedOutages>,
}

#[derive(Debug, Default)]
struct SharedOutages {
    watches: Mutex<FailedWatches>,
    changed: Notify,
}

impl Outages {
    /// Records the failure of a watch, or its end; other reports are ignored.
    pub fn note(&self, report: &SourceReport) {
        match report {
            SourceReport::Trouble { resource: Some(resource), server, error, .. } => {
                let server = server.clone().unwrap_or_default();
                let failure =
                    OutageCause { server, reason: error.reason(), error: error.to_string() };
                self.shared.watches.lock().failed(*resource, failure, Instant::now());
            }
            SourceReport::Recovered { resource, at } => {
                self.shared.watches.lock().recovered(*resource, *at)
            }
            SourceReport::Trouble { resource: None, .. }
            | SourceReport::Object(_)
            | SourceReport::Present(..)
            | SourceReport::Renewed => return,
        }
        self.shared.changed.notify_one();
    }

    /// Logs the lines until the future is dropped.
    pub async fn log(self) {
        loop {
            self.shared.changed.notified().await;
            tokio::time::sleep(JOIN).await;
            let lines = self.shared.watches.lock().take_lines();
            lines.iter().for_each(OutageLine::log);
        }
    }
}

/// Why a watch failed, and the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OutageCause {
    server: Arc<str>,
    reason: &'static str,
    error: String,
}

/// The watches that failed; each stays until its line and the line of its end are logged.
#[derive(Debug, Default)]
struct FailedWatches {
    failed: Vec<Failed>,
    /// Number of lines about failures so far.
    lines: u64,
}

#[derive(Debug)]
struct Failed {
    resource: Resource,
    failure: OutageCause,
    since: Instant,
    /// Number of the line that has it; `None` before that.
    line: Option<u64>,
    /// The time from which on it is followed again.
    over: Option<Instant>,
}

impl FailedWatches {
    fn failed(&mut self, resource: Resource, failure: OutageCause, now: Instant) {
        let Some(known) = self.failed.iter_mut().find(|it| it.resource == resource) else {
            self.failed.push(Failed { resource, failure, since: now, line: None, over: None });
            return;
        };
        known.over = None;
        if known.failure.reason != failure.reason {
            known.line = None;
        }
        known.failure = failure;
    }

    fn recovered(&mut self, resource: Resource, at: Instant) {
        if let Some(known) = self.failed.iter_mut().find(|it| it.resource == resource) {
            known.over = Some(at);
        }
    }

    /// Returns the lines that are due, and forgets the failures that are over.
    fn take_lines(&mut self) -> Vec<OutageLine> {
        let mut lines = Vec::new();
        let ended_before_its_line = |it: &mut Failed| it.line.is_none() && it.over.is_some();
        for group in groups(self.failed.extract_if(.., ended_before_its_line).collect()) {
            lines.push(OutageLine {
                state: OutageState::Interrupted(outage(&group)),
                ..OutageLine::of(&group)
            });
        }
        let has_no_line = |it: &mut Failed| it.line.is_none();
        for mut group in groups(self.failed.extract_if(.., has_no_line).collect()) {
            self.lines += 1;
            lines.push(OutageLine::of(&group));
            group.iter_mut().for_each(|it| it.line = Some(self.lines));
            self.failed.extend(group);
        }
        let failing = self.failed.iter().filter(|it| it.over.is_none());
        let failing: Vec<_> = failing.map(|it| it.line).collect();
        let ended = |it: &mut Failed| !failing.contains(&it.line);
        let mut over: Vec<_> = self.failed.extract_if(.., ended).collect();
        over.sort_by_key(|it| it.line);
        for group in over.chunk_by(|one, next| one.line == next.line) {
            lines.push(OutageLine {
                state: OutageState::Again(outage(group)),
                ..OutageLine::of(group)
            });
        }
        lines
    }
}

/// Returns the time without at least one of the watches.
fn outage(group: &[Failed]) -> Duration {
    let (since, over) = (group.iter().map(|it| it.since), group.iter().filter_map(|it| it.over));
    let (since, over) = (since.min(), over.max());
    over.zip(since).map_or(Duration::ZERO, |(over, since)| over.saturating_duration_since(since))
}

/// Returns the failures by server and reason, in order of the first of each.
fn groups(failures: Vec<Failed>) -> Vec<Vec<Failed>> {
    let mut groups: Vec<Vec<Failed>> = Vec::new();
    for failed in failures {
        let key = |it: &Failed| (it.failure.reason, Arc::clone(&it.failure.server));
        match groups.iter_mut().find(|group| group.first().map(key) == Some(key(&failed))) {
            Some(group) => group.push(failed),
            None => groups.push(vec![failed]),
        }
    }
    groups
}

/// A line of the log, about some of the watches.
#[derive(Debug, PartialEq, Eq)]
struct OutageLine {
    state: OutageState,
    /// Their names, in the order of [`Resource::ALL`].
    watches: String,
    server: Arc<str>,
    /// Why they failed.
    error: String,
}

#[derive(Debug, PartialEq, Eq)]
enum OutageState {
    Lost,
    /// They are followed again after this time.
    Again(Duration),
    /// They failed and are followed again, after this time.
    Interrupted(Duration),
}

impl OutageLine {
    /// Returns a line about the loss of these watches.
    fn of(group: &[Failed]) -> Self {
        let has = |resource: &Resource| group.iter().any(|it| it.resource == *resource);
        let names: Vec<_> = Resource::ALL.into_iter().filter(has).map(plural).collect();
        let first = group.first().map(|it| it.failure.clone());
        let (server, error) = first.map(|it| (it.server, it.error)).unwrap_or_default();
        Self { state: OutageState::Lost, watches: names.join(", "), server, error }
    }

    fn log(&self) {
        let Self { state, watches, server, error } = self;
        let (server, error) = (Printable(server), Printable(error));
        match state {
            OutageState::Lost => tracing::warn!(
                "following {watches} at {server}: {error}; trying again, and the last known objects \
                 stay in use"
            ),
            OutageState::Again(after) => {
                let seconds = after.as_secs_f64();
                tracing::info!("following {watches} at {server} again after {seconds:.1} s");
            }
            OutageState::Interrupted(after) => {
                let ms = after.as_millis();
                tracing::info!("following {watches} at {server} again after {ms} ms: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failure(reason: &'static str) -> OutageCause {
        OutageCause { server: "10.0.0.1:6443".into(), reason, error: format!("it is {reason}") }
    }

    /// The watches and states of the lines that are due.
    fn lines(watches: &mut FailedWatches) -> Vec<(String, OutageState)> {
        watches.take_lines().into_iter().map(|line| (line.watches, line.state)).collect()
    }

    const FOUR: &str = "services, endpointslices.discovery.k8s.io, nodes, \
                        servicecidrs.networking.k8s.io";

    #[test]
    fn watches_that_fail_together_have_a_line_when_they_are_lost_and_one_when_all_are_back() {
        let (mut watches, start) = (FailedWatches::default(), Instant::now());
        for (place, resource) in (0..).zip(Resource::ALL.into_iter().rev()) {
            watches.failed(resource, failure("unreachable"), start + SECOND * place);
        }
        assert_eq!(lines(&mut watches), [(FOUR.to_owned(), OutageState::Lost)]);
        for resource in Resource::ALL {
            // Each retry fails in its own words.
            let other = OutageCause { error: "another text".to_owned(), ..failure("unreachable") };
            watches.failed(resource, other, start + SECOND * 9);
        }
        assert_eq!(lines(&mut watches), []);
        for resource in Resource::ALL.into_iter().skip(1) {
            watches.recovered(resource, start + SECOND * 20);
        }
        assert_eq!(lines(&mut watches), [], "one is missing");
        watches.failed(Resource::Nodes, failure("unreachable"), start + SECOND * 21);
        watches.recovered(Resource::Services, start + SECOND * 25);
        assert_eq!(lines(&mut watches), []);
        watches.recovered(Resource::Nodes, start + SECOND * 30);
        let again = OutageState::Again(SECOND * 30);
        assert_eq!(lines(&mut watches), [(FOUR.to_owned(), again)]);
        assert!(watches.failed.is_empty());
    }

    #[test]
    fn another_reason_has_a_line_of_its_own() {
        let (mut watches, start) = (FailedWatches::default(), Instant::now());
        watches.failed(Resource::Nodes, failure("unreachable"), start);
        watches.failed(Resource::ServiceCidrs, failure("forbidden"), start);
        watches.failed(Resource::Services, failure("unreachable"), start);
        let both = "services, nodes".to_owned();
        let cidrs = "servicecidrs.networking.k8s.io".to_owned();
        let expected = [(both, OutageState::Lost), (cidrs, OutageState::Lost)];
        assert_eq!(lines(&mut watches), expected);
        watches.failed(Resource::Nodes, failure("unauthorized"), start + SECOND);
        watches.recovered(Resource::Services, start + SECOND);
        let (services, nodes) = ("services".to_owned(), "nodes".to_owned());
        let expected = [(nodes.clone(), OutageState::Lost), (services, OutageState::Again(SECOND))];
        assert_eq!(lines(&mut watches), expected);
        watches.recovered(Resource::Nodes, start + SECOND * 3);
        assert_eq!(lines(&mut watches), [(nodes, OutageState::Again(SECOND * 3))]);
    }

    #[test]
    fn a_failure_that_is_over_at_once_has_one_line() {
        let (mut watches, start) = (FailedWatches::default(), Instant::now());
        watches.failed(Resource::Nodes, failure("unreachable"), start);
        watches.recovered(Resource::Nodes, start + SECOND / 10);
        let interrupted = ("nodes".to_owned(), OutageState::Interrupted(SECOND / 10));
        assert_eq!(lines(&mut watches), [interrupted]);
        assert_eq!(lines(&mut watches), []);
        watches.recovered(Resource::Services, start);
        assert_eq!(lines(&mut watches), [], "it did not fail");
    }
}
