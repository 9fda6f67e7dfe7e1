//! What a transaction changes, object by object, in nft's words.

use crate::nft::Operation;

/// One object or element that is added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// `+` for what is added, `-` for what is removed.
    pub(super) sign: char,
    /// The command of nft(8).
    pub(super) command: String,
}

impl Change {
    fn of(operation: &Operation) -> Self {
        let is_added = matches!(
            operation,
            Operation::AddTable(_)
                | Operation::AddChain(..)
                | Operation::AddRule(..)
                | Operation::AddSet(..)
                | Operation::AddElements(..)
        );
        Self { sign: if is_added { '+' } else { '-' }, command: operation.to_string() }
    }
}

/// The changes of one operation: each object, or each element in its order.
pub(super) fn changes(operation: &Operation) -> Vec<Change> {
    match operation.elements() {
        Some(elements) => {
            (0..elements.len()).map(|element| Change::of(&operation.narrowed(element))).collect()
        }
        None => vec![Change::of(operation)],
    }
}
