//! A synthetic cluster, whose objects are generated on demand as an API server writes them.
//!
//! A service is a function of its number. A cluster of a million endpoints therefore takes a few
//! bytes for each service, which hardly affects the measured memory.

use std::net::Ipv4Addr;
use std::ops::Range;

use ahash::HashMap;
use engine::model::{Change, Event, ObjectName, ServiceCidr};
use ipnet::IpNet;

use super::distribution::Distribution;
use super::random::Random;

/// One of this many services is UDP, the protocol of `--traffic`.
pub(super) const UDP_EACH: u32 = 10;

/// Maximum endpoints of a slice; the controller fills slices up to it
/// (`--max-endpoints-per-slice`).
pub(super) const SLICE_SIZE: usize = 100;

/// Nodes of the endpoints; the first is this one.
pub(super) const NODES: u32 = 500;

/// Zones of the endpoints, round robin.
pub(super) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Name of this node in synthetic clusters.
pub(super) const NODE_NAME: &str = "node-0";

/// First address of endpoints: 11.0.0.1, in a range that no test network uses.
pub(super) const FIRST_ENDPOINT: u32 = 0x0b00_0001;

/// First cluster IP: 10.96.0.1.
pub(super) const FIRST_CLUSTER_IP: u32 = 0x0a60_0001;

/// Length of the prefix of all cluster IPs.
pub(super) const CLUSTER_IP_BITS: u8 = 11;

/// Services by number, with their endpoints.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The initial endpoints of service `n` are `starts[n]` to `starts[n + 1]`.
    starts: Vec<u32>,
    /// Services that differ from their initial state.
    pub(super) changed: HashMap<u32, State>,
    /// Number of the next new endpoint.
    next_endpoint: u32,
    version: u64,
}

/// The variable part of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Numbers of the endpoints.
    pub(super) endpoints: Vec<u32>,
    /// The internal traffic policy is `Local`.
    pub(super) is_local: bool,
    /// The service has an external IP.
    pub(super) is_external: bool,
}

impl Cluster {
    /// Creates a cluster of `services` services with `average` endpoints each, spread by the seed.
    pub fn new(services: u32, average: u32, distribution: Distribution, seed: u64) -> Self {
        let counts = distribution.counts(services, average, &mut Random::new(seed));
        let mut starts = vec![0];
        let mut sum = 0;
        starts.extend(counts.iter().map(|count| {
            sum += count;
            sum
        }));
        Self { starts, changed: HashMap::default(), next_endpoint: sum, version: 1 }
    }

    /// Returns the initial number of services; these are never removed.
    pub fn services(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).unwrap_or(u32::MAX)
    }

    /// Returns the initial number of endpoints.
    pub fn endpoints(&self) -> u32 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Returns whether `--traffic` uses this service: it always has a usable endpoint.
    pub fn takes_traffic(service: u32) -> bool {
        service % UDP_EACH == UDP_EACH - 1
    }

    /// Returns the number of services with traffic.
    pub(super) fn traffic_services(&self) -> u32 {
        self.services() / UDP_EACH
    }

    /// Returns the number of the `nth` service with traffic.
    pub(super) fn traffic_service(nth: u32) -> u32 {
        nth * UDP_EACH + UDP_EACH - 1
    }

    /// Returns the cluster IP of a service; its port is 80.
    pub fn cluster_ip(service: u32) -> Ipv4Addr {
        Ipv4Addr::from(FIRST_CLUSTER_IP + service)
    }

    /// Returns the event of the range of all cluster IPs.
    pub(super) fn service_cidr() -> Event {
        let cidrs =
            vec![IpNet::new_assert(Ipv4Addr::from(FIRST_CLUSTER_IP).into(), CLUSTER_IP_BITS)];
        Event::ServiceCidr(Change::Is(ServiceCidr {
            name: ObjectName::cluster_scoped("kubernetes"),
            cidrs,
        }))
    }

    /// Returns the number of slices of a service, at least one.
    pub fn slice_count(&self, service: u32) -> usize {
        let count = match self.changed.get(&service) {
            Some(state) => state.endpoints.len(),
            None => self.original(service).len(),
        };
        count.div_ceil(SLICE_SIZE).max(1)
    }

    /// Returns the slice of the endpoint at this index.
    pub(super) fn slice_of(index: usize) -> usize {
        index / SLICE_SIZE
    }

    /// Returns the initial endpoints of the service.
    pub(super) fn original(&self, service: u32) -> Range<u32> {
        let at = service as usize;
        match self.starts.get(at..at + 2) {
            Some(&[first, end]) => first..end,
            _ => 0..0,
        }
    }

    /// Returns the variable part of the service.
    pub(super) fn state(&mut self, service: u32) -> &mut State {
        let original = self.original(service);
        let state = || State { endpoints: original.collect(), ..State::default() };
        self.changed.entry(service).or_insert_with(state)
    }

    /// Returns whether this endpoint is on the measured node.
    pub(super) fn is_on_this_node(endpoint: u32) -> bool {
        endpoint.is_multiple_of(NODES)
    }

    /// Returns whether this endpoint is in the first zone.
    pub(super) fn is_in_first_zone(endpoint: u32) -> bool {
        (endpoint as usize).is_multiple_of(ZONES.len())
    }

    /// Returns the address of an endpoint; its port is 8080.
    pub(super) fn endpoint_address(endpoint: u32) -> Ipv4Addr {
        Ipv4Addr::from(FIRST_ENDPOINT + endpoint)
    }

    /// Returns the number of a new endpoint.
    pub(super) fn new_endpoint(&mut self) -> u32 {
        self.next_endpoint += 1;
        self.next_endpoint - 1
    }

    pub(super) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}
