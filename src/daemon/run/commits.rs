//! How far the loop's commits are.

use nft::Transaction;

use super::unused::UnusedElements;

/// The state of the commits.
///
/// `ahead` was rendered for the engine's state after the last commit, so it is the next transaction
/// or none.
#[derive(Debug)]
pub(super) struct Commits {
    pub(super) max_batch: usize,
    /// The last commit or read-back ended without a failure; a table may be blocked.
    pub(super) is_synced: bool,
    /// The next transaction, rendered while the kernel applied the previous one.
    pub(super) ahead: Option<Transaction>,
    pub(super) unused: UnusedElements,
}

impl Commits {
    pub(super) fn new() -> Self {
        Self { max_batch: 0, is_synced: false, ahead: None, unused: UnusedElements::default() }
    }
}

/// The outcome of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncOutcome {
    /// The transaction was applied, or dropped with a blocked table.
    Done,
    /// The kernel refused a transaction, and the installed state is known again.
    Undone,
    /// The kernel refused a transaction. The tables are read at once, and the next transaction is
    /// smaller.
    Narrowed,
    /// Retried after a pause.
    Failed,
}
