//! How far the loop's commits are.

use engine::schedule;
use engine::{Answer, Cause, Engine, doubt};
use nft::Transaction;

use super::unused::UnusedElements;

/// The state of the commits.
///
/// `ahead` was rendered for the engine's state after the last commit, so it is the next transaction
/// or none.
#[derive(Debug)]
pub(super) struct Commits {
    pub(super) max_batch: usize,
    /// A transaction was sent: the tables may be of this daemon.
    pub(super) has_sent: bool,
    /// The last commit or read-back ended without a failure; a table may be blocked.
    pub(super) is_synced: bool,
    /// The next transaction, rendered while the kernel applied the previous one.
    pub(super) ahead: Option<Transaction>,
    /// Transactions that were rendered so, one after the other.
    in_a_row: usize,
    pub(super) unused: UnusedElements,
}

/// Maximum number of transactions made ahead in a row: stale flows are deleted after them.
const IN_A_ROW: usize = 8;

impl Commits {
    pub(super) fn new() -> Self {
        Self {
            max_batch: 0,
            has_sent: false,
            is_synced: false,
            ahead: None,
            in_a_row: 0,
            unused: UnusedElements::default(),
        }
    }

    /// Makes the transaction after the one that the kernel applies. The first lists are all there is
    /// in the first sync. Later, a small change waits for the transaction in the kernel and for at most
    /// one more, and flows are stale until none is in the kernel.
    pub(super) fn transaction_ahead(
        &self,
        engine: &mut Engine,
        is_start: bool,
        interrupted: impl Fn() -> bool,
    ) -> Option<Transaction> {
        let is_wanted = is_start || self.in_a_row < IN_A_ROW && !engine.has_urgent_changes();
        let interrupted = || !is_start && interrupted();
        is_wanted.then(|| engine.next_transaction_ahead(self.max_batch, interrupted)).flatten()
    }

    /// Sets the transaction that was made ahead.
    pub(super) fn made_ahead(&mut self, ahead: Option<Transaction>) {
        self.in_a_row = if ahead.is_some() { self.in_a_row + 1 } else { 0 };
        self.ahead = ahead;
    }
}

/// The part that decides when the next sync follows, and its input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Follows {
    Schedule(schedule::Input),
    Doubt(doubt::DoubtInput),
}

/// The outcome of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncOutcome {
    /// The transaction was applied, or dropped with a blocked table.
    Done,
    /// The kernel refused a transaction, and the installed state is known again.
    Undone,
    /// The kernel refused a transaction. The next one differs: it is smaller, or without what the kernel
    /// lacks. So the tables are read at once.
    Narrowed,
    /// Retried after a pause.
    Failed,
}

impl SyncOutcome {
    /// Returns the outcome of a refused transaction. With `is_undone`, the installed state is as
    /// before its step.
    pub(super) fn of_refusal(answer: &Answer, is_undone: bool) -> Self {
        match answer {
            Answer::Blocked(_) => Self::Done,
            Answer::Devices { .. } => Self::Undone,
            Answer::ReadBack(_) if is_undone => Self::Undone,
            Answer::ReadBack(Cause::Unattributed | Cause::NoFlowtables | Cause::NoForwarding) => {
                Self::Narrowed
            }
            Answer::ReadBack(_) | Answer::Applied => Self::Failed,
        }
    }

    /// Returns what follows a sync.
    pub(super) fn follows(self) -> Follows {
        match self {
            Self::Done => Follows::Schedule(schedule::Input::Committed),
            Self::Undone => Follows::Schedule(schedule::Input::Undone),
            Self::Narrowed => Follows::Doubt(doubt::DoubtInput::ReadNow),
            Self::Failed => Follows::Doubt(doubt::DoubtInput::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::TableId;

    use super::*;

    #[test]
    fn a_refusal_is_retried_as_its_cause_demands() {
        use SyncOutcome::{Done, Failed, Narrowed, Undone};
        for (answer, is_undone, outcome) in [
            (Answer::Blocked(TableId::Ip), false, Done),
            (Answer::Devices { is_left_out: false }, false, Undone),
            (Answer::ReadBack(Cause::Unattributed), true, Undone),
            (Answer::ReadBack(Cause::Unattributed), false, Narrowed),
            (Answer::ReadBack(Cause::NoFlowtables), false, Narrowed),
            (Answer::ReadBack(Cause::NoForwarding), false, Narrowed),
            (Answer::ReadBack(Cause::Table(TableId::Ip)), false, Failed),
            (Answer::ReadBack(Cause::Unknown), false, Failed),
        ] {
            assert_eq!(SyncOutcome::of_refusal(&answer, is_undone), outcome, "{answer:?}");
        }
        assert_eq!(Done.follows(), Follows::Schedule(schedule::Input::Committed));
        assert_eq!(Undone.follows(), Follows::Schedule(schedule::Input::Undone));
        assert_eq!(Narrowed.follows(), Follows::Doubt(doubt::DoubtInput::ReadNow));
        assert_eq!(Failed.follows(), Follows::Doubt(doubt::DoubtInput::Failed));
    }
}
