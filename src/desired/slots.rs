//! The contents of the slots of a list.

use super::maglev;
use crate::model::{HashedSource, Scheduler, Target, TargetList, Weight};
use crate::ruleset::number::{SizeClass, TableSize};

/// The contents of the slots of a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Slots {
    /// Each endpoint once, in any slot.
    Once,
    /// Each endpoint with its number of slots, which may be any.
    Weighted(Box<[u32]>),
    /// A table: for each slot, the endpoint's position in the list of endpoints.
    Table(HashedSource, TableSize, Box<[u16]>),
}

impl Slots {
    /// Returns the slots that a scheduler needs for these endpoints. `weights` has the weight of
    /// each, above 0. Sorts the endpoints for a table. Uses at most `limit` slots for draws.
    pub(super) fn new(
        scheduler: Scheduler,
        endpoints: &mut TargetList,
        weights: Option<Vec<Weight>>,
        limit: u32,
    ) -> Self {
        match (scheduler, weights) {
            // A single endpoint needs no table.
            (Scheduler::Maglev(_), _) if endpoints.len() < 2 => Self::Once,
            (Scheduler::Maglev(source), weights) => {
                let weights = sort(endpoints, weights);
                let size = maglev::size_for(endpoints.len());
                Self::Table(source, size, maglev::fill(endpoints, weights.as_deref(), size))
            }
            (Scheduler::Random | Scheduler::LeastConnections, None) => Self::Once,
            (Scheduler::Random | Scheduler::LeastConnections, Some(weights)) => {
                Self::Weighted(counts(&weights, limit).into_boxed_slice())
            }
        }
    }

    /// Returns the number of slots for `endpoints` endpoints.
    pub(super) fn count(&self, endpoints: usize) -> usize {
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
