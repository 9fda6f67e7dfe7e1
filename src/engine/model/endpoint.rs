//! The endpoints and ports of an EndpointSlice, reduced to what routing needs.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use smallvec::SmallVec;

use super::protocol::Protocol;
use super::service::ServicePort;

/// The ports of an EndpointSlice: mostly one.
pub(super) type EndpointPorts = SmallVec<[EndpointPort; 1]>;

/// One port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndpointPort {
    /// Name of the service port that it serves, empty if unnamed.
    pub name: Arc<str>,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port at the endpoint's address.
    pub port: NonZeroU16,
}

impl EndpointPort {
    /// Returns the name and protocol by which a port matches a service port.
    pub(super) fn key(&self) -> (&str, Protocol) {
        (&self.name, self.protocol)
    }

    /// Returns the ports in `sorted` that serve `port`. They are sorted by key, because a service
    /// may have thousands of ports.
    pub(super) fn serving<'a>(sorted: &'a [Self], port: &ServicePort) -> &'a [Self] {
        let key = (&*port.name, port.protocol);
        let start = sorted.partition_point(|it| it.key() < key);
        let end = start + sorted[start..].partition_point(|it| it.key() == key);
        &sorted[start..end]
    }

    /// Returns a TCP port.
    pub fn tcp(name: &str, port: NonZeroU16) -> Self {
        Self { name: name.into(), protocol: Protocol::Tcp, port }
    }
}

/// One address of a slice. `Z` owns the zones, or borrows them from [`Endpoints`](super::Endpoints).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint<Z = Arc<Zones>> {
    /// `addresses[0]`; further addresses have no meaning (KEP-0752).
    pub address: IpAddr,
    /// Conditions, and properties relative to this node.
    pub conditions: Conditions,
    /// Zones of `hints.forZones`; `None` without a zone hint.
    pub zones: Option<Z>,
}

impl Endpoint {
    /// Returns a ready endpoint on another node, without hints.
    pub fn ready(address: IpAddr) -> Self {
        Self { address, conditions: Conditions::READY, zones: None }
    }
}

/// Zone names of an endpoint's hints, shared between endpoints.
pub type Zones = Vec<Arc<str>>;

/// Conditions of an endpoint. The source applies the defaults of absent conditions.
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
    /// Conditions of a ready endpoint on another node, without hints.
    pub const READY: Self = Self {
        ready: true,
        serving: true,
        terminating: false,
        local: false,
        has_node_hints: false,
        hinted_for_node: false,
    };

    /// Returns whether the endpoint serves while it terminates.
    pub fn serves_terminating(self) -> bool {
        self.serving && self.terminating
    }

    /// Returns whether the endpoint is ready, or serves while it terminates.
    pub(super) fn takes_flows(self) -> bool {
        self.ready || self.serves_terminating()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_takes_32_bytes_and_a_port_24() {
        assert_eq!(size_of::<Endpoint>(), 32);
        assert_eq!(size_of::<EndpointPort>(), 24);
    }
}
