//! Tables that cannot be written, each for itself.

use super::Engine;
use crate::kernel::CommitError;
use crate::nft::Family;

/// Why nothing is sent for a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Another program owns it, as the text says.
    Owned(String),
    /// The kernel refused a transaction for it, as the text says, and no service is to blame.
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

    /// The kernel's words.
    pub fn reason(&self) -> &str {
        let (Self::Owned(reason) | Self::Refused(reason)) = self;
        reason
    }
}

impl Engine {
    /// Why the table of `family` is not written.
    pub fn blocked(&self, family: Family) -> Option<&Blocked> {
        self.tables[family.index()].blocked.as_ref()
    }

    /// Sends nothing for the table of `family` until the tables are read back.
    pub fn block(&mut self, family: Family, error: &CommitError) {
        self.tables[family.index()].blocked = Some(Blocked::by(error));
        self.drop_parts(family);
    }
}
