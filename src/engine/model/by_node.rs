//! Endpoints of a service port, counted by their nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use nft::family::Family;

use super::endpoint::Conditions;
use super::service::ServicePort;
use super::stored::StoredSlice;
use super::target::Target;
use super::usable::relevant;

/// Returns the number of distinct endpoints for new flows to a port, by the name of their node: the
/// ready ones, else those that serve while they terminate.
pub(super) fn count(
    slices: &[StoredSlice],
    port: &ServicePort,
    family: Family,
) -> BTreeMap<Arc<str>, u32> {
    let of = |takes_flows| placed(slices, (port, family), takes_flows);
    let mut placed = of(|conditions| conditions.ready);
    if placed.is_empty() {
        placed = of(Conditions::serves_terminating);
    }
    let mut counts = BTreeMap::<Arc<str>, u32>::new();
    let unnamed = Arc::default();
    for (_, node) in placed {
        let node = node.unwrap_or(&unnamed);
        match counts.get_mut(node) {
            Some(count) => *count += 1,
            None => drop(counts.insert(Arc::clone(node), 1)),
        }
    }
    counts
}

/// Returns each endpoint of a port that takes flows once, with its node if that is known. Of several
/// nodes, the first in the order of names counts, as slices have no order.
fn placed<'a>(
    slices: &'a [StoredSlice],
    (port, family): (&'a ServicePort, Family),
    takes_flows: fn(Conditions) -> bool,
) -> Vec<(Target, Option<&'a Arc<str>>)> {
    let mut placed = Vec::new();
    for (slice, port) in relevant(slices, port, family) {
        let endpoints = slice.endpoints.iter().enumerate();
        let taking = endpoints.filter(|(_, it)| takes_flows(it.conditions));
        placed.extend(taking.map(|(i, it)| (Target { address: it.address, port }, slice.node(i))));
    }
    placed.sort_unstable_by_key(|(target, node)| (*target, node.is_none(), *node));
    placed.dedup_by_key(|(target, _)| *target);
    placed
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::num::NonZeroU16;

    use super::*;
    use crate::model::stored::SharedLists;
    use crate::model::{
        Endpoint, EndpointNames, EndpointPort, EndpointSlice, ObjectName, Weighing,
    };

    const READY: Conditions = Conditions::READY;
    const TERMINATING: Conditions = Conditions { ready: false, terminating: true, ..READY };
    const UNREADY: Conditions = Conditions { ready: false, ..READY };
    const HINTED: Conditions = Conditions { has_node_hints: true, ..READY };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 244, 0, last])
    }

    fn slice(port: u16, endpoints: &[(IpAddr, Conditions, &str)]) -> EndpointSlice {
        let nodes = endpoints.iter().map(|(_, _, node)| Arc::new((*node).into()));
        let weighing = Weighing { nodes: nodes.collect(), ..Weighing::default() };
        EndpointSlice {
            name: ObjectName::namespaced("default", "web"),
            service: ObjectName::namespaced("default", "web"),
            ports: [EndpointPort::tcp("http", NonZeroU16::new(port).unwrap())].into(),
            endpoints: (endpoints.iter())
                .map(|(address, conditions, _)| Endpoint {
                    conditions: *conditions,
                    ..Endpoint::ready(*address)
                })
                .collect(),
            triggered: None,
            weighing: Some(Box::new(weighing)),
        }
    }

    fn counts(slices: &[EndpointSlice], family: Family) -> Vec<(String, u32)> {
        let mut lists = SharedLists::default();
        let stored = |slice: &EndpointSlice| StoredSlice::alone(slice, &mut lists);
        let stored: Vec<_> = slices.iter().map(stored).collect();
        let port = ServicePort::tcp("http", NonZeroU16::MIN);
        let counts = count(&stored, &port, family).into_iter();
        counts.map(|(node, count)| (node.to_string(), count)).collect()
    }

    /// Checks the counts of these slices, in any order.
    #[track_caller]
    fn check(slices: &mut [EndpointSlice], expected: &[(&str, u32)]) {
        let expected: Vec<_> =
            expected.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
        assert_eq!(counts(slices, Family::Ip), expected);
        slices.reverse();
        assert_eq!(counts(slices, Family::Ip), expected, "in reverse order");
    }

    #[test]
    fn ready_endpoints_count_by_node_whatever_their_hints() {
        let all = [
            (address(1), READY, "b"),
            (address(2), HINTED, "a"),
            (address(3), Conditions { hinted_for_node: true, ..HINTED }, "b"),
            (address(4), UNREADY, "a"),
            (address(5), TERMINATING, "c"),
            (address(6), READY, ""),
        ];
        check(&mut [slice(80, &all[..3]), slice(80, &all[3..])], &[("", 1), ("a", 1), ("b", 2)]);
    }

    #[test]
    fn without_a_ready_endpoint_those_that_serve_while_they_terminate_count() {
        let dead = Conditions { serving: false, ..TERMINATING };
        let all =
            [(address(1), TERMINATING, "a"), (address(2), UNREADY, "b"), (address(3), dead, "c")];
        check(&mut [slice(80, &all[..1]), slice(80, &all[1..])], &[("a", 1)]);
        check(&mut [slice(80, &all[1..])], &[]);
    }

    #[test]
    fn an_endpoint_counts_once_on_the_first_named_node_and_at_each_of_its_ports() {
        let on = |node| [(address(1), READY, node)];
        check(&mut [slice(80, &on("b")), slice(80, &on("a"))], &[("a", 1)]);
        check(&mut [slice(80, &on("b")), slice(80, &on(""))], &[("b", 1)]);
        check(&mut [slice(80, &on("b")), slice(81, &on("b"))], &[("b", 2)]);
        check(&mut [slice(80, &[on("b"), on("a")].concat())], &[("a", 1)]);
    }

    #[test]
    fn families_count_separately() {
        let ipv6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
        let slices = [slice(80, &[(address(1), READY, "a")]), slice(80, &[(ipv6, READY, "b")])];
        assert_eq!(counts(&slices, Family::Ip), [("a".to_owned(), 1)]);
        assert_eq!(counts(&slices, Family::Ip6), [("b".to_owned(), 1)]);
    }

    #[test]
    fn names_that_are_kept_for_weights_suffice() {
        let mut slice = slice(80, &[(address(1), READY, "a"), (address(2), READY, "b")]);
        let names =
            ["c", "d"].map(|node| EndpointNames { node: node.into(), ..EndpointNames::default() });
        slice.weighing = Some(Box::new(Weighing { names: names.into(), ..Weighing::default() }));
        check(&mut [slice.clone()], &[("c", 1), ("d", 1)]);
        slice.weighing = None;
        check(&mut [slice], &[("", 2)]);
    }
}
