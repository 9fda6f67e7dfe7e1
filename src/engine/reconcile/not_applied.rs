//! The installed state after a refusal, without reading the tables.
//!
//! A step counts as installed as soon as it is made. After a refusal, each element of its
//! transactions is looked up, and the finding replaces the installed state.

use std::collections::BTreeSet;

use nft::{Operation, Transaction};

use super::steps::Steps;
use super::table_id::TableId;
use crate::diff::ElementId;
use crate::ruleset::SetId;

/// What is in doubt after a refused transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// These elements.
    Elements(Vec<ElementId>),
    /// The table of direct return.
    DirectReturn,
}

impl Steps {
    /// Returns what is in doubt after a refused transaction: all its elements, and those of the other
    /// parts of its step and of the transaction that was made ahead.
    /// `None` if the tables must be read: more than elements was to change, or a lookup by key does
    /// not suffice.
    pub(super) fn refused(
        &self,
        transaction: &Transaction,
        ahead: Option<&Transaction>,
    ) -> Option<Refused> {
        if self.in_flight.is_empty() || self.parts().any(|it| it.base.is_some()) {
            return None;
        }
        if self.has_parts(TableId::DirectReturn) {
            return Some(Refused::DirectReturn);
        }
        let mut places = BTreeSet::new();
        let of_parts = self.prepared.iter().flat_map(|part| &part.operations);
        let of_ahead = ahead.into_iter().flat_map(|ahead| &ahead.operations);
        for operation in transaction.operations.iter().chain(of_ahead).chain(of_parts) {
            let (Operation::AddElements(table, set, elements)
            | Operation::DeleteElements(table, set, elements)) = operation
            else {
                return None;
            };
            let (family, set) = (table.family.of_addresses()?, SetId::by_name(&set.name)?);
            if set.is_of_affinity() {
                return None;
            }
            places.extend(elements.iter().map(|element| ElementId {
                family,
                set,
                key: element.key.clone(),
            }));
        }
        Some(Refused::Elements(places.into_iter().collect()))
    }
}
