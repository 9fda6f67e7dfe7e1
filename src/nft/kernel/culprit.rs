//! Describes the part of a transaction that the kernel refused.

use nix::errno::Errno;

use super::CommitError;
use super::answer::Refusal;
use crate::{Batch, EncodeError, Location, Operation, TableRef, Transaction};

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
    let Refusal { sequence, errno, offset, reason } = refusal;
    let origin = batch.origin(sequence);
    let found = origin.and_then(|at| Some((at, transaction.operations.get(at.operation)?)));
    let Some((origin, operation)) = found else {
        let what = WHOLE.to_owned();
        return (
            CommitError::Refused { operation: None, element: None, errno, reason, what },
            None,
        );
    };
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    let location = offset.map(|offset| crate::locate(batch.message(origin), offset));
    let location = location.unwrap_or_default();
    let element = location.element.map(|index| origin.first_element + index);
    let what = describe(operation, element, &location);
    let index = Some(origin.operation);
    let error = CommitError::Refused { operation: index, element, errno, reason, what };
    (error, Some(operation.table()))
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
            EncodeError::TooLong { operation } | EncodeError::Statement { operation, .. } => {
                (*operation, None)
            }
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
    let end = text.floor_char_boundary(MAX_TEXT);
    let dots = if end < text.len() { " ..." } else { "" };
    let field = if at.path.is_empty() { String::new() } else { format!(", field {at}") };
    format!("`{}{dots}`{field}", &text[..end])
}
