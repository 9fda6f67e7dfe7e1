//! Flags of the tables that only a handover changes.

use super::Engine;
use crate::nft::{Family, TableFlags};

impl Engine {
    /// Returns whether a table of ours persists and should not, or the other way round. The kernel
    /// changes this flag of no table (`nf_tables_updtable`).
    pub fn has_fixed_flags(&self) -> bool {
        let wanted = self.table_flags.persist;
        let flags = self.tables.iter().filter_map(|table| table.installed.flags());
        flags.into_iter().any(|found| found.persist != wanted)
    }

    /// Records the flags of a table after a handover.
    pub fn note_flags(&mut self, family: Family, flags: TableFlags) {
        self.tables[family.index()].installed.set_flags(flags);
    }
}
