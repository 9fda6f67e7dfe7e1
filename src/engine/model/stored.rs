//! Services and slices in the compact form in which the cluster stores them.
//!
//! They are equivalent to the objects of events. Rare fields take no memory, and repeated values are
//! shared.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use nft::family::Family;
use smallvec::SmallVec;

use super::endpoint::EndpointPorts;
use super::endpoints::{EndpointSlice, Endpoints, ZoneLists};
use super::interner::Interner;
use super::name::ObjectName;
use super::port_ranges::PortRange;
use super::scheduler::Scheduler;
use super::service::{EndedConnections, Forwarding, Service, ServicePort, TrafficPolicy};
use super::slice_names::SliceName;
use super::weights::{Weighing, Weight, Weights};

/// Lists in use, each once.
#[derive(Debug, Default)]
pub(super) struct SharedLists {
    of_services: Interner<ServicePorts>,
    of_slices: Interner<EndpointPorts>,
    zones: Interner<ZoneLists>,
}

/// The ports of a service: mostly one.
type ServicePorts = SmallVec<[ServicePort; 1]>;

/// A service without its name.
#[derive(Debug)]
pub(super) struct StoredService {
    /// Creation time in seconds since 1970, limited to what fits.
    created: u32,
    /// Number of the last listing that contained the service.
    pub(super) listing: u32,
    cluster_ips: ClusterIps,
    ports: Arc<ServicePorts>,
    /// `None` if all rare fields have their defaults.
    unusual: Option<Box<Unusual>>,
}

#[derive(Debug, PartialEq)]
enum ClusterIps {
    V4(Ipv4Addr),
    Others(Box<[IpAddr]>),
}

/// Fields that most services do not set.
#[derive(Debug, Default, PartialEq)]
struct Unusual {
    external_ips: Box<[IpAddr]>,
    load_balancer_ips: Box<[IpAddr]>,
    source_ranges: Box<[IpNet]>,
    internal_traffic_policy: TrafficPolicy,
    external_traffic_policy: TrafficPolicy,
    session_affinity: Option<Duration>,
    scheduler: Option<Scheduler>,
    weights: Option<Weights>,
    forwarding: Option<Forwarding>,
    ended_connections: Option<EndedConnections>,
    health_check_node_port: Option<NonZeroU16>,
    port_ranges: Box<[PortRange]>,
}

/// A slice without the name of its service, with its own relative to that.
#[derive(Debug, PartialEq)]
pub(super) struct StoredSlice {
    /// Number of the last listing that contained the slice.
    pub(super) listing: u32,
    pub(super) name: SliceName,
    pub(super) ports: Arc<EndpointPorts>,
    pub(super) endpoints: Endpoints,
    pub(super) weighing: Option<Box<Weighing>>,
}

impl StoredService {
    pub(super) fn new(service: Service, listing: u32, lists: &mut SharedLists) -> Self {
        let unusual = Unusual {
            external_ips: service.external_ips.into(),
            load_balancer_ips: service.load_balancer_ips.into(),
            source_ranges: service.source_ranges.into(),
            internal_traffic_policy: service.internal_traffic_policy,
            external_traffic_policy: service.external_traffic_policy,
            session_affinity: service.session_affinity,
            // A default value takes no memory.
            scheduler: service.scheduler.filter(|it| *it != Scheduler::default()),
            weights: service.weights,
            forwarding: service.forwarding,
            ended_connections: service.ended_connections,
            health_check_node_port: service.health_check_node_port,
            port_ranges: service.port_ranges.into(),
        };
        Self {
            created: u32::try_from(service.created.max(0)).unwrap_or(u32::MAX),
            listing,
            cluster_ips: match service.cluster_ips.as_slice() {
                [IpAddr::V4(address)] => ClusterIps::V4(*address),
                addresses => ClusterIps::Others(addresses.into()),
            },
            ports: lists.of_services.share(service.ports.into_iter().collect::<ServicePorts>()),
            unusual: (unusual != Unusual::default()).then(|| Box::new(unusual)),
        }
    }

    /// Returns whether both are the same service, whichever listings contained them.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let Self { created, listing: _, cluster_ips, ports, unusual } = self;
        (created, cluster_ips, ports, unusual)
            == (&other.created, &other.cluster_ips, &other.ports, &other.unusual)
    }

    /// Returns the creation time in seconds since 1970.
    pub(super) fn created(&self) -> i64 {
        self.created.into()
    }

    /// Returns the session affinity timeout.
    pub(super) fn session_affinity(&self) -> Option<Duration> {
        self.unusual.as_ref()?.session_affinity
    }

    pub(super) fn ended_connections(&self) -> Option<EndedConnections> {
        self.unusual.as_ref()?.ended_connections
    }

    pub(super) fn health_check_node_port(&self) -> Option<NonZeroU16> {
        self.unusual.as_ref()?.health_check_node_port
    }

    pub(super) fn ports(&self) -> &[ServicePort] {
        &self.ports
    }

    pub(super) fn ipv6_cluster_ip(&self) -> Option<Ipv6Addr> {
        match &self.cluster_ips {
            ClusterIps::V4(_) => None,
            ClusterIps::Others(addresses) => addresses.iter().find_map(|address| match address {
                IpAddr::V6(address) => Some(*address),
                IpAddr::V4(_) => None,
            }),
        }
    }

    pub(super) fn has_cluster_ip(&self, address: IpAddr) -> bool {
        match &self.cluster_ips {
            ClusterIps::V4(own) => address == *own,
            ClusterIps::Others(addresses) => addresses.contains(&address),
        }
    }

    pub(super) fn cluster_ips(&self) -> Vec<IpAddr> {
        match &self.cluster_ips {
            ClusterIps::V4(address) => vec![IpAddr::V4(*address)],
            ClusterIps::Others(addresses) => addresses.to_vec(),
        }
    }

    /// Returns the ports if each client may be sent to any usable endpoint.
    pub(super) fn ports_served_by_all_endpoints(&self) -> Option<&[ServicePort]> {
        let is_plain = self.unusual.as_ref().is_none_or(|unusual| {
            unusual.session_affinity.is_none()
                && unusual.scheduler.is_none()
                && unusual.weights.is_none()
                && unusual.port_ranges.is_empty()
                && unusual.internal_traffic_policy == TrafficPolicy::Cluster
        });
        is_plain.then_some(self.ports())
    }

    /// Returns whether the service has weights, source ranges, port ranges, or another scheduler than
    /// the default.
    pub(super) fn may_request_slots(&self) -> bool {
        let asks = |it: &Unusual| {
            let has_ranges = !it.source_ranges.is_empty() || !it.port_ranges.is_empty();
            it.scheduler.is_some() || it.weights.is_some() || has_ranges
        };
        self.unusual.as_deref().is_some_and(asks)
    }

    /// Returns the service in its original form, with its name.
    pub(super) fn restore(&self, name: ObjectName) -> Service {
        let plain = Service {
            created: self.created(),
            ports: self.ports.to_vec(),
            ..Service::new(name, self.cluster_ips())
        };
        let Some(unusual) = &self.unusual else { return plain };
        Service {
            external_ips: unusual.external_ips.to_vec(),
            load_balancer_ips: unusual.load_balancer_ips.to_vec(),
            source_ranges: unusual.source_ranges.to_vec(),
            internal_traffic_policy: unusual.internal_traffic_policy,
            external_traffic_policy: unusual.external_traffic_policy,
            session_affinity: unusual.session_affinity,
            scheduler: unusual.scheduler,
            weights: unusual.weights.clone(),
            forwarding: unusual.forwarding,
            ended_connections: unusual.ended_connections,
            health_check_node_port: unusual.health_check_node_port,
            port_ranges: unusual.port_ranges.to_vec(),
            ..plain
        }
    }

    /// Returns whether it has external IPs, load balancer addresses or node ports.
    pub(super) fn has_external_traffic(&self) -> bool {
        self.has_external_addresses() || self.ports.iter().any(|port| port.node_port.is_some())
    }

    /// Returns whether it has external IPs or load balancer addresses.
    pub(super) fn has_external_addresses(&self) -> bool {
        let has = |it: &Unusual| !it.external_ips.is_empty() || !it.load_balancer_ips.is_empty();
        self.unusual.as_deref().is_some_and(has)
    }

    pub(super) fn port_ranges(&self) -> &[PortRange] {
        self.unusual.as_ref().map_or(&[], |unusual| &unusual.port_ranges)
    }

    pub(super) fn has_source_ranges(&self) -> bool {
        !self.source_ranges().is_empty()
    }

    pub(super) fn source_ranges(&self) -> &[IpNet] {
        self.unusual.as_ref().map_or(&[], |unusual| &unusual.source_ranges)
    }
}

impl StoredSlice {
    pub(super) fn new(
        slice: EndpointSlice,
        name: SliceName,
        listing: u32,
        lists: &mut SharedLists,
    ) -> Self {
        let EndpointSlice { mut ports, mut endpoints, weighing, .. } = slice;
        ports.sort_by(|a, b| a.key().cmp(&b.key()));
        endpoints.share_zones(&mut lists.zones);
        Self { listing, name, ports: lists.of_slices.share(ports), endpoints, weighing }
    }

    /// Returns a slice outside a cluster.
    #[cfg(test)]
    pub(super) fn alone(slice: &EndpointSlice, lists: &mut SharedLists) -> Self {
        Self::new(slice.clone(), SliceName::Other([0; 8]), 0, lists)
    }

    /// Returns whether a ready endpoint has a hint for this zone.
    pub(super) fn is_hinted(&self, zone: &str) -> bool {
        self.endpoints.zones().iter().flat_map(|zones| zones.iter()).any(|name| **name == *zone)
    }

    /// Returns whether the endpoints are of this family; an empty slice is of both.
    pub(super) fn is_of(&self, family: Family) -> bool {
        self.endpoints.get(0).is_none_or(|first| Family::of(first.address) == family)
    }

    /// Returns whether weights may depend on the slice: it has one, or the names for rules.
    pub(super) fn is_weighed(&self) -> bool {
        self.weighing.as_ref().is_some_and(|it| it.is_weighed())
    }

    /// Returns the name of the node of the endpoint at a position, if it has one and it is kept.
    pub(super) fn node(&self, position: usize) -> Option<&Arc<str>> {
        self.weighing.as_ref()?.node(position).filter(|name| !name.is_empty())
    }

    /// Returns the weight of the endpoint at a position.
    pub(super) fn weight(&self, position: usize, weights: Option<&Weights>) -> Weight {
        match &self.weighing {
            Some(weighing) => weighing.of(position, weights),
            None => Weighing::default().of(position, weights),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;
    use crate::model::{HashedSource, NodeName};

    const PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();

    #[test]
    fn a_service_with_a_slice_takes_112_bytes() {
        assert_eq!(size_of::<StoredService>(), 40);
        assert_eq!(size_of::<StoredSlice>(), 64);
        assert_eq!(size_of::<Entry>(), 112);
    }

    #[test]
    fn the_kept_name_of_a_node_takes_8_bytes_of_an_endpoint() {
        assert_eq!(size_of::<NodeName>(), 8);
        assert_eq!(size_of::<Weighing>(), 40);
    }

    #[track_caller]
    fn check_service(service: &Service) {
        let mut lists = SharedLists::default();
        let stored = StoredService::new(service.clone(), 1, &mut lists);
        assert_eq!(stored.restore(service.name.clone()), *service);
    }

    #[test]
    fn a_service_is_restored_as_it_was() {
        let name = ObjectName::namespaced("default", "web");
        let plain = Service {
            created: 1_700_000_000,
            ports: vec![ServicePort { node_port: Some(PORT), ..ServicePort::tcp("http", PORT) }],
            ..Service::new(name, vec![IpAddr::from([10, 96, 0, 1])])
        };
        check_service(&plain);
        let ipv6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
        check_service(&Service {
            cluster_ips: vec![plain.cluster_ips[0], ipv6],
            external_ips: vec![ipv6],
            load_balancer_ips: vec![IpAddr::from([192, 0, 2, 1])],
            source_ranges: vec!["192.0.2.0/24".parse().unwrap()],
            internal_traffic_policy: TrafficPolicy::Local,
            external_traffic_policy: TrafficPolicy::Local,
            session_affinity: Some(Duration::from_secs(60)),
            scheduler: Some(Scheduler::Maglev(HashedSource::Address)),
            weights: Some(Weights::parse("zone/a=2").unwrap()),
            forwarding: Some(Forwarding::Direct),
            health_check_node_port: Some(PORT),
            ..plain
        });
    }
}
