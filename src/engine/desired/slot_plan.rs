//! The contents of the slots of a list.

use std::fmt;

use super::maglev;
use super::slot_demand::SlotGrant;
use crate::model::{HashedSource, Scheduler, Target, TargetList, Weight};
use crate::ruleset::number::{SizeClass, TableSize};
use crate::stable_hash;

/// The contents of the slots of a list.
#[derive(Debug, PartialEq, Eq)]
pub enum SlotPlan {
    /// Each endpoint once, in any slot.
    Once,
    /// Each endpoint with its number of slots, which may be any.
    Weighted(Box<[u32]>),
    /// A table: for each slot, the endpoint's position in the list of endpoints.
    Table(HashedSource, TableSize, Box<[u16]>),
}

/// The slots that a list may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Slots to draw that rules can choose from.
    pub(super) most: u32,
    /// Slots beyond one for each endpoint, or those of a hash table.
    pub(super) grant: SlotGrant,
}

/// A list with fewer slots than it needs; its `Display` is the message for users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reduction {
    grant: SlotGrant,
    endpoints: usize,
    effect: Effect,
}

/// The effect of fewer slots.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    /// The share of an endpoint differs from its weight by this many percentage points at most.
    Shares(f64),
    /// Shares follow live connections in larger steps.
    CoarseShares,
    /// The hash table has this many slots; shares differ from weights by this many percentage points.
    SmallTable(u32, f64),
    NoTable,
}

impl SlotPlan {
    /// Returns the slots that a scheduler needs for these endpoints, within limits. `weights` has
    /// the weight of each, above 0. Sorts the endpoints for a hash table.
    pub(super) fn new(
        scheduler: Scheduler,
        endpoints: &mut TargetList,
        weights: Option<Vec<Weight>>,
        limits: Limits,
    ) -> (Self, Option<Reduction>) {
        let count = endpoints.len();
        let reduction = |effect| Reduction { grant: limits.grant, endpoints: count, effect };
        let (slots, effect) = match (scheduler, weights) {
            // A single endpoint needs no table.
            (Scheduler::Maglev(_), _) if count < 2 => (Self::Once, None),
            (Scheduler::Maglev(source), weights) => {
                match maglev::size_within(count, limits.grant.given) {
                    Some(size) => Self::table(source, endpoints, weights, size),
                    None => (Self::Once, Some(Effect::NoTable)),
                }
            }
            (Scheduler::Random | Scheduler::LeastConnections, weights) => {
                let is_balanced = scheduler == Scheduler::LeastConnections;
                Self::draws(count, weights, limits, is_balanced)
            }
        };
        (slots, effect.map(reduction))
    }

    fn table(
        source: HashedSource,
        endpoints: &mut TargetList,
        weights: Option<Vec<Weight>>,
        size: TableSize,
    ) -> (Self, Option<Effect>) {
        let weights = sort(endpoints, weights);
        let hash = match source {
            HashedSource::AddressForAllPorts => stable_hash::of_address,
            HashedSource::Address | HashedSource::AddressAndPort => stable_hash::of_target,
        };
        let hashes: Vec<_> = endpoints.iter().map(hash).collect();
        let table = maglev::fill(&hashes, weights.as_deref(), size);
        let is_whole = size == maglev::size_for(endpoints.len());
        let effect = (!is_whole).then(|| {
            let mut counts = vec![0; endpoints.len()];
            table.iter().for_each(|place| counts[usize::from(*place)] += 1);
            let weights = weights.unwrap_or_else(|| vec![1; endpoints.len()]);
            Effect::SmallTable(size.slots(), deviation(&weights, &counts))
        });
        (Self::Table(source, size, table), effect)
    }

    fn draws(
        endpoints: usize,
        weights: Option<Vec<Weight>>,
        Limits { most, grant }: Limits,
        is_balanced: bool,
    ) -> (Self, Option<Effect>) {
        // The limit is reported even while the connections do not need the slots.
        let coarse = (is_balanced && endpoints > 1 && grant.given < grant.requested)
            .then_some(Effect::CoarseShares);
        let Some(weights) = weights else { return (Self::Once, coarse) };
        let given = u32::try_from(endpoints).unwrap_or(u32::MAX).saturating_add(grant.given);
        let counts = counts(&weights, most.min(given));
        let all: u64 = weights.iter().map(|it| u64::from(*it)).sum();
        let is_reduced = all > given.into() && given < most && !is_balanced;
        let effect = is_reduced.then(|| Effect::Shares(deviation(&weights, &counts)));
        (Self::Weighted(counts.into_boxed_slice()), effect.or(coarse))
    }

    /// Returns the number of slots for `endpoints` endpoints.
    pub(crate) fn count(&self, endpoints: usize) -> usize {
        match self {
            Self::Once => endpoints,
            Self::Weighted(counts) => counts.iter().map(|count| *count as usize).sum(),
            Self::Table(_, _, table) => table.len(),
        }
    }

    /// Returns the size class of the list.
    pub(super) fn size(&self, endpoints: usize) -> SizeClass {
        match self {
            Self::Once | Self::Weighted(_) => SizeClass::of(self.count(endpoints)),
            Self::Table(source, size, _) => SizeClass::of_table(*source, *size),
        }
    }
}

/// Sorts endpoints and their weights.
fn sort(endpoints: &mut TargetList, weights: Option<Vec<Weight>>) -> Option<Vec<Weight>> {
    let Some(weights) = weights else {
        endpoints.sort_unstable();
        return None;
    };
    let mut pairs: Vec<(Target, Weight)> = endpoints.iter().copied().zip(weights).collect();
    pairs.sort_unstable();
    *endpoints = pairs.iter().map(|(target, _)| *target).collect();
    Some(pairs.into_iter().map(|(_, weight)| weight).collect())
}

/// Returns the number of slots of each endpoint: its weight. If the sum exceeds `limit`, returns
/// proportional shares of `limit`, at least one slot each.
fn counts(weights: &[Weight], limit: u32) -> Vec<u32> {
    let all: u64 = weights.iter().map(|it| u64::from(*it)).sum();
    let limit = u64::from(limit);
    if all <= limit {
        return weights.iter().map(|it| u32::from(*it)).collect();
    }
    // One slot each is reserved, so that rounding down never exceeds the limit.
    let shared = limit.saturating_sub(weights.len() as u64);
    let count = |weight: &Weight| 1 + u64::from(*weight) * shared / all;
    weights.iter().map(|weight| u32::try_from(count(weight)).unwrap_or(1)).collect()
}

/// Returns the largest difference between the shares by weight and by slots, in percentage points.
fn deviation(weights: &[Weight], counts: &[u32]) -> f64 {
    let sum = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>().max(1.0);
    let desired = sum(&mut weights.iter().map(|it| f64::from(*it)));
    let found = sum(&mut counts.iter().map(|it| f64::from(*it)));
    let difference = |(weight, count): (&Weight, &u32)| {
        (f64::from(*weight) / desired - f64::from(*count) / found).abs() * 100.0
    };
    weights.iter().zip(counts).map(difference).fold(0.0, f64::max)
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grant: SlotGrant { requested, given }, endpoints, effect } = *self;
        match effect {
            Effect::Shares(points) => write!(
                f,
                "its {endpoints} endpoints request {requested} slots beyond one each and get {given}: \
                 the share of one differs from its weight by {points:.2} percentage points"
            ),
            Effect::CoarseShares => write!(
                f,
                "its {endpoints} endpoints request {requested} slots beyond one each and get {given}: \
                 shares follow live connections in larger steps"
            ),
            Effect::SmallTable(slots, points) => write!(
                f,
                "the hash table of its {endpoints} endpoints needs {requested} slots and gets {slots}: \
                 the share of one differs from its weight by {points:.2} percentage points, and \
                 more clients move when one goes"
            ),
            Effect::NoTable => write!(
                f,
                "the hash table of its {endpoints} endpoints needs {requested} slots and gets none: \
                 connections go to any endpoint, without weights"
            ),
        }?;
        write!(
            f,
            "; services of this namespace request more than its share of the node's slots \
                   (deltaproxy.slotBudget)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_slots_up_to_the_limit_and_shares_beyond() {
        assert_eq!(counts(&[1, 2, 3], 6), [1, 2, 3]);
        assert_eq!(counts(&[100, 200, 300], 63), [11, 21, 31]);
        let many = vec![65_535; 8_192];
        assert_eq!(counts(&many, 16_384), vec![2; 8_192]);
        let uneven: Vec<_> = (1..=1_000).collect();
        let counts = counts(&uneven, 2_000);
        assert!(counts.iter().sum::<u32>() <= 2_000);
        assert!(counts.iter().all(|count| *count > 0));
    }
}
