//! The number of elements that each set should have, after the transactions that were applied.

use engine::FoundTable;
use engine::ruleset::SetId;
use nft::Operation;
use nft::family::Family;

use crate::observe::{Observe, SetSizes};

/// The expected number of elements of each set. It changes with what is read, written, and found
/// missing or added, and it is the value of a metric.
#[derive(Debug)]
pub(super) struct ExpectedSizes(SetSizes);

impl ExpectedSizes {
    pub(super) fn new(observe: &Observe) -> Self {
        Self(observe.metrics().commits.set_sizes(SETS.map(SetId::name)))
    }

    /// Sets the sizes to those of the tables that were read.
    pub(super) fn found(&self, tables: &[FoundTable; 2]) {
        for (family, table) in Family::ALL.into_iter().zip(tables) {
            for (i, set) in SETS.into_iter().enumerate() {
                self.0.set(family, i, table.sizes[set as usize]);
            }
        }
    }

    /// Returns the expected number of elements of a set.
    pub(super) fn size(&self, family: Family, set: SetId) -> i64 {
        place(set.name()).map_or(0, |set| self.0.get(family, set))
    }

    /// Subtracts a missing element.
    pub(super) fn lost(&self, family: Family, set: SetId) {
        if let Some(set) = place(set.name()) {
            self.0.subtract(family, set, 1);
        }
    }

    /// Adds an element that another program added.
    pub(super) fn gained(&self, family: Family, set: SetId) {
        if let Some(set) = place(set.name()) {
            self.0.add(family, set, 1);
        }
    }

    /// Returns the expected number of elements of all sets.
    pub(super) fn elements(&self) -> i64 {
        let size = |family, set| self.size(family, set);
        Family::ALL.iter().flat_map(|family| SETS.map(|set| size(*family, set))).sum()
    }

    /// Adjusts the sizes to an operation that was applied.
    pub(super) fn applied(&self, operation: &Operation) {
        let Some(family) = operation.family() else { return };
        match operation {
            Operation::AddElements(_, set, elements) => {
                if let Some(set) = place(&set.name) {
                    self.0.add(family, set, elements.len());
                }
            }
            Operation::DeleteElements(_, set, elements) => {
                if let Some(set) = place(&set.name) {
                    self.0.subtract(family, set, elements.len());
                }
            }
            Operation::DeleteSet(_, set) | Operation::FlushSet(_, set) => {
                if let Some(set) = place(set) {
                    self.0.set(family, set, 0);
                }
            }
            Operation::DeleteTable(_) => {
                (0..SETS.len()).for_each(|set| self.0.set(family, set, 0));
            }
            Operation::AddTable(_)
            | Operation::AddChain(..)
            | Operation::DeleteChain(..)
            | Operation::FlushChain(..)
            | Operation::AddRule(..)
            | Operation::DeleteRule(..)
            | Operation::AddFlowtable(..)
            | Operation::DeleteFlowtable(..)
            | Operation::AddDevices(..)
            | Operation::DeleteDevices(..)
            | Operation::AddSet(..) => {}
        }
    }
}

/// The sets whose elements are counted: all but the last one, which packets write.
/// Evaluated by the compiler, so it cannot panic.
const SETS: [SetId; SetId::ALL.len() - 1] = *SetId::ALL.first_chunk().unwrap();

/// Returns the index of a set in [`SETS`].
fn place(name: &str) -> Option<usize> {
    SETS.into_iter().position(|set| set.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_but_that_of_packets_is_counted_once() {
        for set in SetId::ALL {
            let found = SETS.into_iter().filter(|counted| *counted == set).count();
            assert_eq!(found, usize::from(set != SetId::AffinityClients), "{set:?}");
        }
    }
}
