//! The answer to the outcome of a transaction. Each table is blocked on its own.

use nft::kernel::CommitError;

use super::table_id::TableId;
use crate::model::ObjectName;

/// The next step after an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The transaction was applied. Take the next one.
    Applied,
    /// Nothing was applied, or the outcome is unknown. Read the tables back, call
    /// [`Engine::replace_installed_state`](super::Engine::replace_installed_state) and continue.
    ReadBack(Cause),
    /// Nothing was applied, and no service is the cause. No transaction is sent for this table
    /// until the tables are read back. Continue with the other tables.
    Blocked(TableId),
    /// The kernel refused devices of a flowtable, and nothing was applied. The next transaction has
    /// fewer of them. Continue.
    Devices {
        /// A device that exists is left out until it changes.
        is_left_out: bool,
    },
}

/// Why the tables must be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An element of this service was refused for the first time. Another program may have changed
    /// the tables, so a read-back may be enough.
    Suspected(ObjectName),
    /// An element of this service was refused again. It is left out of the table until it changes.
    Excluded(ObjectName),
    /// The transaction was refused as a whole. The next ones are smaller or update fewer services.
    /// If that does not help within a few attempts, the table is blocked.
    Unattributed,
    /// The refusal concerns this table, for the first time.
    Table(TableId),
    /// The kernel lacks flowtables. The next transactions have none.
    NoFlowtables,
    /// The kernel cannot forward packets to an address. There is no direct return from now on.
    NoForwarding,
    /// The outcome is unknown, or the transaction was not sent.
    Unknown,
}

impl Cause {
    /// Returns whether [`Engine::undo_step`](super::Engine::undo_step) may replace the read-back: nothing was applied, and
    /// services are the cause.
    pub fn is_caused_by_services(&self) -> bool {
        match self {
            Self::Suspected(_) | Self::Excluded(_) | Self::Unattributed => true,
            Self::Table(_) | Self::NoFlowtables | Self::NoForwarding | Self::Unknown => false,
        }
    }
}

/// Why no transaction is sent for a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Another program owns the table; with the error text.
    Owned(String),
    /// The kernel refused a transaction for the table, and no service is the cause; with the error
    /// text.
    Refused(String),
}

impl Blocked {
    pub(super) fn by(error: &CommitError) -> Self {
        let reason = error.to_string();
        match error {
            CommitError::Owned { .. } => Self::Owned(reason),
            CommitError::Refused { .. } | CommitError::Unknown(_) | CommitError::NotSent(_) => {
                Self::Refused(reason)
            }
        }
    }

    /// Returns the error text.
    pub fn reason(&self) -> &str {
        let (Self::Owned(reason) | Self::Refused(reason)) = self;
        reason
    }
}
