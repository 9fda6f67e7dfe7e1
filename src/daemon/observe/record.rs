//! The record of recent events, for people: transactions, problems, watches and blocked tables.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nft::family::Family;
use serde_json::{Value, json};

use super::commits::Transaction;
use super::history::History;
use super::problems::{LeftOut, Problems};
use super::recent::Recent;
use super::times::{now, since_1970_ms};

/// Transactions of the status page.
const TRANSACTIONS: usize = 64;

/// Recent events. Each lock is held for a few instructions.
#[derive(Debug)]
pub(super) struct Record {
    opened: Instant,
    recent: Mutex<Recent>,
    history: Mutex<History>,
    problems: Mutex<Problems>,
    watches: Mutex<Vec<Watch>>,
    blocked: Mutex<[Option<String>; 2]>,
}

/// The record as documents, and why the table of each family is not written.
pub(super) struct Recorded {
    pub(super) blocked: [Option<String>; 2],
    pub(super) watches: Value,
    pub(super) latency: Value,
    pub(super) transactions: Vec<Value>,
    pub(super) problems: Value,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    resource: &'static str,
    is_connected: bool,
    heard_at: Option<SystemTime>,
    failures: u64,
    /// Reason of the last failure.
    reason: Option<&'static str>,
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

    pub(super) fn committed(&self, transaction: &Transaction<'_>) {
        lock(&self.history).add(transaction, SystemTime::now());
    }

    pub(super) fn events_committed(&self, took: Duration) {
        lock(&self.recent).events_committed(took, self.opened.elapsed());
    }

    pub(super) fn watch_heard(&self, resource: &'static str, at: SystemTime) {
        self.watch(resource, |watch| {
            watch.is_connected = true;
            watch.heard_at = Some(at);
        });
    }

    pub(super) fn watch_lost(&self, resource: &'static str, reason: &'static str) {
        self.watch(resource, |watch| {
            watch.is_connected = false;
            watch.failures += 1;
            watch.reason = Some(reason);
        });
    }

    pub(super) fn left_out(&self, left_out: LeftOut) {
        lock(&self.problems).add(left_out, SystemTime::now());
    }

    pub(super) fn table_blocked(&self, family: Family, reason: Option<&str>) {
        lock(&self.blocked)[family.index()] = reason.map(str::to_owned);
    }

    fn watch(&self, resource: &'static str, change: impl FnOnce(&mut Watch)) {
        let mut watches = lock(&self.watches);
        let place = watches.iter().position(|it| it.resource == resource).unwrap_or_else(|| {
            let (heard_at, reason) = (None, None);
            watches.push(Watch { resource, is_connected: false, heard_at, failures: 0, reason });
            watches.len() - 1
        });
        change(&mut watches[place]);
    }

    /// Returns the history of commits as a document.
    pub(super) fn history(&self, started: SystemTime, now: SystemTime) -> Value {
        // Copied first, so that no lock is held while the document is built.
        let history = lock(&self.history).clone();
        history.document(started, now)
    }

    /// Returns the parts of the status page that this record has.
    pub(super) fn read(&self) -> Recorded {
        // Copied first, so that no lock is held while the documents are built.
        let (recent, problems) = (lock(&self.recent).clone(), lock(&self.problems).clone());
        let (watches, blocked) = (lock(&self.watches).clone(), lock(&self.blocked).clone());
        Recorded {
            blocked,
            watches: watches.iter().map(Watch::document).collect(),
            latency: recent.latency(self.opened.elapsed()),
            transactions: lock(&self.history).newest(TRANSACTIONS),
            problems: problems.document(),
        }
    }
}

impl Watch {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic elsewhere a value may be missing from the record, which does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
