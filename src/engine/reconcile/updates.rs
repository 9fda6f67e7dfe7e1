//! The services that are still to be updated, and their order.

use std::collections::BTreeSet;

use ahash::HashSet;

use super::queue::{Lane, Queue};
use crate::desired::{RANGE_BUDGET, SlotBudget, SlotDemand};
use crate::diff::{self, Progress};
use crate::model::{Cluster, Extent, ObjectName, ServiceView};
use crate::routing::DirectReturn;

/// Services that wait for lists before no more are taken: each is rendered again.
const MAX_UNREAD: usize = 32;

/// Services to be updated: rendered, and compared with what is installed.
///
/// Each service whose installed elements may differ from its desired elements is in `queue`,
/// `after_commit`, `postponed` or `unread`.
#[derive(Debug)]
pub(super) struct Updates {
    pub(super) queue: Queue,
    /// Slots of weights and hash tables, which all services share.
    pub(super) slot_budget: SlotBudget,
    /// Source ranges of all services.
    pub(super) range_budget: SlotBudget,
    /// Touched services whose demand of slots is not known yet.
    unmeasured: HashSet<ObjectName>,
    /// The last piece held small changes while a large change waited.
    pub(super) small_went_first: bool,
    /// Orphans are to be removed once all services are updated.
    pub(super) sweep_due: bool,
    /// Services whose remainder is updated after the next commit.
    pub(super) after_commit: Vec<ObjectName>,
    /// Services to be updated after all others, from a read-back on; `None` once the queue holds
    /// them.
    pub(super) postponed: Option<BTreeSet<ObjectName>>,
    /// Services that wait until more lists are read, with their lane.
    unread: Vec<(Lane, ObjectName)>,
}

impl Updates {
    pub(super) fn new(slot_budget: u32) -> Self {
        Self {
            queue: Queue::default(),
            slot_budget: SlotBudget::new(slot_budget),
            range_budget: SlotBudget::new(RANGE_BUDGET),
            unmeasured: HashSet::default(),
            small_went_first: false,
            sweep_due: false,
            after_commit: Vec::new(),
            postponed: None,
            unread: Vec::new(),
        }
    }

    /// Returns whether no service is to be updated.
    pub(super) fn are_done(&self) -> bool {
        self.queue.is_empty()
            && self.postponed.is_none()
            && self.after_commit.is_empty()
            && self.unread.is_empty()
            && !self.sweep_due
    }

    /// Takes all services that are to be updated.
    pub(super) fn take_all(&mut self) -> Vec<ObjectName> {
        self.committed();
        self.lists_read();
        let queued = std::iter::from_fn(|| self.queue.take()).map(|(name, _)| name);
        let queued: Vec<_> = queued.collect();
        queued.into_iter().chain(self.postponed.take().unwrap_or_default()).collect()
    }

    /// Queues a service to be compared as a whole.
    pub(super) fn again(&mut self, service: ObjectName) {
        self.queue.add([(service, Extent::Whole)].into_iter());
    }

    /// Returns whether orphans are to be removed now.
    pub(super) fn is_sweep_next(&self) -> bool {
        self.sweep_due
            && self.queue.is_empty()
            && self.postponed.is_none()
            && self.unread.is_empty()
    }

    /// Queues `services` after a read-back, which may show orphans, and those that were postponed.
    pub(super) fn all_again<'a>(&mut self, services: impl Iterator<Item = &'a ObjectName>) {
        // A postponed service may hold nothing yet, so `services` may lack it.
        let postponed = self.postponed.replace(BTreeSet::new()).unwrap_or_default();
        let services: Vec<_> = services.cloned().chain(postponed).collect();
        self.queue.add(services.into_iter().map(|name| (name, Extent::Whole)));
        self.after_commit.clear();
        self.lists_read();
        self.sweep_due = true;
    }

    /// Queues the services whose remainder waited for a commit.
    pub(super) fn committed(&mut self) {
        for service in std::mem::take(&mut self.after_commit) {
            self.queue.put_first(Lane::Fast, service);
        }
    }

    /// Queues the services whose lists were not read yet.
    pub(super) fn lists_read(&mut self) {
        for (lane, service) in std::mem::take(&mut self.unread).into_iter().rev() {
            self.queue.put_first(lane, service);
        }
    }

    /// Returns whether so many services wait for lists that no more of a large change are taken.
    pub(super) fn must_read_lists(&mut self) -> bool {
        self.unread.len() >= MAX_UNREAD && self.queue.next_lane() == Some(Lane::Slow)
    }

    /// Takes the next service, with the extent of its update.
    pub(super) fn next(&mut self, cluster: &Cluster) -> Option<(ObjectName, Extent)> {
        self.queue.take().or_else(|| {
            // Their claims are not known yet.
            if !self.unread.is_empty() {
                return None;
            }
            let mut postponed: Vec<_> = self.postponed.take()?.into_iter().collect();
            // The winning claim first: a frontend that is taken and taken back would be written
            // twice.
            postponed.sort_by_cached_key(|name| diff::age(cluster, name));
            self.queue.add(postponed.into_iter().map(|name| (name, Extent::Whole)));
            self.queue.take()
        })
    }

    /// Records the progress of a service, and that the update affected others.
    pub(super) fn note(
        &mut self,
        (name, lane): (ObjectName, Lane),
        progress: &Progress,
        affected: Vec<ObjectName>,
    ) {
        match progress {
            Progress::Complete => {}
            Progress::AfterCommit => self.after_commit.push(name),
            // The remainder of a large service counts as a large change.
            Progress::Partial => self.queue.put_first(Lane::Slow, name),
            Progress::Unread => self.unread.push((lane, name)),
            Progress::Postponed => {
                self.postponed.get_or_insert_default().insert(name);
            }
        }
        // A postponed service claims, but releases nothing. If two of them were updated again for
        // claims of each other, there would be no end.
        let postponed =
            |name: &ObjectName| self.postponed.as_ref().is_some_and(|all| all.contains(name));
        for name in affected.into_iter().filter(|name| !postponed(name)) {
            self.queue.put_first(Lane::Fast, name);
        }
    }

    /// Notes those of the touched services that may request other slots.
    pub(super) fn note_demands<'a>(
        &mut self,
        (cluster, direct_return): (&Cluster, Option<&DirectReturn>),
        touched: impl Iterator<Item = &'a ObjectName>,
    ) {
        let may_request = |name: &&ObjectName| {
            direct_return.is_some() && cluster.has_external_traffic(name)
                || cluster.may_request_slots(name)
                || self.slot_budget.has(name)
                || self.range_budget.has(name)
        };
        self.unmeasured.extend(touched.filter(may_request).cloned());
    }

    /// Shares slots and source ranges again if services request others, and queues those that are given more or
    /// less than before.
    ///
    /// The first list arrives in many parts, so it is called when transactions are made.
    pub(super) fn share_slots(&mut self, cluster: &Cluster, direct_return: Option<&DirectReturn>) {
        if self.unmeasured.is_empty() {
            return;
        }
        for name in std::mem::take(&mut self.unmeasured) {
            let view = cluster.service(&name);
            let ranges = view.as_ref().and_then(|view| SlotDemand::of_ranges(&view.service));
            self.range_budget.request(&name, ranges);
            self.slot_budget.request(&name, view.and_then(|view| demand(&view, direct_return)));
        }
        let resized = self.slot_budget.share().into_iter().chain(self.range_budget.share());
        // Changes of objects come first.
        self.queue.add_to(Lane::Slow, resized.map(|name| (name, Extent::Whole)));
    }
}

/// Returns the slots that a service requests.
fn demand(view: &ServiceView<'_>, direct_return: Option<&DirectReturn>) -> Option<SlotDemand> {
    match direct_return {
        Some(settings) if settings.includes(&view.service) => {
            SlotDemand::with_nodes(view, settings.node_ports)
        }
        Some(_) | None => SlotDemand::of(view),
    }
}
