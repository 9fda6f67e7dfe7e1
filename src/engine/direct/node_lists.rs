//! The numbers of lists of nodes.

use std::collections::BTreeMap;

use super::ruleset::NodeListId;
use super::table::Table;
use crate::diff::Numbers;
use crate::model::ObjectName;

/// The numbers of lists. Connections are remembered by the number of their list, so a service keeps
/// it, and a freed one is used again late.
#[derive(Debug)]
pub(super) struct NodeLists {
    numbers: Numbers,
    /// The services of the lists in use.
    holders: BTreeMap<NodeListId, ObjectName>,
}

impl Default for NodeLists {
    fn default() -> Self {
        Self { numbers: Numbers::new(1, NodeListId::LAST), holders: BTreeMap::new() }
    }
}

impl NodeLists {
    /// Continues after the numbers of the table.
    pub(super) fn adopt(&mut self, table: &Table) {
        self.numbers.adopt(table.installed().lists().map(NodeListId::get));
    }

    /// Lets numbers that were freed two commits ago be used again.
    pub(super) fn end_rest(&mut self) {
        self.numbers.end_rest();
    }

    /// Returns a number that no list of the table has; `None` if all are in use.
    pub(super) fn give(&mut self, table: &Table) -> Option<NodeListId> {
        let taken = |number| NodeListId::new(number).is_none_or(|list| table.has_list(list));
        self.numbers.give(taken).and_then(NodeListId::new)
    }

    /// Records the service of a list.
    pub(super) fn hold(&mut self, list: NodeListId, service: &ObjectName) {
        self.holders.insert(list, service.clone());
    }

    /// Returns the service of a list.
    pub(super) fn holder(&self, list: NodeListId) -> Option<&ObjectName> {
        self.holders.get(&list)
    }

    pub(super) fn free(&mut self, list: NodeListId) {
        self.holders.remove(&list);
        self.numbers.free(list.get());
    }
}
