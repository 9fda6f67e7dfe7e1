//! For which timeouts of session affinity the tables have chains.

use std::collections::BTreeSet;

use super::read_back::Found;
use crate::desired::Layout;
use crate::desired::layout::Role;

/// Timeouts in seconds: all that services have, and those that sessions in the kernel, or on their
/// way there, may still have.
#[derive(Debug, Default)]
pub(super) struct TableTimeouts(BTreeSet<u32>);

impl TableTimeouts {
    /// Adds those that services have; whether one is new.
    pub(super) fn add(&mut self, timeouts: impl Iterator<Item = u32>) -> bool {
        let before = self.0.len();
        self.0.extend(timeouts);
        self.0.len() > before
    }

    /// Adds those that the kernel's tables have; whether one is new.
    pub(super) fn observe(&mut self, found: &[Found; 2], layout: &Layout) -> bool {
        let sets = found.iter().flat_map(|found| &found.contents).flat_map(|found| &found.sets);
        let placed = sets.filter_map(|set| layout.by_name(&set.name));
        self.add(placed.filter_map(|placed| {
            let Role::Timeout(seconds) = placed.role else { return None };
            Some(seconds)
        }))
    }

    /// Forgets all but `used`, those that services have; whether there was another. To be asked when
    /// the kernel holds everything that is desired.
    pub(super) fn keep_only(&mut self, used: impl Iterator<Item = u32>) -> bool {
        let former = std::mem::replace(&mut self.0, used.collect());
        self.0 != former
    }

    /// All of them, ascending.
    pub(super) fn to_vec(&self) -> Vec<u32> {
        self.0.iter().copied().collect()
    }
}
