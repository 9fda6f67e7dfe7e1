//! The order of base chains at a hook, and the outcomes where it is not known.

use std::collections::HashSet;

use nft::{BaseChain, HookPoint, Name, TableRef};

use super::percent::Percent;
use super::state::merge_by;
use super::step::{ChainId, PossibleFate};

/// A base chain with its table and name.
pub(super) type Placed<'a> = (&'a TableRef, &'a Name, &'a BaseChain);

/// Sorts the base chains of a hook in the order in which the kernel calls them, which `called` tells.
/// Returns those whose order is not known. These come in the order of their names, or reversed.
pub(super) fn sort(
    chains: &mut [Placed<'_>],
    called: impl FnOnce() -> Option<Vec<(TableRef, Name)>>,
    is_reversed: bool,
) -> Vec<Vec<ChainId>> {
    chains.sort_by_key(|(.., base)| order(base));
    let mut open: Vec<_> = chains
        .chunk_by_mut(|(.., a), (.., b)| order(a).0 == order(b).0)
        .filter(|equal| equal.windows(2).any(are_unordered))
        .collect();
    let called = if open.is_empty() { None } else { called() }.unwrap_or_default();
    let place = |(id, name, _): &Placed<'_>| {
        called.iter().position(|(table, chain)| (table, chain) == (*id, *name))
    };
    let mut unordered = Vec::new();
    for equal in &mut open {
        if equal.iter().all(|chain| place(chain).is_some()) {
            equal.sort_by_key(place);
            continue;
        }
        unordered.push(equal.iter().map(|(id, name, _)| ChainId::new(id, name)).collect());
        if is_reversed {
            equal.reverse();
            equal.sort_by_key(|(.., base)| (base.kind != "nat", order(base).1));
        }
    }
    unordered
}

/// Returns the sort key of a base chain at its hook. The kernel calls chains of type nat from one
/// hook of their own, whatever their priority (`nf_nat_ipv4_ops`), and in the order of their
/// priorities.
fn order(base: &BaseChain) -> (i32, i32) {
    const DESTINATION: i32 = -100;
    const SOURCE: i32 = 100;
    match &*base.kind {
        "nat" if changes_destination(base) => (DESTINATION, base.priority),
        "nat" => (SOURCE, base.priority),
        _ => (base.priority, i32::MIN),
    }
}

/// Returns whether the order of two neighbours by [`order`] depends on which was registered last.
fn are_unordered(neighbours: &[Placed<'_>]) -> bool {
    let mut orders = neighbours.iter().map(|(.., base)| order(base));
    let (first, second) = (orders.next(), orders.next());
    first == second || first.is_some_and(|(_, priority)| priority == i32::MIN)
}

pub(super) fn changes_destination(base: &BaseChain) -> bool {
    [HookPoint::Prerouting, HookPoint::Output].iter().any(|point| *point as u32 == base.hook)
}

/// Returns whether outcomes are the same, in any order.
pub(super) fn is_alike(some: &[PossibleFate], others: &[PossibleFate]) -> bool {
    let of = |outcomes: &[PossibleFate]| -> HashSet<_> {
        let outcomes = outcomes.iter();
        outcomes.map(|it| (it.fate.clone(), it.is_certain, Percent(it.share).to_string())).collect()
    };
    of(some) == of(others)
}

/// Returns the outcomes of two orders, of which one is true.
pub(super) fn either(some: Vec<PossibleFate>, others: Vec<PossibleFate>) -> Vec<PossibleFate> {
    let outcomes =
        some.into_iter().chain(others).map(|it| PossibleFate { is_certain: false, ..it });
    merge_by(outcomes, |it| it.fate.clone(), |equal, it| equal.share = equal.share.max(it.share))
}
