//! The slots of weights and tables, which all services share.

use super::Engine;
use super::queue::Lane;
use crate::desired::{SlotDemand, SlotUse};
use crate::model::{Extent, ObjectName};

impl Engine {
    /// Returns the slots that services ask for and are given.
    pub fn slots_in_use(&self) -> SlotUse {
        self.slot_budget.sums()
    }

    /// Notes those of the touched services that may ask for other slots.
    pub(super) fn note_demands<'a>(&mut self, touched: impl Iterator<Item = &'a ObjectName>) {
        let may_ask =
            |name: &&ObjectName| self.cluster.may_ask_for_slots(name) || self.slot_budget.has(name);
        self.unmeasured.extend(touched.filter(may_ask).cloned());
    }

    /// Shares the slots again if services ask for others, and queues those that are given more or
    /// less than before.
    ///
    /// The first list arrives in many parts, so it is called when transactions are made.
    pub(super) fn share_slots(&mut self) {
        if self.unmeasured.is_empty() {
            return;
        }
        for name in std::mem::take(&mut self.unmeasured) {
            let view = self.cluster.service(&name);
            self.slot_budget.request(&name, view.and_then(|view| SlotDemand::of(&view)));
        }
        let resized = self.slot_budget.share().into_iter();
        // Changes of objects come first.
        self.queue.add_to(Lane::Slow, resized.map(|name| (name, Extent::Whole)));
    }
}
