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
        let endpoints = slice.endpoints().enumerate();
        let endpoints = endpoints.filter(|(_, it)| Family::of(it.address) == family);
        let taking = endpoints.filter(|(_, it)| takes_flows(it.conditions));
        placed.extend(taking.map(|(i, it)| (Target { address: it.address, port }, slice.node(i))));
    }
    placed.sort_unstable_by_key(|(target, node)| (*target, node.is_none(), *node));
    placed.dedup_by_key(|(target, _)| *target);
    placed
}
