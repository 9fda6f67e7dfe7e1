//! The numbers of lists of nodes.

use super::ruleset::List;
use super::table::Table;
use crate::diff::Numbers;

/// The numbers of lists. Connections are remembered by the number of their list, so a service keeps
/// it, and a freed one is used again late.
#[derive(Debug)]
pub(super) struct Lists(Numbers);

impl Default for Lists {
    fn default() -> Self {
        Self(Numbers::new(1, List::LAST))
    }
}

impl Lists {
    /// Continues after the numbers of the table.
    pub(super) fn adopt(&mut self, table: &Table) {
        let lists = table.installed().into_iter().flat_map(|installed| installed.lists());
        self.0.adopt(lists.map(List::get));
    }

    /// Lets numbers that were freed two commits ago be used again.
    pub(super) fn end_rest(&mut self) {
        self.0.end_rest();
    }

    /// Returns a number that no list of the table has; `None` if all are in use.
    pub(super) fn give(&mut self, table: &Table) -> Option<List> {
        let taken = |number| List::new(number).is_none_or(|list| table.has_list(list));
        self.0.give(taken).and_then(List::new)
    }

    pub(super) fn free(&mut self, list: List) {
        self.0.free(list.get());
    }
}
