//! Turns differences into transactions: step by step, with one transaction for each table.
//!
//! The tables are independent of each other, so a table that cannot be written does not delay the
//! others. A step is a set of changes in kube-proxy's tables, or in that of direct return once those
//! are as desired. It is done when its last transaction is applied, or belongs to a blocked table.

use nft::{Acknowledge, Family, Operation, Transaction};

use super::bisect::StepServices;
use super::queue::Lane;
use super::steps::{BaseChange, InFlight};
use super::table_id::TableId;
use super::tables::TableState;
use super::{Engine, context};
use crate::diff::{Context, Kept, Progress};
use crate::model::{Extent, ObjectName};
use crate::piece::{MEAN_ELEMENT_BYTES, Piece, PieceLimits};

/// Services of a large change that are updated before an interruption, so that the change
/// completes.
const UNINTERRUPTED: usize = 256;

/// The work to compare an endpoint or a source range, as bytes of elements that take as long.
const ENDPOINT_WORK: usize = 8;

/// The changes of a step.
#[derive(Debug, Default)]
struct Step {
    operations: Vec<Operation>,
    /// The change of each table, with the bytes of its operations.
    bases: [Option<(BaseChange, usize)>; 3],
    services: StepServices,
}

impl Engine {
    /// Returns the next transaction; `None` if nothing differs. It concerns one table and has at
    /// most about `max_batch` bytes.
    ///
    /// [`Engine::answer`], [`Engine::committed`] or [`Engine::replace_installed_state`] must follow.
    pub fn next_transaction(&mut self, max_batch: usize) -> Option<Transaction> {
        self.next_transaction_unless(max_batch, || false)
    }

    /// As [`Engine::next_transaction`], for a caller with other urgent work. Soon after
    /// `interrupted` returns true, it returns what is ready by then, or `None` although more
    /// differs.
    pub fn next_transaction_unless(
        &mut self,
        max_batch: usize,
        interrupted: impl Fn() -> bool,
    ) -> Option<Transaction> {
        self.tables.adopt_handed(&mut self.cluster);
        while self.steps.prepared.is_empty() {
            let mut step = self.differences(max_batch, &interrupted);
            if step.is_none() && self.drop_unused_chains() {
                step = self.differences(max_batch, &interrupted);
            }
            let Some(step) = step else {
                self.report_excluded();
                if !self.steps.are_done() || !self.updates.are_done() {
                    return None;
                }
                if let Some(change) = self.tables.next_devices().cloned() {
                    let id = TableId::from(change.family);
                    let operations = change.operations(self.tables.of(id).desired.as_ref());
                    let mut step = Step::default();
                    step.add_base(id, BaseChange::Devices(change), operations);
                    self.divide(step);
                    continue;
                }
                let (cluster, diff) = (&mut self.cluster, &self.diff);
                if !self.tables.plan_direct_return(cluster, diff, &mut self.updates) {
                    let step = self.step_of_direct_return(max_batch)?;
                    self.divide(step);
                }
                continue;
            };
            self.divide(step);
            if self.steps.prepared.is_empty() && interrupted() {
                return None;
            }
        }
        self.steps.start_next()
    }

    /// Returns the transaction after the one in flight, made while the kernel applies that one. The
    /// caller commits it next. It drops it if the first is not applied, unless only the other table
    /// was blocked. `None` if it depends on the outcome of the first, or if nothing else differs.
    /// Soon after `interrupted` returns true, it returns what is ready by then.
    pub fn next_transaction_ahead(
        &mut self,
        max_batch: usize,
        interrupted: impl Fn() -> bool,
    ) -> Option<Transaction> {
        if self.steps.in_flight.len() != 1
            || self.steps.has_parts(TableId::DirectReturn)
            || self.tables.have_blocked()
        {
            return None;
        }
        if self.steps.prepared.is_empty() && self.steps.in_flight[0].base.is_none() {
            let step = self.differences(max_batch, &interrupted)?;
            self.divide(step);
        }
        self.steps.start_next()
    }

    /// Removes from the desired tables the chains that neither services nor elements need; returns
    /// whether there were any.
    fn drop_unused_chains(&mut self) -> bool {
        let is_unused = self.is_settled() && !self.diff.has_unused_elements();
        let dropped = is_unused && self.tables.forget_unused(&self.cluster, &self.diff);
        if dropped {
            self.render_tables();
        }
        dropped
    }

    /// Makes a part for each table. Drops the part of a blocked table as if it were applied: once
    /// that table can be written, it is read back and compared.
    fn divide(&mut self, step: Step) {
        let Step { operations, bases, services } = step;
        self.steps.divide(operations, bases, &services);
        for id in TableId::ALL {
            if self.tables.blocked(id).is_some() {
                self.drop_parts(id);
            }
        }
    }

    /// Drops the uncommitted parts of one table, as if they were applied.
    pub(super) fn drop_parts(&mut self, id: TableId) {
        while let Some(part) = self.steps.take_part(id) {
            self.applied(part);
        }
    }

    /// Records the installed state after a transaction.
    pub(super) fn applied(&mut self, in_flight: InFlight) {
        if let Some(change) = in_flight.base {
            self.tables.applied(in_flight.table, change);
        }
        match &mut self.tables.direct {
            Some(direct) if in_flight.table == TableId::DirectReturn => direct.committed(),
            _ if self.steps.has_step(in_flight.step) => {}
            _ => {
                self.diff.committed();
                self.updates.committed();
            }
        }
    }

    /// Returns a step that only gives owners to tables that need them before other changes.
    fn owners_first(&self, ids: &[TableId]) -> Option<Step> {
        let mut step = Step::default();
        for id in ids {
            if let Some(adopt) = self.tables.of(*id).owner_first(self.tables.flags) {
                step.add_base(*id, BaseChange::Owner, vec![adopt]);
            }
        }
        step.checked()
    }

    /// Returns the next step of the table of direct return: its rules, or the elements of one stage.
    fn step_of_direct_return(&mut self, max_batch: usize) -> Option<Step> {
        let id = TableId::DirectReturn;
        if !self.tables.may_change_direct_return() {
            return None;
        }
        if let Some(step) = self.owners_first(&[id]) {
            return Some(step);
        }
        let mut step = Step::default();
        let operations = self.tables.operations(id);
        if operations.is_empty() {
            let most = (max_batch / 2 / MEAN_ELEMENT_BYTES).max(1);
            step.operations = self.tables.next_stage(most);
        } else {
            let desired = self.tables.desired_direct_return();
            step.add_base(id, BaseChange::Contents(desired), operations);
        }
        step.checked()
    }

    fn differences(&mut self, max_batch: usize, interrupted: &impl Fn() -> bool) -> Option<Step> {
        if let Some(step) = self.owners_first(&Family::ALL.map(TableId::from)) {
            return Some(step);
        }
        let mut step = self.besides_elements();
        let bytes = step.base_bytes();
        // A table is replaced as a whole, if one transaction can hold it.
        let is_replaced = bytes > 0 && self.tables.of_services().any(TableState::is_replaced);
        // A packet runs the rules of the generation in which it began, but looks up the elements of
        // the present one. So the elements that new rules need come one commit after the rules. A
        // table that is new or replaced as a whole gets both at once. Where only another program
        // serves, elements come first: it knew of services of which the table has no element yet.
        // Rules of a size class come with its first list: without them, packets get slot 0.
        let has_rules = step.operations.iter().any(|it| matches!(it, Operation::AddRule(..)));
        let is_alone = self.tables.are_bisecting()
            || self.tables.of_services().all(|table| table.installed.is_ours());
        if has_rules && is_alone {
            return step.checked();
        }
        // Sizes of elements are estimates, so an eighth is left free.
        let limit = (max_batch - max_batch / 8).saturating_sub(bytes);
        let piece_bytes = self.steps.piece_size.piece_bytes();
        if bytes == 0 || limit >= piece_bytes / 2 {
            let budget = if is_replaced { limit } else { limit.min(piece_bytes) };
            let mut piece = Piece::new(PieceLimits { budget, limit });
            let services = if is_replaced {
                // The old table goes with this transaction, and later services have no elements
                // until theirs. So nothing interrupts this piece.
                self.updates.small_went_first = true;
                self.fill(&mut piece, &|| false)
            } else {
                self.fill(&mut piece, interrupted)
            };
            // The sizes of the lists are known only now.
            if self.tables.add_size_classes(&self.diff) {
                self.render_tables();
                step = self.besides_elements();
            }
            step.services = services;
            let elements = piece.into_operations(&self.tables.layouts);
            if step.operations.is_empty() {
                step.operations = elements;
            } else {
                step.operations.extend(elements);
            }
        }
        step.checked()
    }

    /// Returns a step that changes kube-proxy's tables besides their elements.
    fn besides_elements(&mut self) -> Step {
        // Services have not all been compared since the tables were read.
        let elements_differ = self.updates.sweep_due || !self.updates.after_commit.is_empty();
        let mut step = Step::default();
        for id in Family::ALL.map(TableId::from) {
            let rules_wait = elements_differ && self.tables.of(id).installed.is_idle();
            let of_table = if rules_wait {
                self.tables.of(id).operations_before_elements()
            } else {
                self.tables.operations(id)
            };
            if of_table.is_empty() {
                continue;
            }
            let change = if rules_wait {
                BaseChange::Sets
            } else {
                BaseChange::Contents(self.tables.of(id).desired.clone())
            };
            step.add_base(id, change, of_table);
        }
        step
    }

    /// Updates services until the piece is full, small changes first. The piece stays empty only if
    /// nothing differs, if `interrupted` returned true, or if lists must be read before.
    ///
    /// A piece of small changes holds no part of a large one, so small changes do not wait until
    /// that part is rendered and applied. The next piece belongs to the large change, so that it
    /// completes.
    ///
    /// While services are postponed, pieces are mixed. A service of one lane may take a frontend
    /// that a service of the other lane takes back; within one piece both cancel out.
    fn fill(&mut self, piece: &mut Piece, interrupted: &impl Fn() -> bool) -> StepServices {
        self.updates.share_slots(&self.cluster, self.routing.direct_return.as_ref());
        let may_go_first =
            !std::mem::take(&mut self.updates.small_went_first) && self.updates.postponed.is_none();
        let (mut taken, mut is_small) = (0, may_go_first);
        let mut updated = StepServices::default();
        let have_all_left = self.diff.remove_ended(&self.cluster, piece);
        // Beside a bisection, a step has one service alone, and these belong to none.
        if !have_all_left || self.tables.are_bisecting() && !piece.is_empty() {
            return updated;
        }
        while piece.has_room() && self.tables.admit(&updated) {
            if is_small && self.updates.queue.next_lane() == Some(Lane::Slow) {
                if !piece.is_empty() {
                    self.updates.small_went_first = true;
                    return updated;
                }
                is_small = false;
            }
            if self.updates.must_read_lists() {
                break;
            }
            let lane = self.updates.queue.next_lane().unwrap_or(Lane::Slow);
            let Some((name, extent)) = self.updates.next(&self.cluster) else { break };
            let bytes = piece.bytes();
            let (progress, endpoints) = self.update((name.clone(), lane), &extent, piece);
            let work = piece.bytes().abs_diff(bytes) + endpoints * ENDPOINT_WORK;
            self.updates.queue.charge(&name, work);
            if piece.bytes() != bytes {
                updated.add(name, lane);
            }
            if progress == Progress::Partial {
                break;
            }
            taken += 1;
            if taken >= UNINTERRUPTED && interrupted() {
                return updated;
            }
        }
        if self.tables.are_bisecting() && !piece.is_empty() {
            return updated;
        }
        if self.updates.is_sweep_next() && self.diff.knows_all_lists() {
            self.diff.begin_sweep();
            self.updates.sweep_due = false;
        }
        self.diff.update_others(&self.cluster, piece);
        updated
    }

    /// Updates a service. Returns its progress, and the endpoints and source ranges that were
    /// compared.
    fn update(
        &mut self,
        (name, lane): (ObjectName, Lane),
        extent: &Extent,
        piece: &mut Piece,
    ) -> (Progress, usize) {
        let may_postpone = self.updates.postponed.is_some();
        let resumed = self.updates.queue.take_resumed(&name);
        let context = Context {
            rendered: resumed.as_ref(),
            ..context(&self.cluster, &self.tables, &self.updates, may_postpone)
        };
        // Only an update of the whole service finds out whether its problems are over, and whether
        // packets that nodes hand to each other have an endpoint here.
        let is_whole = self.problems.has(&name) || self.cluster.has_direct_return(&name);
        let extent = if is_whole { &Extent::Whole } else { extent };
        let updated = self.diff.update(&name, extent, context, piece);
        if updated.progress == Progress::Complete {
            self.problems.end(&name, &updated.problems, &self.diff);
        }
        self.problems.add_updated(updated.conflicts, updated.problems);
        if let Some(direct) = &mut self.tables.direct {
            direct.plans.touch(&name, &self.cluster);
        }
        self.updates.note((name.clone(), lane), &updated.progress, updated.affected);
        let rendered = updated.rendered.or(resumed);
        if let Some(rendered) = rendered.filter(|_| updated.progress == Progress::Partial) {
            self.updates.queue.resume(name, rendered);
        }
        (updated.progress, updated.compared)
    }

    /// Keeps unused elements from now on until [`Engine::release`].
    pub fn keep_unused_elements(&mut self) {
        self.diff.keep_unused_elements();
    }

    /// Returns the unused elements that are kept, for release after [`GRACE`](super::GRACE).
    /// `None` if there are none, or if the outcome of a transaction is not known yet.
    pub fn kept_unused_elements(&mut self) -> Option<Kept> {
        self.steps.are_done().then(|| self.diff.kept()).flatten()
    }

    /// Deletes unused elements with the next transactions.
    pub fn release(&mut self, kept: Kept) {
        self.diff.release(kept);
    }
}

impl Step {
    /// Adds the change of a table besides its elements.
    fn add_base(&mut self, id: TableId, change: BaseChange, operations: Vec<Operation>) {
        let (operations, bytes) = with_encoded_size(operations);
        self.bases[id.index()] = Some((change, bytes));
        self.operations.extend(operations);
    }

    /// Returns the bytes of all changes besides elements.
    fn base_bytes(&self) -> usize {
        self.bases.iter().flatten().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the step if it changes something.
    fn checked(self) -> Option<Self> {
        Some(self).filter(|step| !step.operations.is_empty())
    }
}

/// Returns the operations, and their size in a batch. A batch that cannot be encoded counts as 0; its
/// commit reports the error.
fn with_encoded_size(operations: Vec<Operation>) -> (Vec<Operation>, usize) {
    let transaction = Transaction { operations };
    let batch = transaction.encode(0, Acknowledge::BatchEnd);
    (transaction.operations, batch.map_or(0, |batch| batch.bytes.len()))
}
