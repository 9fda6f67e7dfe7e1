//! Commits until the kernel holds the desired state, for callers without other work.

use std::{io, thread};

use engine::{Answer, Engine, GRACE};
use nft::Transaction;
use nft::kernel::{CommitError, Committed, Kernel, ReadError};

use crate::read_back::{Lists, read_watching};

/// Why the kernel does not hold the desired state.
#[derive(Debug, thiserror::Error)]
pub enum ConvergeError {
    /// The tables cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// A transaction was refused for a reason that leaving out a service does not cure.
    #[error("{0}")]
    Commit(#[from] CommitError),
    /// Other programs keep changing the tables.
    #[error("the tables could not be made right in {ATTEMPTS} attempts: {0}")]
    Attempts(io::Error),
}

/// Maximum number of times that the tables are read and changed.
const ATTEMPTS: usize = 20;

/// Reads the tables and commits until the kernel holds the desired state. Calls `each` for every
/// transaction that was applied. Waits before it deletes unused elements, which packets may still
/// look up.
///
/// # Errors
/// See [`ConvergeError`]. Transactions before the failing one have been applied.
pub fn converge<K: Kernel>(
    engine: &mut Engine,
    kernel: &mut K,
    each: &mut dyn FnMut(&Transaction, &Committed),
) -> Result<(), ConvergeError> {
    let mut last = io::Error::other("no attempt was made");
    engine.keep_unused_elements();
    for _ in 0..ATTEMPTS {
        let reading = read_watching(kernel, engine.tables().layouts(), (Lists::Now, &|| ()))?;
        engine.replace_installed_state(reading.tables);
        let mut refused = commit_all(engine, kernel, each)?;
        while refused.is_none()
            && let Some(kept) = engine.kept_unused_elements()
        {
            thread::sleep(GRACE);
            engine.release(kept);
            refused = commit_all(engine, kernel, each)?;
        }
        match refused {
            None if !reading.is_torn => return Ok(()),
            None => last = io::Error::other("other programs changed them meanwhile"),
            Some(error) => last = io::Error::other(error),
        }
    }
    Err(ConvergeError::Attempts(last))
}

/// Commits until nothing differs; returns the error after which the tables must be read back.
///
/// # Errors
/// Errors that a read-back does not cure.
pub fn commit_all<K: Kernel>(
    engine: &mut Engine,
    kernel: &mut K,
    each: &mut dyn FnMut(&Transaction, &Committed),
) -> Result<Option<CommitError>, CommitError> {
    let mut blocking = None;
    while let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
        let outcome = kernel.commit(&transaction);
        let answer = engine.answer(&transaction, &outcome);
        match (outcome, answer) {
            (Ok(committed), _) => each(&transaction, &committed),
            // The other tables are still written.
            (Err(error), Answer::Blocked(_)) => blocking = Some(error),
            (Err(_), Answer::Devices { .. }) => {}
            (Err(error), Answer::Applied | Answer::ReadBack(_)) => return Ok(Some(error)),
        }
    }
    blocking.map_or(Ok(None), Err)
}
