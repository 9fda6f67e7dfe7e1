//! Scheduler `lc`: requests counts of live connections at intervals, and adjusts weights to them.

use std::time::{Duration, Instant};

use conntrack::ConntrackError;
use engine::model::LiveConnections;
use nft::kernel::Kernel;
use tokio::sync::mpsc;

use super::{Run, now};
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
}

/// Returns when the next count is due.
pub(super) fn due(balancing: Option<&Balancing>) -> Option<Instant> {
    balancing.and_then(|balancing| balancing.due)
}

/// Waits for a count.
pub(super) async fn counted(balancing: &mut Option<Balancing>) -> Result<Count, ConntrackError> {
    if let Some(balancing) = balancing
        && let Some(count) = balancing.counts.recv().await
    {
        return count;
    }
    std::future::pending().await
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Requests a count for the services whose turn it is, if there are any.
    pub(super) fn request_count(&mut self) {
        let Some(balancing) = &mut self.balancing else { return };
        if self.engine.cluster().has_balanced_services() {
            balancing.due = None;
            (balancing.requests)(self.engine.cluster().to_be_balanced());
        } else {
            balancing.due = Some(now() + balancing.interval);
        }
    }

    /// Adjusts weights to the connections that were counted.
    pub(super) fn balance(&mut self, count: Result<Count, ConntrackError>) {
        if let Some(balancing) = &mut self.balancing {
            balancing.due = Some(now() + balancing.interval);
        }
        match count {
            Ok(Count { live, connections, took }) => {
                let adjusted = self.engine.balance(&live);
                self.observe.connections_counted(connections, took);
                self.observe.weights_adjusted(adjusted.services, adjusted.slots);
                tracing::debug!(connections, ?took, ?adjusted, "counted connections");
                // Weights may change although no slot does.
                self.note_change();
            }
            Err(error) => {
                self.observe.connection_count_failed();
                tracing::warn!("cannot count connections for scheduler lc: {error}");
            }
        }
    }
}
