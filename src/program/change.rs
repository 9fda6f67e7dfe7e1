//! The changes of a transaction, object by object, in the syntax of nft(8).

use nft::Operation;

/// An object or element that is added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangeLine {
    /// `+` for an addition, `-` for a removal.
    pub(super) sign: char,
    /// The command of nft(8).
    pub(super) command: String,
}

impl ChangeLine {
    fn of(operation: &Operation) -> Self {
        let is_added = matches!(
            operation,
            Operation::AddTable(_)
                | Operation::AddChain(..)
                | Operation::AddRule(..)
                | Operation::AddSet(..)
                | Operation::AddFlowtable(..)
                | Operation::AddDevices(..)
                | Operation::AddElements(..)
        );
        Self { sign: if is_added { '+' } else { '-' }, command: operation.to_string() }
    }
}

/// Returns the changes of one operation: each object, or each element in order.
pub(super) fn changes(operation: &Operation) -> Vec<ChangeLine> {
    match operation.elements() {
        Some(elements) => (0..elements.len())
            .map(|element| ChangeLine::of(&operation.narrowed(element)))
            .collect(),
        None => vec![ChangeLine::of(operation)],
    }
}
