//! Services and slices in the compact form in which the cluster stores them.
//!
//! They are equivalent to the objects of events. Rare fields take no memory, repeated values are
//! shared, and an IPv4 endpoint takes eight bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use nft::family::Family;
use smallvec::SmallVec;

use super::endpoint::{Conditions, Endpoint, EndpointPort, EndpointSlice, Zones};
use super::forwarding::Forwarding;
use super::hints::Hints;
use super::interner::Interner;
use super::name::ObjectName;
use super::scheduler::Scheduler;
use super::service::{Service, ServicePort, TrafficPolicy};
use super::weights::{Weighing, Weight, Weights};

/// Lists in use, each once.
#[derive(Debug, Default)]
pub(super) struct SharedLists {
    of_services: Interner<[ServicePort]>,
    of_slices: Interner<[EndpointPort]>,
    zones: Interner<ZoneLists>,
}

/// Distinct zone lists in the hints of a slice's ready endpoints; hints of other endpoints have no
/// effect.
type ZoneLists = SmallVec<[Arc<Zones>; 3]>;

/// A service without its name.
#[derive(Debug)]
pub(super) struct StoredService {
    /// Creation time in seconds since 1970, limited to what fits.
    created: u32,
    /// Number of the last listing that contained the service.
    pub(super) listing: u32,
    cluster_ips: ClusterIps,
    ports: Arc<[ServicePort]>,
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
    health_check_node_port: Option<NonZeroU16>,
}

/// A slice without the name of its service.
#[derive(Debug, PartialEq)]
pub(super) struct StoredSlice {
    pub(super) name: ObjectName,
    pub(super) ports: Arc<[EndpointPort]>,
    endpoints: Endpoints,
    /// `None` without zone hints. Shared, because clusters have few combinations of zones.
    zones: Option<Arc<ZoneLists>>,
    pub(super) weighing: Option<Box<Weighing>>,
}

/// Endpoints and the summary of their hints.
#[derive(Debug, PartialEq)]
enum Endpoints {
    V4(Hints, Box<[StoredEndpoint<Ipv4Addr>]>),
    Others(Hints, Box<[StoredEndpoint<IpAddr>]>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct StoredEndpoint<A> {
    address: A,
    conditions: u8,
    /// 0 without a zone hint, else the index in the slice's `zones` plus one.
    zones: u16,
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
            health_check_node_port: service.health_check_node_port,
        };
        Self {
            created: u32::try_from(service.created.max(0)).unwrap_or(u32::MAX),
            listing,
            cluster_ips: match service.cluster_ips.as_slice() {
                [IpAddr::V4(address)] => ClusterIps::V4(*address),
                addresses => ClusterIps::Others(addresses.into()),
            },
            ports: lists.of_services.share(&service.ports),
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
                && unusual.internal_traffic_policy == TrafficPolicy::Cluster
        });
        is_plain.then_some(&self.ports)
    }

    /// Returns whether the service has weights, source ranges, or another scheduler than the default.
    pub(super) fn may_request_slots(&self) -> bool {
        let asks = |it: &Unusual| {
            it.scheduler.is_some() || it.weights.is_some() || !it.source_ranges.is_empty()
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
            health_check_node_port: unusual.health_check_node_port,
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

    pub(super) fn source_ranges(&self) -> &[IpNet] {
        self.unusual.as_ref().map_or(&[], |unusual| &unusual.source_ranges)
    }
}

/// An endpoint of a stored slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EndpointView<'a> {
    pub(super) address: IpAddr,
    pub(super) conditions: Conditions,
    pub(super) zones: Option<&'a Arc<Zones>>,
}

impl StoredSlice {
    pub(super) fn new(mut slice: EndpointSlice, lists: &mut SharedLists) -> Self {
        let mut zones = ZoneLists::new();
        let is_v4 = slice.endpoints.iter().all(|endpoint| endpoint.address.is_ipv4());
        let each = slice.endpoints.iter();
        let hints = each.clone().map(|it| Hints::of(it.conditions, it.zones.as_ref()));
        let hints = hints.fold(Hints::default(), Hints::and);
        let endpoints = if is_v4 {
            let v4 = each.filter_map(|endpoint| match endpoint.address {
                IpAddr::V4(address) => Some(stored(address, endpoint, &mut zones)),
                IpAddr::V6(_) => None,
            });
            // Exact capacity, so that the conversion to a box does not reallocate.
            let mut list = Vec::with_capacity(slice.endpoints.len());
            list.extend(v4);
            Endpoints::V4(hints, list.into())
        } else {
            let all = each.map(|endpoint| stored(endpoint.address, endpoint, &mut zones));
            Endpoints::Others(hints, all.collect())
        };
        slice.ports.sort_by(|a, b| a.key().cmp(&b.key()));
        let ports = lists.of_slices.share(&slice.ports);
        let zones = (!zones.is_empty()).then(|| lists.zones.share_owned(zones));
        Self { name: slice.name, ports, endpoints, zones, weighing: slice.weighing }
    }

    pub(super) fn len(&self) -> usize {
        let (v4, others) = self.lists();
        v4.len() + others.len()
    }

    /// Returns the endpoints in the order of the object.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = EndpointView<'_>> + Clone {
        let (v4, others) = self.lists();
        let v4 = v4.iter().map(|endpoint| self.view(endpoint));
        v4.chain(others.iter().map(|endpoint| self.view(endpoint)))
    }

    /// Returns the endpoint at a position in the object.
    pub(super) fn endpoint(&self, position: usize) -> Option<EndpointView<'_>> {
        let (v4, others) = self.lists();
        let v4 = v4.get(position).map(|endpoint| self.view(endpoint));
        v4.or_else(|| others.get(position).map(|endpoint| self.view(endpoint)))
    }

    /// Returns the endpoints of this address.
    pub(super) fn endpoints_at(&self, address: IpAddr) -> impl Iterator<Item = EndpointView<'_>> {
        let (v4, others) = self.lists();
        let v4 = match address {
            IpAddr::V4(address) => find(v4, address),
            IpAddr::V6(_) => find(&[], Ipv4Addr::UNSPECIFIED),
        };
        v4.map(|endpoint| self.view(endpoint))
            .chain(find(others, address).map(|endpoint| self.view(endpoint)))
    }

    /// Returns the summary of the endpoints' hints.
    pub(super) fn hints(&self) -> Hints {
        match &self.endpoints {
            Endpoints::V4(hints, _) | Endpoints::Others(hints, _) => *hints,
        }
    }

    /// Returns whether a ready endpoint has a hint for this zone.
    pub(super) fn is_hinted(&self, zone: &str) -> bool {
        self.zones().iter().flat_map(|zones| zones.iter()).any(|name| **name == *zone)
    }

    /// Returns whether a ready endpoint has a zone hint.
    pub(super) fn has_zone_hints(&self) -> bool {
        self.zones.is_some()
    }

    /// Returns whether the endpoints are of this family; an empty slice is of both.
    pub(super) fn is_of(&self, family: Family) -> bool {
        self.endpoint(0).is_none_or(|first| Family::of(first.address) == family)
    }

    fn zones(&self) -> &[Arc<Zones>] {
        self.zones.as_ref().map_or(&[], |zones| zones)
    }

    fn lists(&self) -> (&[StoredEndpoint<Ipv4Addr>], &[StoredEndpoint<IpAddr>]) {
        match &self.endpoints {
            Endpoints::V4(_, list) => (list, &[]),
            Endpoints::Others(_, list) => (&[], list),
        }
    }

    fn view<A: Copy + Into<IpAddr>>(&self, endpoint: &StoredEndpoint<A>) -> EndpointView<'_> {
        let position = usize::from(endpoint.zones).checked_sub(1);
        EndpointView {
            address: endpoint.address.into(),
            conditions: conditions(endpoint.conditions),
            zones: position.and_then(|position| self.zones().get(position)),
        }
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

/// Returns the endpoints with this address. Most lists lack it, and a scan without early exit
/// detects that fastest.
fn find<A: Copy + PartialEq>(
    list: &[StoredEndpoint<A>],
    address: A,
) -> impl Iterator<Item = &StoredEndpoint<A>> {
    let is_there = list.iter().fold(false, |found, it| found | (it.address == address));
    let list = if is_there { list } else { &[] };
    list.iter().filter(move |endpoint| endpoint.address == address)
}

fn stored<A>(address: A, endpoint: &Endpoint, zones: &mut ZoneLists) -> StoredEndpoint<A> {
    let hinted = endpoint.zones.as_ref().filter(|_| endpoint.conditions.ready);
    let position = hinted.map(|hinted| {
        zones.iter().position(|known| known == hinted).unwrap_or_else(|| {
            zones.push(Arc::clone(hinted));
            zones.len() - 1
        })
    });
    // The API allows 1,000 endpoints in a slice, so the number of zone lists fits.
    let zones = position.map_or(0, |position| u16::try_from(position + 1).unwrap_or(0));
    StoredEndpoint { address, conditions: bits(endpoint.conditions), zones }
}

fn bits(conditions: Conditions) -> u8 {
    let Conditions { ready, serving, terminating, local, has_node_hints, hinted_for_node } =
        conditions;
    let all = [hinted_for_node, has_node_hints, local, terminating, serving, ready];
    all.into_iter().fold(0, |bits, holds| bits << 1 | u8::from(holds))
}

fn conditions(bits: u8) -> Conditions {
    let [ready, serving, terminating, local, has_node_hints, hinted_for_node] =
        std::array::from_fn(|bit| bits & 1 << bit != 0);
    Conditions { ready, serving, terminating, local, has_node_hints, hinted_for_node }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{HashedSource, NodeName};

    const PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();

    #[test]
    fn a_service_takes_48_bytes_a_slice_64_and_an_ipv4_endpoint_8() {
        assert_eq!(size_of::<StoredService>(), 48);
        assert_eq!(size_of::<StoredSlice>(), 64);
        assert_eq!(size_of::<StoredEndpoint<Ipv4Addr>>(), 8);
        assert_eq!(size_of::<StoredEndpoint<IpAddr>>(), 20);
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

    fn any_address() -> impl Strategy<Value = IpAddr> {
        let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
        prop_oneof![9 => any::<[u8; 4]>().prop_map(IpAddr::from), 1 => v6]
    }

    fn any_endpoint() -> impl Strategy<Value = Endpoint> {
        let zones = proptest::option::of(0u8..4).prop_map(|zone| {
            zone.map(|zone| Arc::new(vec![Arc::<str>::from(format!("zone-{zone}").as_str())]))
        });
        (any_address(), 0u8..1 << 6, zones).prop_map(|(address, bits, zones)| Endpoint {
            address,
            conditions: conditions(bits),
            zones,
        })
    }

    #[test]
    fn slices_with_the_same_zones_share_one_list() {
        let mut lists = SharedLists::default();
        let name = ObjectName::namespaced("default", "web");
        let mut slice_in = |zone: &str| {
            let endpoint = Endpoint {
                zones: Some(Arc::new(vec![zone.into()])),
                ..Endpoint::ready(IpAddr::from([10, 244, 0, 1]))
            };
            let slice = EndpointSlice {
                name: name.clone(),
                service: name.clone(),
                ports: Vec::new(),
                endpoints: vec![endpoint],
                triggered: None,
                weighing: None,
            };
            StoredSlice::new(slice, &mut lists).zones.unwrap()
        };
        let [one, same, other] = ["a", "a", "b"].map(&mut slice_in);
        assert!(Arc::ptr_eq(&one, &same));
        assert_ne!(one, other);
    }

    proptest! {
        #[test]
        fn endpoints_are_restored_as_they_were(
            endpoints in proptest::collection::vec(any_endpoint(), 0..20)
        ) {
            let name = ObjectName::namespaced("default", "web");
            let slice = EndpointSlice {
                name: name.clone(),
                service: name,
                ports: Vec::new(),
                endpoints: endpoints.clone(),
                triggered: None,
                weighing: None,
            };
            let stored = StoredSlice::new(slice, &mut SharedLists::default());
            let known: Vec<_> = endpoints
                .into_iter()
                .map(|it| Endpoint { zones: it.zones.filter(|_| it.conditions.ready), ..it })
                .collect();
            let restored: Vec<_> = stored
                .endpoints()
                .map(|view| Endpoint {
                    address: view.address,
                    conditions: view.conditions,
                    zones: view.zones.cloned(),
                })
                .collect();
            prop_assert_eq!(stored.len(), known.len());
            prop_assert_eq!(restored, known);
        }
    }
}
