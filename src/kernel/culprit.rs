//! Which part of a transaction the kernel refused, in words.

use nix::errno::Errno;

use super::CommitError;
use super::answer::Refusal;
use crate::nft::{
    self, Batch, EncodeError, Location, MessageOrigin, Operation, TableRef, Transaction,
};

/// Longest text in bytes that names an object in an error.
const MAX_TEXT: usize = 300;

/// What is refused if it is no operation.
pub(super) const WHOLE: &str = "the transaction as a whole";

/// What a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Culprit {
    /// Index of the operation; `None` for the transaction as a whole.
    pub operation: Option<usize>,
    /// Index into the operation's elements.
    pub element: Option<usize>,
    /// The table of the operation.
    pub table: Option<TableRef>,
    /// The object and the field, in words.
    pub what: String,
}

/// Finds what `refusal` is about.
pub(super) fn find(transaction: &Transaction, batch: &Batch, refusal: &Refusal) -> Culprit {
    let origin = batch.origin(refusal.sequence);
    let found = origin.and_then(|at| Some((at, transaction.operations.get(at.operation)?)));
    let Some((origin, operation)) = found else {
        let what = WHOLE.to_owned();
        return Culprit { operation: None, element: None, table: None, what };
    };
    let location = locate(batch, origin, refusal.offset);
    let element = location.element.map(|index| origin.first_element + index);
    Culprit {
        operation: Some(origin.operation),
        element,
        table: Some(table(operation)),
        what: describe(operation, element, &location),
    }
}

/// A transaction that cannot be encoded, reported like one that the kernel refuses.
pub(super) fn unencodable(transaction: &Transaction, error: &EncodeError) -> CommitError {
    let (operation, element) = match error {
        EncodeError::TooLong { operation } | EncodeError::Statement { operation, .. } => {
            (*operation, None)
        }
        EncodeError::Element { operation, element } => (*operation, Some(*element)),
    };
    let refused = transaction.operations.get(operation);
    CommitError::Refused {
        operation: Some(operation),
        element,
        errno: Errno::EINVAL,
        reason: Some(error.to_string()),
        what: refused.map_or_else(
            || WHOLE.to_owned(),
            |refused| describe(refused, element, &Location::default()),
        ),
    }
}

fn locate(batch: &Batch, origin: MessageOrigin, offset: Option<u32>) -> Location {
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    offset.map(|offset| nft::locate(batch.message(origin), offset)).unwrap_or_default()
}

/// The operation in nft's notation, narrowed to the element, and the field.
pub(super) fn describe(operation: &Operation, element: Option<usize>, at: &Location) -> String {
    let text = match element {
        Some(element) => narrowed(operation, element).to_string(),
        None => operation.to_string(),
    };
    let end = text.floor_char_boundary(MAX_TEXT);
    let dots = if end < text.len() { " ..." } else { "" };
    let field = if at.path.is_empty() { String::new() } else { format!(", field {at}") };
    format!("`{}{dots}`{field}", &text[..end])
}

/// The operation with only one of its elements.
fn narrowed(operation: &Operation, element: usize) -> Operation {
    let only = |elements: &[nft::Element]| elements.get(element).cloned().into_iter().collect();
    match operation {
        Operation::AddElements(table, set, elements) => {
            Operation::AddElements(table.clone(), set.clone(), only(elements))
        }
        Operation::DeleteElements(table, set, elements) => {
            Operation::DeleteElements(table.clone(), set.clone(), only(elements))
        }
        Operation::AddTable(_)
        | Operation::DeleteTable(_)
        | Operation::AddChain(..)
        | Operation::DeleteChain(..)
        | Operation::FlushChain(..)
        | Operation::AddRule(..)
        | Operation::AddSet(..)
        | Operation::DeleteSet(..)
        | Operation::FlushSet(..) => operation.clone(),
    }
}

/// The table that an operation is about.
fn table(operation: &Operation) -> TableRef {
    match operation {
        Operation::AddTable(table) => table.reference(),
        Operation::DeleteTable(table)
        | Operation::AddChain(table, _)
        | Operation::DeleteChain(table, _)
        | Operation::FlushChain(table, _)
        | Operation::AddRule(table, _)
        | Operation::AddSet(table, _)
        | Operation::DeleteSet(table, _)
        | Operation::FlushSet(table, _)
        | Operation::AddElements(table, ..)
        | Operation::DeleteElements(table, ..) => table.clone(),
    }
}
