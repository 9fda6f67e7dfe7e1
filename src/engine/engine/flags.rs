//! Flags of the tables. Most of them only a handover changes.

use nft::{Family, Table, TableFlags};

use super::Engine;
use super::base_state::BaseState;
use crate::ruleset::{TABLE, table_comment};

impl Engine {
    /// Returns the first family whose table persists and should not, or the other way round. The
    /// kernel changes this flag of no table (`nf_tables_updtable`).
    pub fn fixed_flags(&self) -> Option<Family> {
        let wanted = self.table_flags.persist;
        Family::ALL.into_iter().find(|family| {
            let found = self.tables[family.index()].installed.flags();
            found.is_some_and(|found| found.persist != wanted)
        })
    }

    /// Returns whether there is such a table.
    pub fn has_fixed_flags(&self) -> bool {
        self.fixed_flags().is_some()
    }

    /// Records the flags of a table after a handover.
    pub fn note_flags(&mut self, family: Family, flags: TableFlags) {
        self.tables[family.index()].installed.set_flags(flags);
    }
}
/// Returns the table with its flags after the next transaction.
pub(super) fn header(family: Family, installed: &BaseState, wanted: TableFlags) -> Table {
    let flags = installed.flags_after(wanted);
    Table { family, name: TABLE.into(), flags, comment: Some(table_comment()) }
}
