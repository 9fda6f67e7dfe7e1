//! Endpoints of a service port to which packets may be sent.
//!
//! The fallback to terminating endpoints is decided separately for the cluster and for this node.
//! Endpoints of this node are not filtered by hints.

use std::num::NonZeroU16;
use std::sync::Arc;

use ahash::{HashMap, HashSet, HashSetExt};
use nft::family::Family;

use super::choice::Choice;
use super::endpoint::{Conditions, Endpoint, EndpointPort, Zones};
use super::service::ServicePort;
use super::stored::StoredSlice;
use super::target::{Target, TargetList};
use super::weights::{Weight, Weights};

/// Usable endpoints of one service port and family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsableEndpoints {
    /// Endpoints for traffic policy `Cluster`.
    pub cluster: TargetList,
    /// Endpoints on this node, for traffic policy `Local`.
    pub local: TargetList,
}

impl UsableEndpoints {
    /// Selects the endpoints in `slices` that serve `port`; `zone` is the zone of this node.
    pub(super) fn select(
        slices: &[StoredSlice],
        port: &ServicePort,
        family: Family,
        zone: Option<&Arc<str>>,
    ) -> Self {
        let entries = || entries(slices, port, family);
        let choice = Choice::of(relevant(slices, port, family).map(|(slice, _)| slice), zone);
        let local = |included: fn(Conditions) -> bool| {
            let entries = entries().filter(|(_, endpoint)| endpoint.conditions.local);
            // Capacity 0, since few of many endpoints are on one node.
            distinct(entries.filter(|(_, endpoint)| included(endpoint.conditions)), 0)
        };
        let most = slices.iter().map(|slice| slice.endpoints.len()).sum();
        let ready_local = local(|conditions| conditions.ready);
        Self {
            cluster: distinct(entries().filter(|(_, endpoint)| choice.includes(endpoint)), most),
            local: if ready_local.is_empty() {
                local(Conditions::serves_terminating)
            } else {
                ready_local
            },
        }
    }
}

/// Returns whether a port has an endpoint for new flows: ready, or serving while it terminates.
pub(super) fn has_usable(slices: &[StoredSlice], port: &ServicePort, family: Family) -> bool {
    entries(slices, port, family).any(|(_, it)| it.conditions.takes_flows())
}

/// Returns the weight of each endpoint of a port: the greatest of its entries, as slices have no
/// order.
pub(super) fn weights(
    slices: &[StoredSlice],
    port: &ServicePort,
    family: Family,
    rules: Option<&Weights>,
) -> HashMap<Target, Weight> {
    let mut weights = HashMap::default();
    for (slice, port) in relevant(slices, port, family) {
        for (position, endpoint) in slice.endpoints.iter().enumerate() {
            let target = Target { address: endpoint.address, port };
            let weight = slice.weight(position, rules);
            weights.entry(target).and_modify(|known| *known = weight.max(*known)).or_insert(weight);
        }
    }
    weights
}

/// Returns the slices of `family` that serve `port`, each with the port's number at its endpoints.
pub(super) fn relevant<'a>(
    slices: &'a [StoredSlice],
    port: &'a ServicePort,
    family: Family,
) -> impl Iterator<Item = (&'a StoredSlice, NonZeroU16)> + Clone {
    let slices = slices.iter().filter(move |slice| slice.is_of(family));
    slices.flat_map(move |slice| {
        let of_ranges = port.is_of_ranges().then_some((slice, NonZeroU16::MIN));
        let served = EndpointPort::serving(&slice.ports, port).iter();
        served.map(move |slice_port| (slice, slice_port.port)).chain(of_ranges)
    })
}

/// Returns the entries for the endpoints of a port, in the order of slices and endpoints.
pub(super) fn entries<'a>(
    slices: &'a [StoredSlice],
    port: &'a ServicePort,
    family: Family,
) -> impl Iterator<Item = (Target, Endpoint<&'a Arc<Zones>>)> {
    relevant(slices, port, family).flat_map(move |(slice, port)| {
        let endpoints = slice.endpoints.iter();
        endpoints.map(move |endpoint| (Target { address: endpoint.address, port }, endpoint))
    })
}

/// Returns every target once, at its first position, with initial capacity `room`.
fn distinct<'a>(
    entries: impl Iterator<Item = (Target, Endpoint<&'a Arc<Zones>>)>,
    room: usize,
) -> TargetList {
    let mut found = TargetList::with_capacity(room);
    // Most lists are short, and a hash table takes memory and random numbers.
    let mut many: Option<HashSet<Target>> = None;
    for (target, _) in entries {
        let is_new = if found.len() < FEW {
            !found.contains(&target)
        } else {
            let many = many.get_or_insert_with(|| {
                let mut many = HashSet::with_capacity(room);
                many.extend(&found);
                many
            });
            many.insert(target)
        };
        if is_new {
            found.push(target);
        }
    }
    found
}

/// Number of targets up to which a linear search is used.
const FEW: usize = 16;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::model::stored::SharedLists;
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
            ports: [EndpointPort::tcp("http", NonZeroU16::new(port).unwrap())].into(),
            endpoints: endpoints.iter().cloned().collect(),
            triggered: None,
            weighing: None,
        };
        StoredSlice::alone(&slice, &mut SharedLists::default())
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
        UsableEndpoints::select(slices, &port, Family::Ip, zone.as_ref())
    }

    /// Checks the selected endpoints; `cluster` and `local` are the last bytes of their addresses.
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
        for (name, protocol, family) in [
            ("", Protocol::Tcp, Family::Ip),
            ("http", Protocol::Udp, Family::Ip),
            ("http", Protocol::Tcp, Family::Ip6),
        ] {
            let port = service_port(name, protocol);
            let usable = UsableEndpoints::select(&slices, &port, family, None);
            assert_eq!(usable, UsableEndpoints::default(), "{name} {protocol} {family}");
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
    fn duplicate_endpoints_of_long_lists_count_once() {
        let many: Vec<_> = (0..100).map(|last| endpoint(last, READY)).collect();
        let twice = [slice(8080, &many), slice(8080, &many), slice(9090, &many[..10])];
        assert_eq!(select(&twice, None).cluster.len(), 110);
    }
}
