//! Metrics of direct return.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};

use super::names::{Label, Names, metrics};

metrics! {
    /// Gauges of direct return.
    pub struct DirectReturn(names: &mut Names<'_>) {
        connections: Gauge = names.add("direct_connections",
            "Connections whose node is remembered, if the kernel reports their number");
        services: Gauge = names.add("direct_services",
            "Services whose external packets nodes hand to each other");
        nodes: Family<Label<&'static str>, Gauge> = names.add("direct_nodes",
            "Other nodes, by whether packets can be handed to them");
        /// The other nodes by state; `None` without direct return.
        by_state: Mutex<Option<BTreeMap<&'static str, usize>>> = Mutex::default();
    }
}

impl DirectReturn {
    /// Sets the number of connections whose node is remembered.
    pub fn connections(&self, count: u32) {
        self.connections.set(count.into());
    }

    /// Sets the number of services, and of other nodes by state.
    pub fn state(&self, services: usize, nodes: &BTreeMap<&'static str, usize>) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.services.set(number(services));
        self.nodes.clear();
        for (state, count) in nodes {
            self.nodes.get_or_create(&[("state", *state)]).set(number(*count));
        }
        // A map is whole after every step of a writer.
        *self.by_state.lock().unwrap_or_else(PoisonError::into_inner) = Some(nodes.clone());
    }

    /// Returns the content of the status page; `None` without direct return.
    pub(super) fn document(&self) -> Option<Value> {
        let nodes = self.by_state.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(json!({
            "services": self.services.get(),
            "connections": self.connections.get(),
            "nodes": nodes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn a_state_that_no_node_has_any_more_has_no_series() {
        let observe = Observe::new();
        let direct = observe.direct_return();
        assert_eq!(direct.document(), None);
        direct.connections(5);
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
