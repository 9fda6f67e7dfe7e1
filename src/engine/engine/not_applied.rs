//! The installed state after a refusal, without reading the tables.
//!
//! A step counts as installed as soon as it is made. After a refusal, each element of its
//! transactions is looked up, and the finding replaces the installed state.

use std::collections::BTreeSet;

use nft::{Operation, Transaction};

use super::transactions::Part;
use super::{Changed, ElementId, Engine};
use crate::model::ObjectName;
use crate::ruleset::SetId;

/// Most elements that are looked up. With more, the tables are read.
const MAX_PLACES: usize = 1_024;

impl Engine {
    /// Returns the places of all elements of a refused transaction, and of the other parts of its
    /// step.
    /// `None` if the tables must be read: more than elements was to change, or a look-up by key does
    /// not suffice.
    pub fn places_of_refused(&self, transaction: &Transaction) -> Option<Vec<ElementId>> {
        let parts = &self.prepared;
        let mut in_flight = self.in_flight.iter().chain(parts.iter().map(Part::in_flight));
        if self.in_flight.is_empty() || in_flight.any(|it| it.base.is_some()) {
            return None;
        }
        let mut places = BTreeSet::new();
        let of_parts = parts.iter().flat_map(Part::operations);
        for operation in transaction.operations.iter().chain(of_parts) {
            let (Operation::AddElements(table, set, elements)
            | Operation::DeleteElements(table, set, elements)) = operation
            else {
                return None;
            };
            let (family, set) = (table.family, SetId::by_name(&set.name)?);
            if set == SetId::SourceRanges || set.is_of_affinity() {
                return None;
            }
            places.extend(elements.iter().map(|element| ElementId {
                family,
                set,
                key: element.key,
            }));
            if places.len() > MAX_PLACES {
                return None;
            }
        }
        Some(places.into_iter().collect())
    }

    /// Records that the step in flight is not applied. `changed` are the look-ups of
    /// [`Engine::places_of_refused`]. Returns false if the tables must be read.
    pub fn undo_step(&mut self, changed: &[Changed]) -> bool {
        self.in_flight.clear();
        self.prepared.clear();
        self.undone = [true; 2];
        let mut services: BTreeSet<ObjectName> =
            std::mem::take(&mut self.after_commit).into_iter().collect();
        let Some(differences) = self.element_differences(changed) else { return false };
        let mut is_enough = true;
        for (service, installed, finding) in differences.of_services {
            is_enough &= self.correct(installed, finding);
            services.insert(service);
        }
        let Some(adopting) = self.adopt(&differences.of_none) else { return false };
        services.extend(adopting);
        self.diff.drop_named_leftovers();
        for service in services {
            self.diff.forget_serving(&service);
            self.update_again(service);
        }
        is_enough
    }
}
