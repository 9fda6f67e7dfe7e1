//! The installed endpoints of a table, to be written without a read.

use std::sync::Arc;

use nft::{Operation, Set, TableRef};

use super::lists::Lists;
use super::packed_map::sorted;
use crate::model::Target;
use crate::piece::MEAN_ELEMENT_BYTES;
use crate::ruleset::{ListSlot, ListUse, TableElement};

/// The elements of the map of endpoints of a table.
#[derive(Debug)]
pub struct KnownEndpoints {
    map: Arc<Set>,
    slots: Vec<(ListSlot, Target)>,
}

impl KnownEndpoints {
    /// Returns the endpoints of the table with this map. All lists must be read.
    pub(super) fn new(lists: &Lists, map: Arc<Set>) -> Self {
        let mut slots = Vec::new();
        for id in sorted(lists.plain()) {
            let Some(list) = lists.get(id) else { continue };
            let ListUse::Port(protocol) = list.of else { continue };
            let of_list = (0..).zip(list.iter());
            slots.extend(of_list.filter_map(|(slot, it)| Some(((id, protocol, slot), it?))));
        }
        Self { map, slots }
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the operation that adds those from the position `first` on to a table, in about `bytes`
    /// bytes.
    pub fn added_to(&self, table: &TableRef, first: usize, bytes: usize) -> Operation {
        let next = self.slots.iter().skip(first).take((bytes / MEAN_ELEMENT_BYTES).max(1));
        let element = |((list, protocol, slot), target): &(ListSlot, Target)| {
            TableElement::Endpoint(*list, *protocol, *slot, *target).to_element()
        };
        Operation::AddElements(table.clone(), Arc::clone(&self.map), next.map(element).collect())
    }
}
