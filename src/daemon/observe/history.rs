//! The history of commits: what changed, when and why. In memory alone.
//!
//! It has a limit of commits and one of bytes; the oldest commits are dropped.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::SystemTime;

use engine::model::ObjectName;
use engine::printable::Printable;
use jiff::Timestamp;
use nft::family::Family;
use serde_json::{Value, json};
use smallvec::SmallVec;

use super::causes::Causes;
use super::commit_metrics::Transaction;
use super::times::since_1970_ms;

/// Most commits that are kept.
const COMMITS: usize = 4_096;

/// Most bytes of the commits that are kept, with the names of their services.
const BYTES: usize = 1 << 20;

/// The latest commits.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// Newest last.
    commits: VecDeque<Commit>,
    /// Bytes of `commits`.
    bytes: usize,
    /// Number of commits that were dropped.
    dropped: u64,
}

#[derive(Clone, Debug)]
struct Commit {
    at: SystemTime,
    family: Option<Family>,
    causes: Causes,
    resource_version: Option<NonZeroU64>,
    services: u32,
    names: SmallVec<[ObjectName; 4]>,
    added: u32,
    removed: u32,
    bytes: u32,
    took_us: u32,
}

impl Default for History {
    /// Takes its memory at once, so that a commit does not wait until it is moved. The system gives
    /// the pages when they are written.
    fn default() -> Self {
        Self { commits: VecDeque::with_capacity(COMMITS + 1), bytes: 0, dropped: 0 }
    }
}

impl History {
    /// Adds a transaction that was applied at `at`.
    pub(super) fn add(&mut self, transaction: &Transaction<'_>, at: SystemTime) {
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let commit = Commit {
            at,
            family: transaction.family,
            causes: transaction.causes,
            resource_version: transaction.resource_version,
            services: small(transaction.services),
            names: transaction.names.into(),
            added: small(transaction.added),
            removed: small(transaction.removed),
            bytes: small(transaction.bytes),
            took_us: u32::try_from(transaction.took.as_micros()).unwrap_or(u32::MAX),
        };
        self.bytes += commit.size();
        self.commits.push_back(commit);
        while self.commits.len() > COMMITS || self.bytes > BYTES {
            let Some(oldest) = self.commits.pop_front() else { break };
            self.bytes -= oldest.size();
            self.dropped += 1;
        }
    }

    /// Returns the newest commits, newest first.
    pub(super) fn newest(&self, most: usize) -> Vec<Value> {
        self.commits.iter().rev().take(most).map(Commit::document).collect()
    }

    /// Returns all commits as a document, newest first.
    pub(super) fn document(&self, started: SystemTime, now: SystemTime) -> Value {
        json!({
            "started_ms": since_1970_ms(started),
            "now_ms": since_1970_ms(now),
            "dropped": self.dropped,
            "commits": self.newest(usize::MAX),
        })
    }
}

impl Commit {
    /// Returns the bytes that it takes, at most: names may be shared.
    fn size(&self) -> usize {
        let spilled = if self.names.spilled() { size_of_val(&*self.names) } else { 0 };
        let names = self.names.iter().map(|name| name.as_str().len());
        size_of::<Self>() + spilled + names.sum::<usize>()
    }

    fn document(&self) -> Value {
        let names = self.names.iter().map(|name| Printable(name).to_string());
        json!({
            "at": format!("{:.3}", Timestamp::try_from(self.at).unwrap_or_default()),
            "at_ms": since_1970_ms(self.at),
            "family": self.family.map(Family::name),
            "causes": self.causes.names().collect::<Value>(),
            "resource_version": self.resource_version.map(|it| it.to_string()),
            "services": self.services,
            "names": names.collect::<Value>(),
            "added": self.added,
            "removed": self.removed,
            "bytes": self.bytes,
            "took_us": self.took_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::causes::Cause;
    use super::*;

    fn history(commits: usize, name: &str) -> History {
        let (names, mut causes) = ([ObjectName::written(name)], Causes::default());
        causes.add(Cause::Check);
        causes.add(Cause::Event);
        let mut history = History::default();
        for added in 0..commits {
            let transaction = Transaction {
                added,
                causes,
                names: &names,
                services: 3,
                resource_version: NonZeroU64::new(71),
                took: Duration::from_micros(7),
                ..Transaction::default()
            };
            history.add(&transaction, SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
        }
        history
    }

    #[test]
    fn the_oldest_commits_are_dropped_above_the_limit_of_commits() {
        let history = history(COMMITS + 3, "default/web");
        let document = history.document(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
        let commits = document["commits"].as_array().unwrap();
        assert_eq!((commits.len(), &document["dropped"]), (COMMITS, &json!(3)));
        let added = |place: usize| &commits[place]["added"];
        assert_eq!((added(0), added(COMMITS - 1)), (&json!(COMMITS + 2), &json!(3)));
    }

    #[test]
    fn long_names_leave_fewer_commits() {
        let history = history(COMMITS, &"n".repeat(1 << 12));
        assert!(history.bytes <= BYTES, "{}", history.bytes);
        assert!((200..257).contains(&history.commits.len()), "{}", history.commits.len());
        let sizes = history.commits.iter().map(Commit::size);
        assert_eq!(history.bytes, sizes.sum::<usize>());
    }

    #[test]
    fn a_commit_has_its_time_causes_services_and_version() {
        let expected = json!({
            "at": "1970-01-01T00:00:01.500Z",
            "at_ms": 1500,
            "family": null,
            "causes": ["event", "check"],
            "resource_version": "71",
            "services": 3,
            "names": ["default/web\\n"],
            "added": 0,
            "removed": 0,
            "bytes": 0,
            "took_us": 7,
        });
        assert_eq!(history(1, "default/web\n").newest(9), [expected]);
    }
}
