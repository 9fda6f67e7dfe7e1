//! Metrics of scheduler `lc`.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::buckets;
use super::histogram::Histogram;
use super::names::{Names, metrics};

metrics! {
    /// Metrics of scheduler `lc`.
    pub struct LeastConnections(names: &mut Names<'_>) {
        failures: Counter = names.add("least_connections_failures",
            "Counts of live connections for scheduler lc that failed");
        services: Counter = names.add("least_connections_services",
            "Services whose weights scheduler lc compared with their live connections");
        slots: Counter = names.add("least_connections_changed_slots",
            "Slots of endpoint lists that scheduler lc changed");
        counts: Histogram = names.register("least_connections_count_duration_seconds",
            "Time that counting live connections for scheduler lc took",
            Histogram::new(buckets::fine()));
        connections: Gauge = names.add("least_connections_entries",
            "Translated connections that the last count for scheduler lc went through");
    }
}

impl LeastConnections {
    /// Records a count that went through this many translated connections.
    pub fn counted(&self, connections: u64, took: Duration) {
        self.connections.set(i64::try_from(connections).unwrap_or(i64::MAX));
        self.counts.observe(took.as_secs_f64());
    }

    /// Counts a failed count.
    pub fn failed(&self) {
        self.failures.inc();
    }

    /// Counts services that were compared with their connections, and the slots changed for that.
    pub fn adjusted(&self, services: usize, slots: usize) {
        self.services.inc_by(u64::try_from(services).unwrap_or(u64::MAX));
        self.slots.inc_by(u64::try_from(slots).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn counts_and_adjustments_are_added_up() {
        let observe = Observe::new();
        observe.least_connections().counted(7, Duration::from_millis(3));
        observe.least_connections().failed();
        for _ in 0..2 {
            observe.least_connections().adjusted(3, 10);
        }
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
