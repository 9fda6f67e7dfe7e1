//! Tables that cannot be written. Each table is blocked on its own.

use nft::kernel::CommitError;

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
