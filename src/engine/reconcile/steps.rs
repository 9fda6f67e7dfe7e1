//! Transactions that are made and not applied yet.

use std::collections::VecDeque;

use ahash::HashSet;
use nft::{Operation, Transaction, Value};

use super::bisect::StepServices;
use super::devices::DeviceChange;
use super::piece_size::PieceSize;
use super::table_id::TableId;
use crate::model::ObjectName;
use crate::piece;
use crate::ruleset::base::Base;

/// The transactions of steps that are not done: a step counts as installed as soon as it is made.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Transactions that are not answered yet, in order: at most one, and one made ahead of it.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Transactions of the last step that were not returned yet.
    pub(super) prepared: VecDeque<Part>,
    /// Number of steps so far.
    count: u64,
    pub(super) piece_size: PieceSize,
    /// The last step of kube-proxy's tables was not applied: flows are stale once the next one is.
    pub(super) undone: [bool; 2],
    /// Services blamed for a refusal since the engine was last settled, with the key if an element to
    /// delete was missing: that is no fault of the service.
    pub(super) suspects: HashSet<(ObjectName, Option<Value>)>,
}

/// The transaction of a step for one table.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) operations: Vec<Operation>,
    pub(super) in_flight: InFlight,
}

/// What to record once a transaction is applied. It may not be sent yet.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) table: TableId,
    /// What the transaction changes besides elements, if anything.
    pub(super) base: Option<BaseChange>,
    /// Approximate size in bytes.
    pub(super) bytes: usize,
    /// The services that the step updates.
    pub(super) services: StepServices,
    /// The number of its step.
    pub(super) step: u64,
}

/// A change of a table besides its elements.
#[derive(Debug)]
pub(super) enum BaseChange {
    /// The table gets its owner; chains, rules and sets follow in the next transaction.
    Owner,
    /// The table gets the sets that it lacks, and loses the elements that this program never writes.
    /// Chains and rules follow.
    Sets,
    /// Chains, rules and sets after the transaction; `None` without the table.
    Contents(Option<Base>),
    /// The flowtable gets and loses devices, or is replaced; nothing else changes.
    Devices(DeviceChange),
}

impl Steps {
    /// Returns whether every transaction made so far was answered.
    pub(super) fn are_done(&self) -> bool {
        self.in_flight.is_empty() && self.prepared.is_empty()
    }

    /// Returns whether a part of a table is not committed yet.
    pub(super) fn has_parts(&self, id: TableId) -> bool {
        self.parts().any(|part| part.table == id)
    }

    /// Returns whether a part of a step is not committed yet.
    pub(super) fn has_step(&self, step: u64) -> bool {
        self.parts().any(|part| part.step == step)
    }

    /// Returns what is to be recorded of the transactions in flight, then of the prepared ones.
    pub(super) fn parts(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter().chain(self.prepared.iter().map(|part| &part.in_flight))
    }

    /// Forgets all transactions: the tables were read.
    pub(super) fn forget(&mut self, undone: bool) {
        self.in_flight.clear();
        self.prepared.clear();
        self.undone = [undone; 2];
    }

    /// Forgets the transactions of one table, which was read.
    pub(super) fn forget_table(&mut self, id: TableId) {
        while self.take_part(id).is_some() {}
    }

    /// Makes a part for each table. `bases` are the changes besides elements, with the bytes of their
    /// operations.
    pub(super) fn divide(
        &mut self,
        mut operations: Vec<Operation>,
        mut bases: [Option<(BaseChange, usize)>; 3],
        services: &StepServices,
    ) {
        self.count += 1;
        while let Some(first) = operations.iter().filter_map(table_of).min() {
            let of_first = |operation: &Operation| table_of(operation) == Some(first);
            let part = if operations.iter().all(of_first) {
                std::mem::take(&mut operations)
            } else {
                operations.extract_if(.., |it| of_first(it)).collect()
            };
            let (base, base_bytes) = bases[first.index()].take().unzip();
            let bytes = base_bytes.unwrap_or_default() + piece::bytes_of(&part);
            let (services, step) = (services.clone(), self.count);
            let in_flight = InFlight { table: first, base, bytes, services, step };
            self.prepared.push_back(Part { operations: part, in_flight });
        }
    }

    /// Starts the next prepared transaction.
    pub(super) fn start_next(&mut self) -> Option<Transaction> {
        let Part { operations, in_flight } = self.prepared.pop_front()?;
        self.in_flight.push_back(in_flight);
        Some(Transaction { operations })
    }

    /// Takes a part of one table that is not committed, those in flight first.
    pub(super) fn take_part(&mut self, id: TableId) -> Option<InFlight> {
        if let Some(i) = self.in_flight.iter().position(|it| it.table == id) {
            return self.in_flight.remove(i);
        }
        let i = self.prepared.iter().position(|it| it.in_flight.table == id)?;
        self.prepared.remove(i).map(|part| part.in_flight)
    }
}

fn table_of(operation: &Operation) -> Option<TableId> {
    TableId::of(&operation.table())
}
