//! Table direct-return in the kernel: removed.

use engine::direct::is_own;
use engine::direct::ruleset::table;
use nft::kernel::{CommitError, Kernel, ReadError};
use nft::{Operation, Transaction};

/// Removes the table, if this program created it; returns whether it did.
///
/// # Errors
/// The table cannot be read, or the kernel refused its removal.
pub fn remove<K: Kernel>(kernel: &mut K) -> Result<bool, RemoveError> {
    if !kernel.read_table(&table())?.is_some_and(|contents| is_own(&contents)) {
        return Ok(false);
    }
    kernel.commit(&Transaction { operations: vec![Operation::DeleteTable(table())] })?;
    Ok(true)
}

/// Why table direct-return stays.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel refused the removal.
    #[error(transparent)]
    Commit(#[from] CommitError),
}
