//! Turns differences into transactions: step by step, with one transaction for each table.
//!
//! The tables are independent of each other, so a table that cannot be written does not delay the
//! other one. A step is a set of changes in both tables. It is done when its last transaction is
//! applied, or belongs to a blocked table.

use nft::{Acknowledge, Family, Operation, Transaction};

use super::base_state::BaseState;
use super::bisect::Services;
use super::queue::Lane;
use super::{Engine, TableState, header};
use crate::piece::{self, Piece, PieceLimits};
use crate::ruleset::base::Base;

/// The transaction of a step for one table.
#[derive(Debug)]
pub(super) struct Part {
    operations: Vec<Operation>,
    in_flight: InFlight,
}

impl Part {
    /// Returns the operations of the transaction.
    pub(super) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns what to record once the transaction is applied.
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }
}

/// What to record once a transaction is applied. It may not be sent yet.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) family: Family,
    /// What the transaction changes besides elements, if anything.
    pub(super) base: Option<BaseChange>,
    /// Approximate size in bytes.
    pub(super) bytes: usize,
    /// The services that the step updates.
    pub(super) services: Services,
    /// The number of its step.
    pub(super) step: u64,
}

/// The changes of a step in both tables.
#[derive(Debug, Default)]
struct Step {
    operations: Vec<Operation>,
    /// The change of each table, with the bytes of its operations.
    bases: [Option<(BaseChange, usize)>; 2],
    services: Services,
}

/// A change of a table besides its elements.
#[derive(Debug)]
pub(super) enum BaseChange {
    /// The table gets its owner; chains, rules and sets follow in the next transaction.
    Owner,
    /// Chains, rules and sets after the transaction.
    Contents(Base),
}

impl Engine {
    /// Returns the next transaction; `None` if nothing differs. It concerns one table and has at
    /// most about `max_batch` bytes.
    ///
    /// [`Engine::answer`], [`Engine::committed`] or [`Engine::replace_installed`] must follow.
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
        while self.prepared.is_empty() {
            let mut step = self.differences(max_batch, &interrupted);
            if step.is_none() && self.drop_unused_chains() {
                step = self.differences(max_batch, &interrupted);
            }
            let Some(step) = step else {
                self.report_excluded();
                return None;
            };
            self.divide(step);
            if self.prepared.is_empty() && interrupted() {
                return None;
            }
        }
        self.start_next()
    }

    /// Returns the transaction after the one in flight, made while the kernel applies that one. The
    /// caller commits it next. It drops it if the first is not applied, unless only the other table
    /// was blocked. `None` if it depends on the outcome of the first, or if nothing else differs.
    pub fn next_transaction_ahead(&mut self, max_batch: usize) -> Option<Transaction> {
        if self.in_flight.len() != 1 || self.tables.iter().any(|table| table.blocked.is_some()) {
            return None;
        }
        if self.prepared.is_empty() && self.in_flight[0].base.is_none() {
            let step = self.differences(max_batch, &|| false)?;
            self.divide(step);
        }
        self.start_next()
    }

    /// Removes from the desired tables the chains that neither services nor elements need; returns
    /// whether there were any.
    fn drop_unused_chains(&mut self) -> bool {
        let is_unused = self.is_settled() && !self.has_leftovers();
        let dropped = is_unused
            && (self.timeouts.forget_unused() | self.optional_chains.drop_unused(&self.cluster));
        if dropped {
            self.render_tables();
        }
        dropped
    }

    fn start_next(&mut self) -> Option<Transaction> {
        let Part { operations, in_flight } = self.prepared.pop_front()?;
        self.in_flight.push_back(in_flight);
        Some(Transaction { operations })
    }

    /// Makes a part for each table. Drops the part of a blocked table as if it were applied: once
    /// that table can be written, it is read back and compared.
    fn divide(&mut self, step: Step) {
        let Step { operations, mut bases, services } = step;
        let of_ip = |operation: &Operation| operation.family() == Family::Ip;
        let is_about_one = operations.iter().all(of_ip) || !operations.iter().any(of_ip);
        let parts = match is_about_one {
            true => [operations, Vec::new()],
            false => operations.into_iter().partition::<Vec<_>, _>(of_ip).into(),
        };
        self.steps += 1;
        for operations in parts {
            let Some(family) = operations.first().map(Operation::family) else { continue };
            let (base, base_bytes) = bases[family.index()].take().unzip();
            let bytes = base_bytes.unwrap_or_default() + piece::bytes_of(&operations);
            let services = services.clone();
            let in_flight = InFlight { family, base, bytes, services, step: self.steps };
            self.prepared.push_back(Part { operations, in_flight });
        }
        for family in Family::ALL {
            if self.blocked(family).is_some() {
                self.drop_parts(family);
            }
        }
    }

    /// Drops the uncommitted parts of one table, as if they were applied.
    pub(super) fn drop_parts(&mut self, family: Family) {
        while let Some(place) = self.in_flight.iter().position(|it| it.family == family) {
            self.in_flight.remove(place).into_iter().for_each(|part| self.applied(part));
        }
        while let Some(place) = self.prepared.iter().position(|it| it.in_flight.family == family) {
            let part = self.prepared.remove(place);
            part.into_iter().for_each(|part| self.applied(part.in_flight));
        }
    }

    /// Returns whether a part of a table is not committed yet.
    pub(super) fn has_parts(&self, family: Family) -> bool {
        let waiting = self.prepared.iter().map(|part| &part.in_flight);
        self.in_flight.iter().chain(waiting).any(|part| part.family == family)
    }

    /// Records the installed state after a transaction.
    pub(super) fn applied(&mut self, in_flight: InFlight) {
        let table = &mut self.tables[in_flight.family.index()];
        let flags = table.installed.flags_after(self.table_flags);
        match in_flight.base {
            Some(BaseChange::Owner) => table.installed.set_flags(flags),
            Some(BaseChange::Contents(base)) => {
                table.installed = BaseState::after(&base, flags);
                // The desired table may have changed meanwhile.
                table.is_stale = table.desired != base;
                table.cleanup = Vec::new();
            }
            None => {}
        }
        let waiting = self.prepared.iter().map(|part| &part.in_flight);
        if self.in_flight.iter().chain(waiting).all(|other| other.step != in_flight.step) {
            self.diff.committed();
            for service in std::mem::take(&mut self.after_commit) {
                self.queue.put_first(Lane::Fast, service);
            }
        }
    }

    /// Returns a step that only gives owners to tables that need them before other changes.
    fn owners_first(&self) -> Option<Step> {
        let mut step = Step::default();
        for (i, table) in self.tables.iter().enumerate().filter(|(_, table)| table.is_stale) {
            let header = header(table.family, &table.installed, self.table_flags);
            if table.installed.needs_owner_first(&table.desired, &header) {
                let (adopt, size) = with_encoded_size(vec![Operation::AddTable(header)]);
                step.bases[i] = Some((BaseChange::Owner, size));
                step.operations.extend(adopt);
            }
        }
        step.checked()
    }

    fn differences(&mut self, max_batch: usize, interrupted: &impl Fn() -> bool) -> Option<Step> {
        if let Some(step) = self.owners_first() {
            return Some(step);
        }
        let (mut step, mut bytes) = (Step::default(), 0);
        let mut budget = max_batch.min(self.piece_size.piece_bytes());
        let mut is_replaced = false;
        for i in 0..self.tables.len() {
            let of_table = self.table_operations(i);
            if of_table.is_empty() {
                continue;
            }
            let (of_table, size) = with_encoded_size(of_table);
            bytes += size;
            let table = &self.tables[i];
            if matches!(table.installed, BaseState::Foreign) {
                // A table is replaced as a whole, if one transaction can hold it.
                budget = max_batch;
                is_replaced = true;
            }
            step.bases[i] = Some((BaseChange::Contents(table.desired.clone()), size));
            step.operations.extend(of_table);
        }
        // A packet runs the rules of the generation in which it began, but looks up the elements of
        // the present one. So the elements that new rules need come one commit after the rules. A
        // table that is new or replaced as a whole gets both at once.
        let is_ours = |table: &TableState| matches!(table.installed, BaseState::Ours(_));
        let has_rules = step.operations.iter().any(|it| matches!(it, Operation::AddRule(..)));
        let is_alone = self.is_bisecting() || self.tables.iter().all(is_ours);
        if has_rules && is_alone {
            return step.checked();
        }
        // Sizes of elements are estimates, so an eighth is left free.
        let limit = (max_batch - max_batch / 8).saturating_sub(bytes);
        if bytes == 0 || limit >= self.piece_size.piece_bytes() / 2 {
            let mut piece = Piece::new(PieceLimits { budget: budget.min(limit), limit });
            step.services = if is_replaced {
                // The old table goes with this transaction, and later services have no elements
                // until theirs. So nothing interrupts this piece.
                self.small_went_first = true;
                self.fill(&mut piece, &|| false)
            } else {
                self.fill(&mut piece, interrupted)
            };
            let elements = piece.into_operations(&self.layouts);
            match step.operations.is_empty() {
                true => step.operations = elements,
                false => step.operations.extend(elements),
            }
        }
        step.checked()
    }
}

impl Step {
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
