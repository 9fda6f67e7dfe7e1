//! Scheduler `lc`: requests counts of live connections at intervals, and adjusts weights to them.

use std::time::{Duration, Instant};

use conntrack::ConntrackError;
use engine::model::{Cluster, LiveConnections};
use tokio::sync::mpsc;

use super::wait::now;
use crate::conntrack::Count;

/// The channels to the thread that counts connections. Never blocks the loop.
pub struct Balancing {
    requests: Box<dyn Fn(LiveConnections) + Send>,
    counts: mpsc::Receiver<Result<Count, ConntrackError>>,
    interval: Duration,
    /// Time of the next request; `None` during a count.
    due: Option<Instant>,
}

impl Balancing {
    /// Returns an instance that sends a request to `requests` once per `interval` and receives the
    /// counts from `counts`.
    pub fn new(
        interval: Duration,
        requests: impl Fn(LiveConnections) + Send + 'static,
        counts: mpsc::Receiver<Result<Count, ConntrackError>>,
    ) -> Self {
        Self { requests: Box::new(requests), counts, interval, due: Some(now()) }
    }

    /// Requests a count for the services whose turn it is, if there are any.
    pub(super) fn request(&mut self, cluster: &Cluster, now: Instant) {
        if cluster.has_balanced_services() {
            self.due = None;
            (self.requests)(cluster.to_be_balanced());
        } else {
            self.note_count(now);
        }
    }

    /// Postpones the next request by the interval.
    pub(super) fn note_count(&mut self, now: Instant) {
        self.due = Some(now + self.interval);
    }
}

/// Returns when the next count is due.
pub(super) fn due(balancing: Option<&Balancing>) -> Option<Instant> {
    balancing.and_then(|balancing| balancing.due)
}

/// Waits for a count; returns `None` without scheduler `lc`.
pub(super) async fn counted(
    balancing: &mut Option<Balancing>,
) -> Option<Result<Count, ConntrackError>> {
    balancing.as_mut()?.counts.recv().await
}
