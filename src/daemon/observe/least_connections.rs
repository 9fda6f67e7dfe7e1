//! Metrics of scheduler `lc`.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::metrics::Names;
use super::{Observe, buckets};

/// Metrics of scheduler `lc`.
#[derive(Debug)]
pub(super) struct LeastConnections {
    counts: Histogram,
    failures: Counter,
    connections: Gauge,
    services: Counter,
    slots: Counter,
}

impl LeastConnections {
    pub(super) fn register(names: &mut Names<'_>) -> Self {
        let mut counter = |name: &str, help: &str| names.add(name, help, Counter::default());
        Self {
            failures: counter(
                "least_connections_failures",
                "Counts of live connections for scheduler lc that failed",
            ),
            services: counter(
                "least_connections_services",
                "Services whose weights scheduler lc compared with their live connections",
            ),
            slots: counter(
                "least_connections_changed_slots",
                "Slots of endpoint lists that scheduler lc changed",
            ),
            counts: names.add(
                "least_connections_count_duration_seconds",
                "Time that counting live connections for scheduler lc took",
                Histogram::new(buckets::fine()),
            ),
            connections: names.add(
                "least_connections_entries",
                "Translated connections that the last count for scheduler lc went through",
                Gauge::default(),
            ),
        }
    }
}

/// Scheduler `lc`.
impl Observe {
    /// Records a count that went through this many translated connections.
    pub fn connections_counted(&self, connections: u64, took: Duration) {
        let metrics = &self.shared.metrics.least_connections;
        metrics.connections.set(i64::try_from(connections).unwrap_or(i64::MAX));
        metrics.counts.observe(took.as_secs_f64());
    }

    /// Counts a failed count.
    pub fn connection_count_failed(&self) {
        self.shared.metrics.least_connections.failures.inc();
    }

    /// Counts services that were compared with their connections, and the slots changed for that.
    pub fn weights_adjusted(&self, services: usize, slots: usize) {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let metrics = &self.shared.metrics.least_connections;
        metrics.services.inc_by(count(services));
        metrics.slots.inc_by(count(slots));
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;

    #[test]
    fn counts_and_adjustments_are_added_up() {
        let observe = Observe::new();
        observe.connections_counted(7, Duration::from_millis(3));
        observe.connection_count_failed();
        (0..2).for_each(|_| observe.weights_adjusted(3, 10));
        has(
            &observe,
            &[
                "deltaproxy_least_connections_entries 7",
                "deltaproxy_least_connections_count_duration_seconds_count 1",
                "deltaproxy_least_connections_failures_total 1",
                "deltaproxy_least_connections_services_total 6",
                "deltaproxy_least_connections_changed_slots_total 20",
            ],
        );
    }
}
