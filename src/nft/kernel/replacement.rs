//! Replaces a table piece by piece while a copy of it serves.
//!
//! A transaction between two pieces that only adds or deletes elements is committed to the copy that
//! serves, and to the new table before its last piece, which gives that table an effect. Any other
//! use of the table completes the replacement first.

use super::definition::{CopyProgress, CopySource, CopyTableError, Replacement, Replacing};
use super::interface::{Committed, Kernel};
use super::nftables::Nftables;
use crate::table::TableRef;
use crate::transaction::{Operation, Transaction};

/// Most attempts to create the new table: nothing else serves for long.
const ATTEMPTS: usize = 3;

/// Transactions that a step repeats: more than are committed between two steps.
const REPEATED: usize = 64;

impl Nftables {
    /// Begins to replace a table. Changes nothing.
    pub fn begin_replacement(&mut self, replacement: Replacement) {
        self.replaced = None;
        self.replacing = Some(Box::new(Replacing {
            it: replacement,
            listed: 0,
            sent: CopyProgress::default(),
            committed: Vec::new(),
            repeated: 0,
            attempt: 1,
            failure: None,
        }));
    }

    /// Performs the next step of a replacement; returns whether it is complete.
    ///
    /// # Errors
    /// See [`CopyTableError`]. The replacement has ended; the new table lacks something.
    pub fn replacement_step(&mut self) -> Result<bool, CopyTableError> {
        // Calls during a step go to the table itself.
        let Some(mut replacing) = self.replacing.take() else {
            return self.replaced.take().unwrap_or(Ok(())).map(|()| true);
        };
        match self.next_step(&mut replacing) {
            Ok(true) => replacing.failure.map_or(Ok(true), Err),
            Err(error) if replacing.attempt == ATTEMPTS => Err(error),
            outcome => {
                if outcome.is_err() {
                    replacing.attempt += 1;
                    replacing.sent = CopyProgress::default();
                    replacing.repeated = 0;
                }
                self.replacing = Some(replacing);
                Ok(false)
            }
        }
    }

    fn next_step(&mut self, replacing: &mut Replacing) -> Result<bool, CopyTableError> {
        let Replacing { it, listed, sent, committed, repeated, .. } = replacing;
        if *listed < it.definition.sets.len() {
            self.list_again(&it.definition, &it.serving, &mut it.elements, *listed)?;
            *listed += 1;
            return Ok(false);
        }
        if sent.has_elements(&it.elements) && *repeated < committed.len() {
            for transaction in committed.iter().skip(*repeated).take(REPEATED) {
                *repeated += 1;
                // Packets may have removed an element that it deletes. Then the caller compares.
                if let Err(error) = self.commit(transaction) {
                    replacing.failure = Some(error.into());
                }
            }
            if *repeated < committed.len() {
                return Ok(false);
            }
        }
        // The last piece follows at once, else a change between any two steps would prevent it.
        let replaces = !sent.has_begun() && self.read_header(&it.definition.table)?.is_some();
        let source = CopySource {
            elements: &it.elements,
            replaces,
            piece: it.piece,
            first_rules: &[],
            completes: committed.len() == *repeated,
        };
        self.copy_piece(&it.definition, &source, &it.target, sent)
    }

    /// Completes a replacement of this table. The next step returns the outcome.
    pub(super) fn complete_replacement(&mut self, table: &TableRef) {
        while self.replaces(table) {
            match self.replacement_step() {
                Ok(_) => {}
                Err(error) => self.replaced = Some(Err(error)),
            }
        }
    }

    fn replaces(&self, table: &TableRef) -> bool {
        self.replacing.as_ref().is_some_and(|replacing| replacing.it.definition.table == *table)
    }

    /// Commits a transaction to the copy that serves. Returns `None` if it is to be committed to
    /// its own table.
    pub(super) fn commit_to_serving(&mut self, transaction: &Transaction) -> Option<Committed> {
        let table = self.replacing.as_ref()?.it.definition.table.clone();
        let mut operations = transaction.operations.iter();
        if !operations.any(|operation| operation.table() == table) {
            return None;
        }
        let mut replacing = self.replacing.take()?;
        let redirected = redirect(transaction, &table, &replacing.it.serving);
        let committed = redirected.and_then(|redirected| self.commit(&redirected).ok());
        if committed.is_some() {
            replacing.committed.push(transaction.clone());
        }
        self.replacing = Some(replacing);
        if committed.is_none() {
            self.complete_replacement(&table);
        }
        committed
    }
}

/// Returns the same changes of elements in another table; `None` if there are other changes.
fn redirect(transaction: &Transaction, from: &TableRef, to: &TableRef) -> Option<Transaction> {
    let redirected = |operation: &Operation| {
        let mut operation = operation.clone();
        let (Operation::AddElements(table, ..) | Operation::DeleteElements(table, ..)) =
            &mut operation
        else {
            return None;
        };
        (table == from).then(|| *table = to.clone())?;
        Some(operation)
    };
    let operations = transaction.operations.iter().map(redirected).collect::<Option<_>>()?;
    Some(Transaction { operations })
}
