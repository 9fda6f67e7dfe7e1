//! Service reduced to what routing needs.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::name::ObjectName;
use super::port_ranges::PortRange;
use super::protocol::Protocol;
use super::scheduler::Scheduler;
use super::weights::Weights;

/// A Service with at least one cluster IP.
///
/// The source drops headless, `ExternalName` and foreign services (label
/// `service.kubernetes.io/service-proxy-name`): they are not routed.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.creationTimestamp` in seconds since 1970; decides between claims to one frontend.
    pub created: i64,
    /// `spec.clusterIPs`, at most one of each family.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip` of mode VIP.
    pub load_balancer_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges`, host bits zero.
    pub source_ranges: Vec<IpNet>,
    /// `spec.internalTrafficPolicy`.
    pub internal_traffic_policy: TrafficPolicy,
    /// `spec.externalTrafficPolicy`, `Cluster` for types without that field.
    pub external_traffic_policy: TrafficPolicy,
    /// Timeout of `sessionAffinity: ClientIP`.
    pub session_affinity: Option<Duration>,
    /// Annotation `deltaproxy.io/scheduler`; `None` selects the node's scheduler.
    pub scheduler: Option<Scheduler>,
    /// Annotation `deltaproxy.io/weights`.
    pub weights: Option<Weights>,
    /// Annotation `deltaproxy.io/forwarding`; `None` leaves it to the node's settings.
    pub forwarding: Option<Forwarding>,
    /// Annotation `deltaproxy.io/ended-connections`; `None` leaves it to the node's settings.
    pub ended_connections: Option<EndedConnections>,
    /// `spec.healthCheckNodePort` of a LoadBalancer with external traffic policy `Local`.
    pub health_check_node_port: Option<NonZeroU16>,
    /// The usable entries of `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// Annotation `deltaproxy.io/port-ranges`, ascending and disjoint.
    pub port_ranges: Vec<PortRange>,
}

impl Service {
    /// Returns a service with these cluster IPs, without ports and with default policies.
    pub fn new(name: ObjectName, cluster_ips: Vec<IpAddr>) -> Self {
        Self {
            name,
            created: 0,
            cluster_ips,
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            internal_traffic_policy: TrafficPolicy::Cluster,
            external_traffic_policy: TrafficPolicy::Cluster,
            session_affinity: None,
            scheduler: None,
            weights: None,
            forwarding: None,
            ended_connections: None,
            health_check_node_port: None,
            ports: Vec::new(),
            port_ranges: Vec::new(),
        }
    }
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// Port name, empty if unnamed. Endpoint slices refer to it.
    pub name: Arc<str>,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port at the cluster IP.
    pub port: NonZeroU16,
    /// Port at the node's addresses.
    pub node_port: Option<NonZeroU16>,
}

impl ServicePort {
    /// Returns what stands for all port ranges of a protocol. Their endpoints are those of all slices,
    /// and get the port of the packet.
    pub fn of_ranges(protocol: Protocol) -> Self {
        Self { name: OF_RANGES.into(), protocol, port: NonZeroU16::MIN, node_port: None }
    }

    /// Returns whether it stands for port ranges.
    pub fn is_of_ranges(&self) -> bool {
        &*self.name == OF_RANGES
    }

    /// Returns a TCP port without node port.
    pub fn tcp(name: &str, port: NonZeroU16) -> Self {
        Self { name: name.into(), protocol: Protocol::Tcp, port, node_port: None }
    }
}

/// The name of the port ranges of a service, which no port can have.
const OF_RANGES: &str = "*";

/// Endpoints that traffic may be sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// All endpoints of the service.
    #[default]
    Cluster,
    /// Endpoints on this node only.
    Local,
}

/// How a node forwards packets from outside to an endpoint on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Unchanged, to the node of the endpoint, which answers the client itself.
    Direct,
    /// With the addresses of the endpoint and of this node. Answers return through this node.
    Translate,
}

/// What becomes of a connection of TCP whose endpoint is in no EndpointSlice any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedConnections {
    /// It stays until its own timeouts.
    Keep,
    /// The next packet of either side is answered with RST.
    Reset,
}
