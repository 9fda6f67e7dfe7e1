//! The listeners of the proxy for node ports at `[::1]`, and its metrics.

use std::collections::BTreeSet;

use nft::family::Family as IpFamily;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::metric::{Counter, FAMILIES, Gauge, metrics};

metrics! {
    /// Metrics of the proxy for node ports at `[::1]`: its listeners under kube-proxy's names, and its
    /// connections.
    pub struct LocalhostMetrics {
        listeners: [Gauge; 2] = "kubeproxy_nftables_localhost_nodeport_listeners",
            "Node ports that this process serves at a loopback address", by FAMILIES;
        failures: [Counter; 2] = "kubeproxy_nftables_localhost_nodeport_listener_creation_failures",
            "Attempts to listen at a node port of a loopback address that failed", by FAMILIES;
        pub open: Gauge = "deltaproxy_localhost_open_connections",
            "Connections of clients to node ports at [::1] that are open";
        pub began: Counter = "deltaproxy_localhost_connections",
            "Connections of clients to node ports at [::1] that were accepted";
        pub refused: [Counter; RefusedConnection::ALL.len()] = "deltaproxy_localhost_refused_connections",
            "Connections to node ports at [::1] that were reset, by reason",
            by ("reason", RefusedConnection::ALL.map(RefusedConnection::name));
    } also {
        ports: Mutex<BTreeSet<u16>>,
    }
}

engine::named! {
    /// Why a client at `[::1]` got no connection.
    pub enum RefusedConnection {
        /// There are too many connections.
        Limit = "limit",
        /// Its node port has too many connections.
        PortLimit = "port_limit",
        /// No endpoint accepted a connection.
        Unreachable = "unreachable",
    }
}

impl LocalhostMetrics {
    /// Records that a node port has a listener.
    pub fn listener_opened(&self, port: u16) {
        self.ports.lock().insert(port);
        self.listeners[IpFamily::Ip6.index()].add(1);
    }

    /// Records that a node port has no listener any more.
    pub fn listener_closed(&self, port: u16) {
        self.ports.lock().remove(&port);
        self.listeners[IpFamily::Ip6.index()].add(-1);
    }

    /// Returns the node ports with a listener as a document.
    pub(super) fn document(&self) -> Value {
        json!({ "node_ports": *self.ports.lock() })
    }

    /// Counts an attempt to listen that failed.
    pub fn listener_failed(&self) {
        self.failures[IpFamily::Ip6.index()].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn listeners_and_connections_are_counted() {
        let observe = Observe::new();
        let localhost = &observe.metrics().localhost;
        localhost.listener_opened(30080);
        localhost.listener_opened(30081);
        localhost.listener_closed(30081);
        assert_eq!(localhost.document(), json!({ "node_ports": [30080] }));
        localhost.listener_failed();
        localhost.open.add(1);
        localhost.began.add(2);
        localhost.refused[RefusedConnection::PortLimit as usize].inc();
        has(
            &observe,
            &[
                "kubeproxy_nftables_localhost_nodeport_listeners{ip_family=\"IPv6\"} 1",
                "kubeproxy_nftables_localhost_nodeport_listeners{ip_family=\"IPv4\"} 0",
                "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total\
                 {ip_family=\"IPv6\"} 1",
                "deltaproxy_localhost_open_connections 1",
                "deltaproxy_localhost_connections_total 2",
                "deltaproxy_localhost_refused_connections_total{reason=\"limit\"} 0",
                "deltaproxy_localhost_refused_connections_total{reason=\"port_limit\"} 1",
            ],
        );
    }
}
