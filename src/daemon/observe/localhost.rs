//! The listeners of the proxy for node ports at `[::1]`, and its metrics.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nft::family::Family as IpFamily;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::names::{Label, Names, PerFamily, metrics};

metrics! {
    /// Metrics of the proxy for node ports at `[::1]`: its listeners under kube-proxy's names, and its
    /// connections.
    pub struct Localhost(registry: &mut Registry) {
        /// The node ports with a listener.
        ports: Mutex<BTreeSet<u16>> = Mutex::default();
        listeners: PerFamily<Gauge> = of_kube_proxy(registry).per_family("listeners",
            "Node ports that this process serves at a loopback address", Gauge::default);
        failures: PerFamily<Counter> = of_kube_proxy(registry).per_family(
            "listener_creation_failures",
            "Attempts to listen at a node port of a loopback address that failed",
            Counter::default);
        open: Gauge = own(registry).add("open_connections",
            "Connections of clients to node ports at [::1] that are open");
        began: Counter = own(registry).add("connections",
            "Connections of clients to node ports at [::1] that were accepted");
        refused: [Counter; RefusedConnection::ALL.len()] = {
            let help = "Connections to node ports at [::1] that were reset, by reason";
            let all: Family<Label<&'static str>, Counter> =
                own(registry).add("refused_connections", help);
            RefusedConnection::ALL.map(|why| all.get_or_create_owned(&[("reason", why.name())]))
        };
    }
}

fn of_kube_proxy(registry: &mut Registry) -> Names<'_> {
    Names::new(registry, "kubeproxy_nftables_localhost_nodeport_")
}

fn own(registry: &mut Registry) -> Names<'_> {
    Names::new(registry, "deltaproxy_localhost_")
}

/// Why a client at `[::1]` got no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedConnection {
    /// There are too many connections.
    Limit,
    /// Its node port has too many connections.
    PortLimit,
    /// No endpoint accepted a connection.
    Unreachable,
}

impl RefusedConnection {
    const ALL: [Self; 3] = [Self::Limit, Self::PortLimit, Self::Unreachable];

    fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::PortLimit => "port_limit",
            Self::Unreachable => "unreachable",
        }
    }
}

impl Localhost {
    /// Records that a node port has a listener.
    pub fn listener_opened(&self, port: u16) {
        self.ports().insert(port);
        self.listeners[IpFamily::Ip6.index()].inc();
    }

    /// Records that a node port has no listener any more.
    pub fn listener_closed(&self, port: u16) {
        self.ports().remove(&port);
        self.listeners[IpFamily::Ip6.index()].dec();
    }

    /// Returns the node ports with a listener as a document.
    pub(super) fn document(&self) -> Value {
        json!({ "node_ports": *self.ports() })
    }

    fn ports(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        // Each change is one call on a collection, so a panic elsewhere does no harm.
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attempt to listen that failed.
    pub fn listener_failed(&self) {
        self.failures[IpFamily::Ip6.index()].inc();
    }

    /// Records that a connection begins.
    pub fn connection_began(&self) {
        self.open.inc();
        self.began.inc();
    }

    /// Records that a connection has ended.
    pub fn connection_ended(&self) {
        self.open.dec();
    }

    /// Counts a client without a connection.
    pub fn connection_refused(&self, why: RefusedConnection) {
        self.refused[why as usize].inc();
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
        let localhost = observe.localhost();
        localhost.listener_opened(30080);
        localhost.listener_opened(30081);
        localhost.listener_closed(30081);
        assert_eq!(localhost.document(), json!({ "node_ports": [30080] }));
        localhost.listener_failed();
        localhost.connection_began();
        localhost.connection_began();
        localhost.connection_ended();
        localhost.connection_refused(RefusedConnection::PortLimit);
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
