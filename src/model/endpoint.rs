//! An EndpointSlice as routing sees it.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::SystemTime;

use super::{ObjectName, Protocol, ServicePort, Weighing};

/// Some of the endpoints of one service, with the ports they share.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSlice {
    /// Namespace and name of the slice.
    pub name: ObjectName,
    /// The service it belongs to: label `kubernetes.io/service-name` in the slice's namespace.
    pub service: ObjectName,
    /// Ports with a number; ports without one are not routed.
    pub ports: Vec<EndpointPort>,
    /// Endpoints in the order of the object, all of one address family.
    pub endpoints: Vec<Endpoint>,
    /// When what led to its last change happened: annotation
    /// `endpoints.kubernetes.io/last-change-trigger-time`. It is not stored.
    pub triggered: Option<SystemTime>,
    /// What decides about weights; `None` for most slices.
    pub weighing: Option<Box<Weighing>>,
}

/// One port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointPort {
    /// Name of the service port it serves, empty if unnamed.
    pub name: Arc<str>,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port at the endpoint's address.
    pub port: NonZeroU16,
}

impl EndpointPort {
    /// What a port has in common with the service port that it serves.
    pub(super) fn key(&self) -> (&str, Protocol) {
        (&self.name, self.protocol)
    }

    /// The ports among `sorted` that serve a port of the service. They are sorted by their keys:
    /// services may have thousands of ports.
    pub(super) fn serving<'a>(sorted: &'a [Self], port: &ServicePort) -> &'a [Self] {
        let key = (&*port.name, port.protocol);
        let start = sorted.partition_point(|it| it.key() < key);
        let end = start + sorted[start..].partition_point(|it| it.key() == key);
        &sorted[start..end]
    }

    /// A port of TCP.
    pub fn tcp(name: &str, port: NonZeroU16) -> Self {
        Self { name: name.into(), protocol: Protocol::Tcp, port }
    }
}

/// One address of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `addresses[0]`; further addresses have no meaning (KEP-0752).
    pub address: IpAddr,
    /// Conditions, and what holds relative to this node.
    pub conditions: Conditions,
    /// Zones of `hints.forZones`; `None` if there is no zone hint.
    pub zones: Option<Arc<Zones>>,
}

impl Endpoint {
    /// An endpoint that is ready, on another node and without hints.
    pub fn ready(address: IpAddr) -> Self {
        Self { address, conditions: Conditions::READY, zones: None }
    }
}

/// Names of zones that an endpoint is hinted for; shared between endpoints.
pub type Zones = Vec<Arc<str>>;

/// What an endpoint may be used for. Defaults of absent conditions are applied by the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `conditions.ready`, true if absent.
    pub ready: bool,
    /// `conditions.serving`, true if absent.
    pub serving: bool,
    /// `conditions.terminating`, false if absent.
    pub terminating: bool,
    /// `nodeName` is this node.
    pub local: bool,
    /// `hints.forNodes` is not empty.
    pub has_node_hints: bool,
    /// `hints.forNodes` names this node.
    pub hinted_for_node: bool,
}

impl Conditions {
    /// Those of an endpoint that is ready, on another node and without hints.
    pub const READY: Self = Self {
        ready: true,
        serving: true,
        terminating: false,
        local: false,
        has_node_hints: false,
        hinted_for_node: false,
    };

    /// Whether it serves until it ends.
    pub fn serves_terminating(self) -> bool {
        self.serving && self.terminating
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_takes_32_bytes_and_a_slice_104_besides_its_lists() {
        assert_eq!(size_of::<Endpoint>(), 32);
        assert_eq!(size_of::<EndpointPort>(), 24);
        assert_eq!(size_of::<EndpointSlice>(), 104);
    }
}
