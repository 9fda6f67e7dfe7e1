//! Which endpoints of a service port packets may be sent to.
//!
//! The rules are those of kube-proxy: ready endpoints, filtered by topology hints; if there are
//! none, those that still serve while they terminate. The fallback is decided separately for the
//! whole cluster and for this node.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;

use super::stored::StoredSlice;
use super::{Conditions, ServicePort, Zones};

/// Where a packet can go: an endpoint's address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's port.
    pub port: NonZeroU16,
}

/// In as few steps as possible: services of thousands of endpoints look up each of them.
impl Hash for Target {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let port = self.port.get();
        match self.address {
            IpAddr::V4(address) => {
                state.write_u64(u64::from(address.to_bits()) << 16 | u64::from(port));
            }
            IpAddr::V6(address) => {
                state.write_u128(address.to_bits());
                state.write_u16(port);
            }
        }
    }
}

/// The endpoints of one service port and family that may be used now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsableEndpoints {
    /// Endpoints for traffic policy `Cluster`.
    pub cluster: TargetList,
    /// Endpoints on this node, for traffic policy `Local`.
    pub local: TargetList,
}

/// Endpoints, those of most services without memory of their own.
pub type TargetList = SmallVec<[Target; FEW]>;

/// Most services have no more endpoints.
const FEW: usize = 8;

/// An endpoint in question.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    target: Target,
    conditions: Conditions,
    zones: Option<&'a Arc<Zones>>,
}

type Candidates<'a> = SmallVec<[Candidate<'a>; FEW]>;

/// Which hints are obeyed.
#[derive(Clone, Copy)]
enum Topology<'a> {
    Ignored,
    Node,
    Zone(&'a str),
}

impl UsableEndpoints {
    /// Whether there is no endpoint at all.
    pub fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.local.is_empty()
    }

    /// Selects from `slices` what serves `port`; `zone` is this node's.
    pub(super) fn select(
        slices: &[StoredSlice],
        port: &ServicePort,
        ipv4: bool,
        zone: Option<&Arc<str>>,
    ) -> Self {
        let candidates = candidates(slices, port, ipv4);
        let ready = || candidates.iter().filter(|c| c.conditions.ready);
        let topology = topology(&ready(), zone);
        let hinted = ready().filter(|c| topology.allows(c));
        let local = |c: &&Candidate<'_>| c.conditions.local;
        Self {
            cluster: targets_or(
                hinted,
                candidates.iter().filter(|c| c.serves_terminating()),
                candidates.len(),
            ),
            // Few of very many are on one node.
            local: targets_or(
                ready().filter(local),
                candidates.iter().filter(|c| c.serves_terminating()).filter(local),
                0,
            ),
        }
    }
}

impl Candidate<'_> {
    fn serves_terminating(&self) -> bool {
        self.conditions.serving && self.conditions.terminating
    }

    /// Of two entries for one target the live one counts: a pod may reuse the address of one
    /// that terminates.
    fn rank(&self) -> u8 {
        match (self.conditions.ready, self.conditions.terminating) {
            (true, false) => 3,
            (true, true) => 2,
            (false, true) if self.conditions.serving => 1,
            (false, _) => 0,
        }
    }
}

impl Topology<'_> {
    fn allows(self, candidate: &Candidate<'_>) -> bool {
        match self {
            Self::Ignored => true,
            Self::Node => candidate.conditions.hinted_for_node,
            Self::Zone(zone) => in_zone(candidate, zone),
        }
    }
}

/// Hints are obeyed only if every ready endpoint has one and one of them names this node or zone.
fn topology<'a, 'c: 'a>(
    ready: &(impl Iterator<Item = &'a Candidate<'c>> + Clone),
    zone: Option<&'a Arc<str>>,
) -> Topology<'a> {
    let all_node_hints = ready.clone().all(|c| c.conditions.has_node_hints);
    if all_node_hints && ready.clone().any(|c| c.conditions.hinted_for_node) {
        return Topology::Node;
    }
    let all_zone_hints = ready.clone().all(|c| c.zones.is_some());
    match zone {
        Some(zone) if all_zone_hints && ready.clone().any(|c| in_zone(c, zone)) => {
            Topology::Zone(zone)
        }
        _ => Topology::Ignored,
    }
}

fn in_zone(candidate: &Candidate<'_>, zone: &str) -> bool {
    candidate.zones.is_some_and(|zones| zones.iter().any(|name| **name == *zone))
}

/// The targets of the first, about `room`, or of the second if there are none.
fn targets_or<'a, 'c: 'a>(
    first: impl Iterator<Item = &'a Candidate<'c>>,
    second: impl Iterator<Item = &'a Candidate<'c>>,
    room: usize,
) -> TargetList {
    let mut targets = TargetList::with_capacity(room);
    targets.extend(first.map(|c| c.target));
    if targets.is_empty() {
        targets.extend(second.map(|c| c.target));
    }
    targets
}

/// Every target that takes traffic, new or old: ready, or serving until it ends; sorted. Neither
/// policies nor topology count.
pub(super) fn serving(slices: &[StoredSlice], port: &ServicePort, ipv4: bool) -> Vec<Target> {
    let candidates = candidates(slices, port, ipv4).into_iter();
    let serving = candidates.filter(|c| c.conditions.ready || c.serves_terminating());
    let mut targets: Vec<_> = serving.map(|c| c.target).collect();
    targets.sort_unstable();
    targets
}

/// Every target once, in the order of slices and endpoints.
fn candidates<'a>(slices: &'a [StoredSlice], port: &ServicePort, ipv4: bool) -> Candidates<'a> {
    let most = slices.iter().map(StoredSlice::len).sum();
    let mut found = Candidates::with_capacity(most);
    let mut index = Index::default();
    for slice in slices {
        let ports = slice.ports.iter();
        for slice_port in ports.filter(|p| p.name == port.name && p.protocol == port.protocol) {
            for endpoint in slice.endpoints().filter(|e| e.address.is_ipv4() == ipv4) {
                let target = Target { address: endpoint.address, port: slice_port.port };
                let (conditions, zones) = (endpoint.conditions, endpoint.zones);
                let candidate = Candidate { target, conditions, zones };
                match index.position(&found, target, most) {
                    Some(known) if found[known].rank() < candidate.rank() => {
                        found[known] = candidate;
                    }
                    Some(_) => {}
                    None => found.push(candidate),
                }
            }
        }
    }
    found
}

/// Finds a target among the candidates: by looking while they are few, by hash when they are many.
///
/// It holds positions and not targets, because services of thousands of endpoints go through it
/// at each change.
#[derive(Default)]
struct Index {
    positions: HashTable<usize>,
    hasher: RandomState,
}

impl Index {
    const FEW: usize = 16;

    /// Position of `target` in `found`, which grows to about `most`; if it is absent it is about
    /// to be pushed.
    fn position(&mut self, found: &[Candidate<'_>], target: Target, most: usize) -> Option<usize> {
        if found.len() < Self::FEW {
            return found.iter().position(|known| known.target == target);
        }
        let hash = |target: Target| self.hasher.hash_one(target);
        let hash_at = |position: &usize| hash(found[*position].target);
        if self.positions.is_empty() {
            self.positions.reserve(most, hash_at);
            for position in 0..found.len() {
                self.positions.insert_unique(hash_at(&position), position, hash_at);
            }
        }
        let is_target = |position: &usize| found[*position].target == target;
        match self.positions.entry(hash(target), is_target, hash_at) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(vacant) => {
                vacant.insert(found.len());
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stored::PortLists;
    use crate::model::{Endpoint, EndpointPort, EndpointSlice, ObjectName, Protocol};

    const READY: Conditions = Conditions::READY;
    const TERMINATING: Conditions = Conditions { ready: false, terminating: true, ..READY };
    const DEAD: Conditions = Conditions { serving: false, ..TERMINATING };
    const UNREADY: Conditions = Conditions { ready: false, ..READY };

    fn local(conditions: Conditions) -> Conditions {
        Conditions { local: true, ..conditions }
    }

    fn endpoint(last: u8, conditions: Conditions) -> Endpoint {
        Endpoint { address: IpAddr::from([10, 244, 0, last]), conditions, zones: None }
    }

    fn in_zone(endpoint: &Endpoint, zone: &str) -> Endpoint {
        Endpoint { zones: Some(Arc::new(vec![zone.into()])), ..endpoint.clone() }
    }

    fn slice(port: u16, endpoints: &[Endpoint]) -> StoredSlice {
        let slice = EndpointSlice {
            name: ObjectName::namespaced("default", &format!("slice-{port}")),
            service: ObjectName::namespaced("default", "web"),
            ports: vec![EndpointPort::tcp("http", NonZeroU16::new(port).unwrap())],
            endpoints: endpoints.to_vec(),
        };
        StoredSlice::new(slice, &mut PortLists::default())
    }

    fn service_port(name: &str, protocol: Protocol) -> ServicePort {
        let port = NonZeroU16::new(80).unwrap();
        ServicePort { name: name.into(), protocol, port, node_port: None }
    }

    fn numbers(targets: &[Target]) -> Vec<(u8, u16)> {
        let last = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        targets.iter().map(|target| (last(target.address), target.port.get())).collect()
    }

    fn select(slices: &[StoredSlice], zone: Option<&str>) -> UsableEndpoints {
        let zone: Option<Arc<str>> = zone.map(Arc::from);
        let port = service_port("http", Protocol::Tcp);
        UsableEndpoints::select(slices, &port, true, zone.as_ref())
    }

    /// `cluster` and `local` are the last bytes of the addresses that are expected.
    #[track_caller]
    fn check(endpoints: &[Endpoint], cluster: &[u8], local: &[u8]) {
        let usable = select(&[slice(8080, endpoints)], Some("z1"));
        let expected = |list: &[u8]| list.iter().map(|last| (*last, 8080)).collect::<Vec<_>>();
        assert_eq!(numbers(&usable.cluster), expected(cluster));
        assert_eq!(numbers(&usable.local), expected(local));
    }

    #[test]
    fn ready_endpoints_are_used_and_others_are_not() {
        let all = [
            endpoint(1, READY),
            endpoint(2, UNREADY),
            endpoint(3, TERMINATING),
            endpoint(4, local(READY)),
        ];
        check(&all, &[1, 4], &[4]);
    }

    #[test]
    fn endpoints_that_serve_while_they_terminate_are_used_if_there_is_no_other() {
        check(&[endpoint(1, TERMINATING), endpoint(2, local(TERMINATING))], &[1, 2], &[2]);
    }

    #[test]
    fn the_fallback_to_terminating_endpoints_is_decided_for_this_node_alone() {
        check(&[endpoint(1, READY), endpoint(2, local(TERMINATING))], &[1], &[2]);
    }

    #[test]
    fn unready_and_dead_endpoints_are_never_used() {
        check(&[endpoint(1, UNREADY), endpoint(2, local(DEAD))], &[], &[]);
    }

    #[test]
    fn of_two_entries_for_one_address_the_live_one_counts_in_either_order() {
        check(&[endpoint(1, TERMINATING), endpoint(1, READY)], &[1], &[]);
        check(&[endpoint(1, READY), endpoint(1, TERMINATING)], &[1], &[]);
    }

    #[test]
    fn slices_with_different_ports_for_one_name_are_both_used() {
        let slices = [slice(8080, &[endpoint(1, READY)]), slice(9090, &[endpoint(1, READY)])];
        assert_eq!(numbers(&select(&slices, None).cluster), [(1, 8080), (1, 9090)]);
    }

    #[test]
    fn a_port_of_another_name_protocol_or_family_is_not_used() {
        let slices = [slice(8080, &[endpoint(1, READY)])];
        for (name, protocol, ipv4) in [
            ("", Protocol::Tcp, true),
            ("http", Protocol::Udp, true),
            ("http", Protocol::Tcp, false),
        ] {
            let port = service_port(name, protocol);
            let usable = UsableEndpoints::select(&slices, &port, ipv4, None);
            assert!(usable.is_empty(), "{name} {protocol} {ipv4}");
        }
    }

    #[test]
    fn zone_hints_are_obeyed_if_all_ready_endpoints_have_one_and_one_is_ours() {
        let (ours, other) =
            (in_zone(&endpoint(1, READY), "z1"), in_zone(&endpoint(2, local(READY)), "z2"));
        check(&[ours.clone(), other.clone()], &[1], &[2]);
        check(&[ours.clone(), other.clone(), endpoint(3, READY)], &[1, 2, 3], &[2]);
        check(&[ours, other.clone(), endpoint(3, UNREADY)], &[1], &[2]);
        check(&[other], &[2], &[2]);
    }

    #[test]
    fn node_hints_come_before_zone_hints() {
        let hinted = |last, for_node| {
            let conditions =
                Conditions { has_node_hints: true, hinted_for_node: for_node, ..READY };
            in_zone(&endpoint(last, conditions), if last == 3 { "z2" } else { "z1" })
        };
        check(&[hinted(1, true), hinted(2, false), hinted(3, false)], &[1], &[]);
        check(&[hinted(1, false), hinted(2, false), hinted(3, false)], &[1, 2], &[]);
    }

    #[test]
    fn many_endpoints_are_told_apart_like_few() {
        let many: Vec<_> = (0..100).map(|last| endpoint(last, READY)).collect();
        let twice = [slice(8080, &many), slice(8080, &many), slice(9090, &many[..10])];
        assert_eq!(select(&twice, None).cluster.len(), 110);
    }
}
