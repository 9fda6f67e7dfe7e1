//! Metrics of parts of the loop: the desired state, direct return, the background check, and
//! scheduler `lc`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::buckets;
use super::histogram::Histogram;
use super::metric::{Counter, Family, Floating, Gauge, metrics};
use super::times::seconds_since_1970;

metrics! {
    /// Gauges of the services, their slots, and their clients.
    pub struct ServiceGauges {
        pub affinity_clients: Family<1, Gauge> = "deltaproxy_affinity_clients",
            "Client hashes that session affinity has recorded, if the kernel reports them", by ["ip_family"];
        pub affinity_clients_max: Gauge = "deltaproxy_affinity_clients_max",
            "Maximum number of recorded client hashes in each family";
        pub services: Family<1, Gauge> = "deltaproxy_services",
            "Services that are routed, by scheduler", by ["scheduler"];
        pub slots_budget: Gauge = "deltaproxy_slots_budget",
            "Slots that services may use beyond one for each endpoint";
        pub slots_requested: Gauge = "deltaproxy_slots_requested",
            "Slots that services request beyond one for each endpoint";
        pub slots_given: Gauge = "deltaproxy_slots_given",
            "Slots that services get beyond one for each endpoint";
        pub services_reduced: Gauge = "deltaproxy_services_reduced",
            "Services that get fewer slots than they request";
    }
}

metrics! {
    /// Gauges of direct return.
    pub struct DirectMetrics {
        pub connections: Gauge = "deltaproxy_direct_connections",
            "Connections whose node is remembered, if the kernel reports their number";
        services: Gauge = "deltaproxy_direct_services",
            "Services whose external packets nodes hand to each other";
        nodes: Family<1, Gauge> = "deltaproxy_direct_nodes",
            "Other nodes, by whether packets can be handed to them", by ["state"];
    } also {
        by_state: Mutex<Option<BTreeMap<&'static str, usize>>>,
    }
}

metrics! {
    /// Metrics of the background check.
    pub struct CheckMetrics {
        pub services: Counter = "deltaproxy_check_services",
            "Services that the background check compared";
        pub differences: [Counter; Difference::ALL.len()] = "deltaproxy_check_differences",
            "Differences that the background check found, by kind",
            by ("kind", Difference::ALL.map(Difference::name));
        pub repairs: Counter = "deltaproxy_check_repairs",
            "Differences of the background check whose repair was committed";
        last_round: Floating = "deltaproxy_check_last_round_timestamp_seconds",
            "When the background check had last compared everything";
    }
}

metrics! {
    /// Metrics of scheduler `lc`.
    pub struct LeastConnectionsMetrics {
        pub failures: Counter = "deltaproxy_least_connections_failures",
            "Counts of live connections for scheduler lc that failed";
        services: Counter = "deltaproxy_least_connections_services",
            "Services whose weights scheduler lc compared with their live connections";
        slots: Counter = "deltaproxy_least_connections_changed_slots",
            "Slots of endpoint lists that scheduler lc changed";
        counts: Histogram = "deltaproxy_least_connections_count_duration_seconds",
            "Time that counting live connections for scheduler lc took", in buckets::fine();
        connections: Gauge = "deltaproxy_least_connections_entries",
            "Translated connections that the last count for scheduler lc went through";
    }
}

engine::named! {
    /// A kind of difference between the kernel and the desired state.
    pub enum Difference {
        /// An element is missing.
        Missing = "missing",
        /// An element has another value.
        Changed = "changed",
        /// An element is an orphan.
        Orphan = "orphan",
        /// The elements written for a service no longer match its objects.
        Outdated = "outdated",
        /// Chains, rules or sets of a table differ from those written.
        Rules = "rules",
    }
}

impl DirectMetrics {
    /// Sets the number of services, and of other nodes by state.
    pub fn state(&self, services: usize, nodes: &BTreeMap<&'static str, usize>) {
        self.services.set(services);
        self.nodes.clear();
        for (state, count) in nodes {
            self.nodes.with([state]).set(*count);
        }
        // A map is whole after every step of a writer.
        *self.by_state.lock() = Some(nodes.clone());
    }

    /// Returns the content of the status page; `None` without direct return.
    pub(super) fn document(&self) -> Option<Value> {
        let nodes = self.by_state.lock().clone()?;
        let (services, connections) = (self.services.get(), self.connections.get());
        Some(json!({ "services": services, "connections": connections, "nodes": nodes }))
    }
}

impl CheckMetrics {
    /// Counts a completed round: every service was compared once.
    pub fn round_ended(&self) {
        self.last_round.set(seconds_since_1970(SystemTime::now()));
    }
}

impl LeastConnectionsMetrics {
    /// Records a count that went through this many translated connections, the services that were
    /// compared with them, and the slots changed for that.
    pub fn counted(&self, connections: u64, took: Duration, (services, slots): (usize, usize)) {
        self.connections.set(connections);
        self.counts.took(took);
        self.services.add(services);
        self.slots.add(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn differences_are_counted_by_kind_and_are_zero_before_the_first() {
        let observe = Observe::new();
        let check = &observe.metrics().check;
        check.services.add(7);
        check.differences[Difference::Orphan as usize].add(2);
        check.repairs.add(2);
        has(
            &observe,
            &[
                "deltaproxy_check_services_total 7",
                "deltaproxy_check_differences_total{kind=\"orphan\"} 2",
                "deltaproxy_check_differences_total{kind=\"missing\"} 0",
                "deltaproxy_check_repairs_total 2",
                "deltaproxy_check_last_round_timestamp_seconds 0.0",
            ],
        );
        check.round_ended();
        let text = observe.metrics_text();
        assert!(text.contains("deltaproxy_check_last_round_timestamp_seconds 1"), "{text}");
    }

    #[test]
    fn counts_and_adjustments_are_added_up() {
        let observe = Observe::new();
        let balancing = &observe.metrics().balancing;
        balancing.failures.inc();
        for _ in 0..2 {
            balancing.counted(7, Duration::from_millis(3), (3, 10));
        }
        has(
            &observe,
            &[
                "deltaproxy_least_connections_entries 7",
                "deltaproxy_least_connections_count_duration_seconds_count 2",
                "deltaproxy_least_connections_failures_total 1",
                "deltaproxy_least_connections_services_total 6",
                "deltaproxy_least_connections_changed_slots_total 20",
            ],
        );
    }

    #[test]
    fn clients_with_affinity_have_a_value_once_they_are_counted() {
        let observe = Observe::new();
        let figures = &observe.metrics().figures;
        figures.services.with(["mh"]).set(3);
        has(&observe, &["deltaproxy_services{scheduler=\"mh\"} 3"]);
        figures.affinity_clients_max.set(1_000);
        has(&observe, &["deltaproxy_affinity_clients_max 1000"]);
        assert!(!observe.shared.metrics.text().contains("deltaproxy_affinity_clients{"));
        figures.affinity_clients.with(["IPv6"]).set(7);
        has(&observe, &["deltaproxy_affinity_clients{ip_family=\"IPv6\"} 7"]);
    }

    #[test]
    fn a_state_that_no_node_has_any_more_has_no_series() {
        let observe = Observe::new();
        let direct = &observe.metrics().direct;
        assert_eq!(direct.document(), None);
        direct.connections.set(5);
        direct.state(2, &BTreeMap::from([("reachable", 3), ("node-not-ready", 1)]));
        has(
            &observe,
            &[
                "deltaproxy_direct_connections 5",
                "deltaproxy_direct_services 2",
                "deltaproxy_direct_nodes{state=\"reachable\"} 3",
                "deltaproxy_direct_nodes{state=\"node-not-ready\"} 1",
            ],
        );
        direct.state(2, &BTreeMap::from([("reachable", 4)]));
        let document = json!({ "services": 2, "connections": 5, "nodes": { "reachable": 4 } });
        assert_eq!(direct.document(), Some(document));
        has(&observe, &["deltaproxy_direct_nodes{state=\"reachable\"} 4"]);
        assert!(!observe.shared.metrics.text().contains("node-not-ready"));
    }
}
