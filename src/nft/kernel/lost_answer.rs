//! Determines whether a transaction with a lost answer was applied.
//!
//! A transaction is applied as a whole or not at all. So one element that it adds or deletes decides
//! for all of it. Contradictory elements mean that another program has changed the table.
//!
//! A commit asks this before it returns, so the outcome is unknown to its caller only if nothing
//! shows it.

use std::sync::Arc;

use ahash::HashSet;

use super::interface::Kernel;
use crate::element::Element;
use crate::set::Set;
use crate::table::TableRef;
use crate::transaction::{Operation, Transaction};
use crate::value::Value;

/// Looks up one element of each operation. Returns whether the transaction was applied; `None` if
/// that does not follow, or if the transaction changes more than elements.
///
/// Before the transaction, the table must have held the elements that it deletes, and none that it
/// adds. After a change by another program the result may be wrong.
pub fn was_applied<K: Kernel>(kernel: &mut K, transaction: &Transaction) -> Option<bool> {
    let changes =
        transaction.operations.iter().map(ElementChange::of).collect::<Option<Vec<_>>>()?;
    let mut was_applied = None;
    for (place, change) in changes.iter().enumerate() {
        let others = changes.iter().enumerate().filter(|(other, _)| *other != place);
        let Some(key) = change.exclusive_key(others.map(|(_, other)| other)) else { continue };
        let found =
            kernel.find_elements(change.table, &change.set.name, &[key], &mut |_| {}).ok()?;
        let is_applied = (found > 0) == change.adds;
        if was_applied.replace(is_applied).is_some_and(|other| other != is_applied) {
            return None;
        }
    }
    was_applied
}

/// Returns whether a transaction changes elements alone.
pub(super) fn is_of_elements(transaction: &Transaction) -> bool {
    transaction.operations.iter().all(|operation| operation.elements().is_some())
}

/// Elements that an operation adds or deletes.
struct ElementChange<'a> {
    table: &'a TableRef,
    set: &'a Arc<Set>,
    elements: &'a [Element],
    adds: bool,
}

impl<'a> ElementChange<'a> {
    fn of(operation: &'a Operation) -> Option<Self> {
        let adds = matches!(operation, Operation::AddElements(..));
        let (Operation::AddElements(table, set, elements)
        | Operation::DeleteElements(table, set, elements)) = operation
        else {
            return None;
        };
        Some(Self { table, set, elements, adds })
    }

    /// Returns a key that no other operation concerns: a key that is deleted and added exists
    /// before and after. A lookup of an interval may find another one.
    fn exclusive_key<'b>(&self, others: impl Iterator<Item = &'b Self>) -> Option<Value>
    where
        'a: 'b,
    {
        let of_set = others.filter(|it| it.table == self.table && it.set.name == self.set.name);
        let taken: HashSet<&Value> = of_set.flat_map(|it| it.elements).map(|it| &it.key).collect();
        let mut elements = self.elements.iter();
        let own = elements.find(|it| it.key_end.is_none() && !taken.contains(&it.key));
        own.map(|element| element.key.clone())
    }
}
