//! The record of recent events, for people: transactions, problems, watches and blocked tables.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::history::History;
use super::problems::{Problems, Shown};
use super::recent::Recent;
use super::times::{now, since_1970_ms};

/// Transactions of the status page.
const TRANSACTIONS: usize = 64;

/// Recent events. Each lock is held for a few instructions.
#[derive(Debug)]
pub(super) struct Record {
    opened: Instant,
    recent: Mutex<Recent>,
    pub(super) history: Mutex<History>,
    pub(super) problems: Mutex<Problems>,
    watches: Mutex<Vec<RecordedWatch>>,
    pub(super) blocked: Mutex<[Option<String>; 2]>,
}

/// The record as documents, and why the table of each family is not written.
pub(super) struct Recorded {
    pub(super) blocked: [Option<String>; 2],
    pub(super) watches: Value,
    /// Resources whose watch is lost, and the time of the first loss.
    pub(super) lost: (Vec<&'static str>, Option<Instant>),
    pub(super) latency: Value,
    pub(super) transactions: Vec<Value>,
    pub(super) problems: Shown,
    /// Why no object of a resource can be used.
    pub(super) unusable: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RecordedWatch {
    resource: &'static str,
    is_connected: bool,
    heard_at: Option<SystemTime>,
    failures: u64,
    /// Reason of the last failure.
    reason: Option<&'static str>,
    /// Time of the first failure since the watch was last connected.
    lost_at: Option<Instant>,
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            opened: now(),
            recent: Mutex::default(),
            history: Mutex::default(),
            problems: Mutex::default(),
            watches: Mutex::default(),
            blocked: Mutex::default(),
        }
    }

    pub(super) fn events_committed(&self, took: Duration) {
        self.recent.lock().events_committed(took, self.opened.elapsed());
    }

    pub(super) fn watch_heard(&self, resource: &'static str, at: SystemTime) {
        self.watch(resource, |watch| {
            watch.is_connected = true;
            watch.lost_at = None;
            watch.heard_at = Some(at);
        });
    }

    pub(super) fn watch_lost(&self, resource: &'static str, reason: &'static str, at: Instant) {
        self.watch(resource, |watch| {
            watch.lost_at.get_or_insert(at);
            watch.is_connected = false;
            watch.failures += 1;
            watch.reason = Some(reason);
        });
    }

    fn watch(&self, resource: &'static str, change: impl FnOnce(&mut RecordedWatch)) {
        let mut watches = self.watches.lock();
        let place = watches.partition_point(|it| it.resource < resource);
        if watches.get(place).is_none_or(|it| it.resource != resource) {
            watches.insert(place, RecordedWatch { resource, ..RecordedWatch::default() });
        }
        change(&mut watches[place]);
    }

    /// Returns the time of the first loss of the watches of `resources` that are lost.
    pub(super) fn lost_since(&self, resources: &[&str]) -> Option<Instant> {
        lost(&self.watches.lock(), |resource| resources.contains(&resource)).1
    }

    /// Returns the parts of the status page that this record has.
    pub(super) fn read(&self) -> Recorded {
        // Copied first, so that no lock is held while the documents are built.
        let (recent, problems) = (self.recent.lock().clone(), self.problems.lock().shown());
        let unusable = self.problems.lock().of_all_objects();
        let (watches, blocked) = (self.watches.lock().clone(), self.blocked.lock().clone());
        Recorded {
            blocked,
            lost: lost(&watches, |_| true),
            watches: watches.iter().map(RecordedWatch::document).collect(),
            latency: recent.latency(self.opened.elapsed()),
            transactions: self.history.lock().newest(TRANSACTIONS),
            problems,
            unusable,
        }
    }
}

/// Returns the chosen resources whose watch is lost, and the time of the first loss.
fn lost(
    watches: &[RecordedWatch],
    is_chosen: impl Fn(&'static str) -> bool,
) -> (Vec<&'static str>, Option<Instant>) {
    let lost = watches.iter().filter(|watch| !watch.is_connected && is_chosen(watch.resource));
    let lost_at = lost.clone().filter_map(|watch| watch.lost_at).min();
    (lost.map(|watch| watch.resource).collect(), lost_at)
}

impl RecordedWatch {
    fn document(&self) -> Value {
        json!({
            "resource": self.resource,
            "connected": self.is_connected,
            "heard_ms": self.heard_at.map(since_1970_ms),
            "failures": self.failures,
            "reason": self.reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_in_one_order_on_every_node() {
        let record = Record::new();
        for resource in ["services", "nodes", "endpointslices"] {
            record.watch_lost(resource, "tls", now());
        }
        assert_eq!(record.read().lost.0, ["endpointslices", "nodes", "services"]);
    }

    #[test]
    fn a_watch_is_lost_from_its_first_failure_until_it_is_heard() {
        let record = Record::new();
        let start = now();
        let at = |seconds| start + Duration::from_secs(seconds);
        record.watch_heard("nodes", SystemTime::UNIX_EPOCH);
        assert_eq!(record.read().lost, (vec![], None));
        record.watch_lost("nodes", "tls", at(5));
        record.watch_lost("nodes", "tls", at(9));
        record.watch_lost("services", "tls", at(7));
        assert_eq!(record.read().lost, (vec!["nodes", "services"], Some(at(5))));
        record.watch_heard("nodes", SystemTime::UNIX_EPOCH);
        assert_eq!(record.read().lost, (vec!["services"], Some(at(7))));
    }
}
