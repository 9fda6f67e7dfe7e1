//! Describes the part of a transaction that the kernel refused.

use nix::errno::Errno;

use super::answer::Refusal;
use super::error::CommitError;
use crate::batch::{Batch, EncodeError, MessageOrigin};
use crate::difference::Difference;
use crate::locate::Location;
use crate::table::TableRef;
use crate::transaction::{Operation, Transaction};

/// Longest text in bytes that describes an object in an error.
const MAX_TEXT: usize = 300;

/// Description of a refusal that names no operation.
const WHOLE: &str = "the transaction as a whole";

/// Returns the error for `refusal`, and the table of the refused operation; no table if the kernel
/// refused the transaction as a whole.
pub(super) fn find(
    transaction: &Transaction,
    batch: &Batch,
    refusal: Refusal,
) -> (CommitError, Option<TableRef>) {
    let mut table = None;
    let error = name(batch, refusal, |origin, element, location| {
        let operation = transaction.operations.get(origin.operation)?;
        table = Some(operation.table());
        let element = element.map(|index| origin.first_element + index);
        Some((describe(operation, element, location), element))
    });
    (error, table)
}

/// Returns the error for the refusal of a difference.
pub(super) fn of_difference(
    difference: &Difference,
    batch: &Batch,
    refusal: Refusal,
) -> CommitError {
    name(batch, refusal, |origin, element, location| {
        let text = difference.command(origin.operation, element);
        Some((shortened(&text, location), element))
    })
}

/// Returns the error for a refusal. `describe` returns the text of a message's operation, and the
/// number of the refused element.
fn name(
    batch: &Batch,
    refusal: Refusal,
    describe: impl FnOnce(MessageOrigin, Option<usize>, &Location) -> Option<(String, Option<usize>)>,
) -> CommitError {
    let Refusal { sequence, errno, offset, reason } = refusal;
    let origin = batch.origin(sequence);
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    let location =
        origin.zip(offset).map(|(at, offset)| crate::locate::locate(batch.message(at), offset));
    let location = location.unwrap_or_default();
    let described = origin.and_then(|at| {
        let (what, element) = describe(at, location.element, &location)?;
        Some((at.operation, what, element))
    });
    match described {
        Some((operation, what, element)) => {
            CommitError::Refused { operation: Some(operation), element, errno, reason, what }
        }
        None => {
            let what = WHOLE.to_owned();
            CommitError::Refused { operation: None, element: None, errno, reason, what }
        }
    }
}

impl CommitError {
    /// Returns the refusal of a transaction as a whole, or of one operation and maybe one of its
    /// elements.
    pub fn refused(
        transaction: &Transaction,
        culprit: Option<(usize, Option<usize>)>,
        errno: Errno,
    ) -> Self {
        let (operation, element) = (culprit.map(|(index, _)| index), culprit.and_then(|(_, e)| e));
        let what = match operation.and_then(|index| transaction.operations.get(index)) {
            Some(operation) => describe(operation, element, &Location::default()),
            None => WHOLE.to_owned(),
        };
        Self::Refused { operation, element, errno, reason: None, what }
    }

    /// Returns the error for a transaction that cannot be encoded, in the form of a kernel refusal.
    pub fn unencodable(transaction: &Transaction, error: &EncodeError) -> Self {
        let culprit = match error {
            EncodeError::TooLong { operation } => (*operation, None),
            EncodeError::Element { operation, element } => (*operation, Some(*element)),
        };
        let mut refused = Self::refused(transaction, Some(culprit), Errno::EINVAL);
        if let Self::Refused { reason, .. } = &mut refused {
            *reason = Some(error.to_string());
        }
        refused
    }
}

/// Returns the operation in the notation of nft(8), with the refused element only, and the field.
fn describe(operation: &Operation, element: Option<usize>, at: &Location) -> String {
    let text = match element {
        Some(element) => operation.narrowed(element).to_string(),
        None => operation.to_string(),
    };
    shortened(&text, at)
}

/// Returns a command with a limit of its length, and the refused field.
fn shortened(text: &str, at: &Location) -> String {
    let end = text.floor_char_boundary(MAX_TEXT);
    let dots = if end < text.len() { " ..." } else { "" };
    let field = if at.path.is_empty() { String::new() } else { format!(", field {at}") };
    format!("`{}{dots}`{field}", &text[..end])
}
