//! A synthetic cluster: its objects as an API server writes them, each made when it is asked for.
//!
//! What a service is follows from its number, so that a cluster of a million endpoints takes a few
//! bytes for each service and does not show in the memory that is measured.

use std::net::Ipv4Addr;
use std::ops::Range;

use ahash::HashMap;

use super::distribution::Distribution;
use super::random::Random;
use super::watch_line::{EndpointObject, ServiceObject, SliceObject, WatchLine};

/// One in so many services is UDP, which is what `--traffic` is sent to.
pub(super) const UDP_EACH: u32 = 10;

/// The controller fills slices up to so many endpoints (`--max-endpoints-per-slice`).
const SLICE_SIZE: usize = 100;

/// Nodes that endpoints are on; the first is this one.
const NODES: u32 = 500;

/// Zones of the endpoints, in turn.
pub(super) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// The name of this node in synthetic clusters.
pub(super) const NODE_NAME: &str = "node-0";

/// Where endpoints' addresses start: 11.0.0.1, in a range that no test network uses.
pub(super) const FIRST_ENDPOINT: u32 = 0x0b00_0001;

/// Where cluster IPs start: 10.96.0.1.
pub(super) const FIRST_CLUSTER_IP: u32 = 0x0a60_0001;

/// Services by number, with their endpoints.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Service `n` has the endpoints from `starts[n]` to `starts[n + 1]` at first.
    starts: Vec<u32>,
    /// Services that are other than at first.
    changed: HashMap<u32, State>,
    /// The next number for an endpoint that was never there.
    next_endpoint: u32,
    version: u64,
}

/// What may change of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Numbers of its endpoints.
    pub(super) endpoints: Vec<u32>,
    /// Whether traffic of this node stays on it.
    pub(super) is_local: bool,
    /// Whether it has an external IP.
    pub(super) is_external: bool,
}

impl Cluster {
    /// A cluster of `services` services with `average` endpoints each, spread by the seed.
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

    /// How many services there were at first; these are never removed.
    pub fn services(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).unwrap_or(u32::MAX)
    }

    /// How many endpoints there were at first.
    pub fn endpoints(&self) -> u32 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Whether `--traffic` may be sent to this service: it always has an endpoint that may be used.
    pub fn takes_traffic(service: u32) -> bool {
        service % UDP_EACH == UDP_EACH - 1
    }

    /// How many services take traffic.
    pub(super) fn traffic_services(&self) -> u32 {
        self.services() / UDP_EACH
    }

    /// The number of the `nth` service that takes traffic.
    pub(super) fn traffic_service(nth: u32) -> u32 {
        nth * UDP_EACH + UDP_EACH - 1
    }

    /// The cluster IP of a service; its port is 80.
    pub fn cluster_ip(service: u32) -> Ipv4Addr {
        Ipv4Addr::from(FIRST_CLUSTER_IP + service)
    }

    /// This node, in the zone if one is given.
    pub fn node(&mut self, zone: Option<&str>) -> WatchLine {
        WatchLine::node(NODE_NAME, zone, self.next_version())
    }

    /// The lines that make a service: the Service and its slices.
    pub fn whole(&mut self, service: u32) -> Vec<WatchLine> {
        let mut lines = vec![self.service(service)];
        let slices = self.slice_count(service);
        lines.extend((0..slices).map(|slice| self.slice(service, slice)));
        lines
    }

    /// The lines that remove a service, and forgets it.
    pub(super) fn remove(&mut self, service: u32) -> Vec<WatchLine> {
        let lines = self.whole(service).iter().map(WatchLine::deleted).collect();
        self.changed.remove(&service);
        lines
    }

    /// The line of a Service.
    pub fn service(&mut self, service: u32) -> WatchLine {
        let version = self.next_version();
        let state = self.changed.get(&service);
        WatchLine::service(&ServiceObject {
            number: service,
            version,
            cluster_ip: Self::cluster_ip(service),
            protocol: protocol(service),
            is_local: state.is_some_and(|state| state.is_local),
            is_external: state.is_some_and(|state| state.is_external),
        })
    }

    /// The line of a slice of a service.
    pub fn slice(&mut self, service: u32, slice: usize) -> WatchLine {
        let version = self.next_version();
        let first = slice * SLICE_SIZE;
        let endpoints = match self.changed.get(&service) {
            Some(state) => {
                state.endpoints.iter().skip(first).take(SLICE_SIZE).copied().map(endpoint).collect()
            }
            None => self.original(service).skip(first).take(SLICE_SIZE).map(endpoint).collect(),
        };
        WatchLine::slice(&SliceObject {
            service,
            slice,
            version,
            protocol: protocol(service),
            endpoints,
        })
    }

    /// How many slices a service has; one even without endpoints.
    pub fn slice_count(&self, service: u32) -> usize {
        let count = match self.changed.get(&service) {
            Some(state) => state.endpoints.len(),
            None => self.original(service).len(),
        };
        count.div_ceil(SLICE_SIZE).max(1)
    }

    /// The slice in which the endpoint of this index is.
    pub(super) fn slice_of(index: usize) -> usize {
        index / SLICE_SIZE
    }

    /// The endpoints that the service had at first.
    pub(super) fn original(&self, service: u32) -> Range<u32> {
        let at = service as usize;
        match self.starts.get(at..at + 2) {
            Some(&[first, end]) => first..end,
            _ => 0..0,
        }
    }

    /// What of the service may change.
    pub(super) fn state(&mut self, service: u32) -> &mut State {
        let original = self.original(service);
        let state = || State { endpoints: original.collect(), ..State::default() };
        self.changed.entry(service).or_insert_with(state)
    }

    /// Whether this endpoint is on the node that is measured.
    pub(super) fn is_on_this_node(endpoint: u32) -> bool {
        endpoint.is_multiple_of(NODES)
    }

    /// Whether this endpoint is in the first zone.
    pub(super) fn is_in_first_zone(endpoint: u32) -> bool {
        (endpoint as usize).is_multiple_of(ZONES.len())
    }

    /// The address of an endpoint; its port is 8080.
    pub(super) fn endpoint_address(endpoint: u32) -> Ipv4Addr {
        Ipv4Addr::from(FIRST_ENDPOINT + endpoint)
    }

    /// The number of an endpoint that was never there.
    pub(super) fn new_endpoint(&mut self) -> u32 {
        self.next_endpoint += 1;
        self.next_endpoint - 1
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

fn protocol(service: u32) -> &'static str {
    if Cluster::takes_traffic(service) { "UDP" } else { "TCP" }
}

fn endpoint(number: u32) -> EndpointObject {
    EndpointObject {
        number,
        address: Cluster::endpoint_address(number),
        node: number % NODES,
        zone: ZONES[number as usize % ZONES.len()],
    }
}
