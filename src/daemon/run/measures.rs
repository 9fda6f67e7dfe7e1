//! Measurements of the loop: the latency from events to the kernel, and the sizes of sets.

use std::time::{Duration, Instant};

use engine::model::{Arrival, Event, Scheduler};
use engine::ruleset::SetId;
use engine::{ChangeSize, FoundTable, NoLocalPorts, SlotUse};
use nft::family::Family;
use nft::kernel::{Committed, Kernel};
use nft::{Element, Operation, Transaction};

use super::{Run, now};
use crate::observe::{self, Observe, SetSizes, Stage};

#[derive(Debug)]
pub(super) struct Measures {
    sizes: SetSizes,
    /// Batches that may not be in the kernel: their arrival and size.
    pending: Vec<(Instant, ChangeSize)>,
    /// Time spent on comparison since the last transaction.
    compared: Duration,
    committed_at: Option<Instant>,
    /// The values reported last.
    no_local: [Option<NoLocalPorts>; 2],
    schedulers: Option<[usize; Scheduler::ALL.len()]>,
    slots: Option<SlotUse>,
}

/// Maximum number of waiting batches whose latency is measured.
const MAX_PENDING: usize = 1_024;

impl Measures {
    pub(super) fn new(observe: &Observe) -> Self {
        Self {
            sizes: observe.set_sizes(SETS.map(SetId::name)),
            pending: Vec::new(),
            compared: Duration::ZERO,
            committed_at: None,
            no_local: [None; 2],
            schedulers: None,
            slots: None,
        }
    }

    /// Adds the time since `started` to the time spent on comparison.
    pub(super) fn compared(&mut self, started: Instant) {
        self.compared += now() - started;
    }

    /// Drops the waiting batches after everything was compared and nothing differed.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Sets the sizes to those of the tables that were read.
    pub(super) fn found(&self, tables: &[FoundTable; 2]) {
        for (family, table) in Family::ALL.into_iter().zip(tables) {
            for (i, set) in SETS.into_iter().enumerate() {
                self.sizes.set(family, i, table.sizes[set as usize]);
            }
        }
    }

    /// Returns the expected number of elements of a set.
    pub(super) fn size(&self, family: Family, set: SetId) -> i64 {
        place(set.name()).map_or(0, |set| self.sizes.get(family, set))
    }

    /// Subtracts a missing element.
    pub(super) fn lost(&self, family: Family, set: SetId) {
        if let Some(set) = place(set.name()) {
            self.sizes.subtract(family, set, 1);
        }
    }

    /// Adds an element that another program added.
    pub(super) fn gained(&self, family: Family, set: SetId) {
        if let Some(set) = place(set.name()) {
            self.sizes.add(family, set, 1);
        }
    }

    /// Returns the expected number of elements of all sets.
    pub(super) fn elements(&self) -> i64 {
        let size = |family, set| self.size(family, set);
        Family::ALL.iter().flat_map(|family| SETS.map(|set| size(*family, set))).sum()
    }

    /// Adjusts the sizes to an operation that was applied.
    fn applied(&self, operation: &Operation) {
        let family = operation.family();
        match operation {
            Operation::AddElements(_, set, elements) => {
                if let Some(set) = place(&set.name) {
                    self.sizes.add(family, set, elements.len());
                }
            }
            Operation::DeleteElements(_, set, elements) => {
                if let Some(set) = place(&set.name) {
                    self.sizes.subtract(family, set, elements.len());
                }
            }
            Operation::DeleteSet(_, set) | Operation::FlushSet(_, set) => {
                if let Some(set) = place(set) {
                    self.sizes.set(family, set, 0);
                }
            }
            Operation::DeleteTable(_) => {
                (0..SETS.len()).for_each(|set| self.sizes.set(family, set, 0));
            }
            Operation::AddTable(_)
            | Operation::AddChain(..)
            | Operation::DeleteChain(..)
            | Operation::FlushChain(..)
            | Operation::AddRule(..)
            | Operation::DeleteRule(..)
            | Operation::AddFlowtable(..)
            | Operation::DeleteFlowtable(..)
            | Operation::AddDevices(..)
            | Operation::DeleteDevices(..)
            | Operation::AddSet(..) => {}
        }
    }
}

/// The sets whose elements are counted: all but the one that packets write.
pub(super) const SETS: [SetId; SetId::ALL.len() - 1] = {
    let mut sets = [SetId::Endpoints; SetId::ALL.len() - 1];
    let (mut from, mut to) = (0, 0);
    while from < SetId::ALL.len() {
        if !matches!(SetId::ALL[from], SetId::AffinityClients) {
            sets[to] = SetId::ALL[from];
            to += 1;
        }
        from += 1;
    }
    sets
};

/// Returns the index of a set in [`SETS`].
fn place(name: &str) -> Option<usize> {
    SETS.into_iter().position(|set| set.name() == name)
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Applies a batch of events.
    pub(super) fn apply(&mut self, batch: Arrival) {
        let Arrival { events, received, parsed } = batch;
        events.iter().filter_map(observed).for_each(|change| self.observe.event(change));
        let (taken, was_listed) = (now(), self.engine.is_listed());
        let size = self.engine.apply(events);
        self.measures.compared(taken);
        // The first lists wait for each other.
        if !was_listed {
            return;
        }
        self.observe.stage_took(Stage::Parse, parsed.saturating_duration_since(received));
        self.observe.stage_took(Stage::Queue, taken.saturating_duration_since(parsed));
        if self.measures.pending.len() < MAX_PENDING {
            self.measures.pending.push((received, size));
        }
    }

    /// Records a transaction that was applied and whose commit began at `started`.
    pub(super) fn note(
        &mut self,
        transaction: &Transaction,
        committed: &Committed,
        started: Instant,
    ) {
        let now = now();
        let operations: smallvec::SmallVec<[_; 4]> =
            committed.messages.iter().map(|(kind, count)| (kind.name(), *count)).collect();
        let elements = transaction.operations.iter().filter_map(Operation::elements);
        let Committed { encode_time, kernel_time, .. } = *committed;
        self.observe.committed(&observe::Transaction {
            operations: &operations,
            elements: elements.map(<[Element]>::len).sum(),
            bytes: committed.bytes,
            family: transaction.family(),
            took: encode_time + kernel_time,
        });
        let compared = std::mem::take(&mut self.measures.compared);
        self.observe.stage_took(Stage::Compare, compared);
        self.observe.stage_took(Stage::Encode, encode_time);
        self.observe.stage_took(Stage::Commit, kernel_time);
        // In the initial sync, the next transaction is made meanwhile.
        if !self.is_initial_sync {
            let rest = (now - started).saturating_sub(encode_time + kernel_time);
            self.observe.stage_took(Stage::Acknowledge, rest);
        }
        transaction.operations.iter().for_each(|it| self.measures.applied(it));
        self.measures.committed_at = Some(now);
        self.note_small_changes(now);
        tracing::debug!(
            generation = committed.generation.0,
            bytes = committed.bytes,
            kernel_us = committed.kernel_time.as_micros(),
            operations = transaction.operations.len(),
            "committed"
        );
    }

    /// Measures the batches of small changes, if all of them are in the kernel at `now`.
    fn note_small_changes(&mut self, now: Instant) {
        if self.engine.has_urgent_changes() {
            return;
        }
        let observe = &self.observe;
        self.measures.pending.retain(|(received, size)| {
            let is_small = *size == ChangeSize::Small;
            if is_small {
                observe.events_committed(now.saturating_duration_since(*received));
            }
            !is_small
        });
    }

    /// Measures the remaining batches up to the last commit. Batches after it needed no commit. The
    /// kernel must hold the desired state.
    pub(super) fn note_all_changes(&mut self) {
        let committed_at = self.measures.committed_at;
        for (received, _) in self.measures.pending.drain(..) {
            if let Some(at) = committed_at.filter(|at| *at > received) {
                self.observe.events_committed(at - received);
            }
        }
    }

    /// Reports the slots that services ask for and get.
    pub(super) fn report_slots(&mut self) {
        let slots = self.engine.slots_in_use();
        if self.measures.slots.replace(slots) != Some(slots) {
            let SlotUse { budget, asked, given, reduced } = slots;
            self.observe.slots(observe::SlotCounts { budget, asked, given, reduced });
        }
    }

    /// Reports the number of services per scheduler.
    pub(super) fn report_schedulers(&mut self) {
        let counts = self.engine.services_by_scheduler();
        if self.measures.schedulers.replace(counts) != Some(counts) {
            for (scheduler, count) in Scheduler::ALL.into_iter().zip(counts) {
                self.observe.services(scheduler.name(), count);
            }
        }
    }

    /// Reports the service ports whose policy wants a local endpoint and that have none.
    pub(super) fn report_no_local_endpoints(&mut self) {
        for family in Family::ALL {
            let ports = self.engine.no_local_endpoints(family);
            if self.measures.no_local[family.index()].replace(ports) != Some(ports) {
                self.observe.no_local_endpoints(family, ports.internal, ports.external);
            }
        }
    }
}

/// Returns whether a transaction only deletes what is no longer used.
pub(super) fn is_cleanup(transaction: &Transaction) -> bool {
    transaction.operations.iter().all(|operation| {
        matches!(
            operation,
            Operation::DeleteElements(..)
                | Operation::DeleteSet(..)
                | Operation::DeleteFlowtable(..)
                | Operation::DeleteChain(..)
                | Operation::FlushChain(..)
        )
    })
}

fn observed(event: &Event) -> Option<observe::ChangedObject> {
    match event {
        Event::Service(_) => Some(observe::ChangedObject::Service),
        Event::EndpointSlice(_) => Some(observe::ChangedObject::EndpointSlice),
        Event::Node(_) | Event::ServiceCidr(_) => Some(observe::ChangedObject::Other),
        Event::Relist(_) | Event::Listed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_but_that_of_packets_is_counted_once() {
        for set in SetId::ALL {
            let found = SETS.into_iter().filter(|counted| *counted == set).count();
            assert_eq!(found, usize::from(set != SetId::AffinityClients), "{set:?}");
        }
    }
}
