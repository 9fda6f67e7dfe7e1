//! Takes the kernel to the desired state once, for commands that do not stay.

use std::io;

use super::summary::Summary;
use crate::engine::{Blame, Engine, read_back};
use crate::kernel::{CommitError, Kernel, ReadError};
use crate::model::{ObjectRef, Problem};

/// Why the kernel does not hold what is desired.
#[derive(Debug, thiserror::Error)]
pub enum ConvergeError {
    /// The tables cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// A transaction was refused for a reason that leaving out a service does not cure.
    #[error("{0}")]
    Commit(#[from] CommitError),
    /// Somebody else keeps changing the tables.
    #[error("the tables could not be made right in {ATTEMPTS} attempts: {0}")]
    Attempts(io::Error),
}

/// How often the kernel is read and changed at most.
const ATTEMPTS: usize = 20;

/// Reads the kernel, sends what differs and counts it in `summary`. Returns what was left out.
///
/// # Errors
/// See [`ConvergeError`]. Transactions before the failing one have been applied.
pub fn converge<K: Kernel>(
    engine: &mut Engine,
    kernel: &mut K,
    summary: &mut Summary,
) -> Result<Vec<Problem>, ConvergeError> {
    let mut problems = Vec::new();
    let mut last = io::Error::other("no attempt was made");
    for _ in 0..ATTEMPTS {
        let found = read_back(kernel, engine.layouts())?;
        engine.observe(found);
        let outcome = commit_all(engine, kernel, summary, &mut problems);
        problems.extend(engine.take_problems());
        match outcome? {
            None => return Ok(problems),
            Some(error) => last = io::Error::other(error),
        }
    }
    Err(ConvergeError::Attempts(last))
}

/// Commits until nothing differs; the error after which the kernel must be read again.
fn commit_all<K: Kernel>(
    engine: &mut Engine,
    kernel: &mut K,
    summary: &mut Summary,
    problems: &mut Vec<Problem>,
) -> Result<Option<CommitError>, CommitError> {
    while let Some(step) = engine.next_step(kernel.max_batch()) {
        match kernel.commit(&step.transaction) {
            Ok(committed) => {
                summary.add(&step.transaction, &committed);
                engine.learn_pace(&step, committed.kernel_time);
                engine.committed(step);
            }
            Err(error) => match error {
                CommitError::Refused { operation: Some(operation), element, .. } => {
                    match engine.blame(&step, operation, element.unwrap_or_default()) {
                        Blame::Nobody => return Err(error),
                        Blame::Suspected(_) => {}
                        Blame::Excluded(service) => problems.push(Problem {
                            object: ObjectRef::service(&service),
                            field: String::new(),
                            message: format!("left out: {error}"),
                        }),
                    }
                    return Ok(Some(error));
                }
                CommitError::Unknown(_) | CommitError::NotSent(_) => return Ok(Some(error)),
                CommitError::Refused { operation: None, .. } | CommitError::Owned { .. } => {
                    return Err(error);
                }
            },
        }
    }
    Ok(None)
}
