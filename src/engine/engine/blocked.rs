//! Tables that cannot be written. Each table is blocked on its own.

use nft::Family;
use nft::kernel::CommitError;

use super::Engine;

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
    fn by(error: &CommitError) -> Self {
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

impl Engine {
    /// Returns why the table of `family` is not written.
    pub fn blocked(&self, family: Family) -> Option<&Blocked> {
        self.tables[family.index()].blocked.as_ref()
    }

    /// Sends no transaction for the table of `family` until the tables are read back.
    pub fn block(&mut self, family: Family, error: &CommitError) {
        self.tables[family.index()].blocked = Some(Blocked::by(error));
        self.drop_parts(family);
    }
}
