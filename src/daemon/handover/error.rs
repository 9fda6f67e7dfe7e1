//! Errors of the replacement and removal of tables.

use nft::difference::DifferenceError;
use nft::kernel::{CommitError, ReadError};

/// Why a table could not be replaced or removed.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// A table could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// A table cannot be written as it was read.
    #[error(transparent)]
    Difference(#[from] DifferenceError),
    /// The kernel did not apply a step.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The caller interrupted the copy.
    #[error("interrupted: it took too long, or something else is to be done")]
    Interrupted,
}

impl From<ReadError> for HandoverError {
    fn from(error: ReadError) -> Self {
        if matches!(error, ReadError::Stopped { .. }) {
            Self::Interrupted
        } else {
            Self::Read(error)
        }
    }
}
