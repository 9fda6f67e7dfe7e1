//! The machine that replaces a table of ours by one with other flags, in steps.
//!
//! ```text
//!            step                              our table             handover table
//! Begun      the one of an earlier end goes    serves                -
//! Copying    the next piece of it              serves                idle: its chains come later
//! Copied     base chains of our table go       packets leave it      serves from now on
//! Serving    the next piece of the new table   created, then serves  serves, then idle
//! Replaced   base chains of the copy go        serves                idle
//! Emptied    the copy goes                     serves                -
//!
//! Begun --> Copying --> Copied --> Serving --> Replaced --> Emptied --> (done)
//!   +----------+----------+           |            \--> (done)  at the end of the daemon,
//!              | a change             | 3 failures      with other priorities
//!            given up               failed
//! ```
//!
//! The elements are listed first, perhaps over another socket, unless the caller knows them. Up to `Copied` our table is unchanged, and a change of it makes the copy useless: the
//! caller drops the machine. In `Serving` a change of elements is committed to the copy, and to the new
//! table before its last piece. Any other use of the table completes the new table first.

use engine::KnownElements;
use engine::ruleset::table;
use nft::difference::{Difference, DifferenceError};
use nft::kernel::{CommitError, Committed, Extent, Kernel, Nftables};
use nft::{AnySet, Family, Operation, TableRef, Transaction, WholeTable};

use super::error::HandoverError;
use super::tables::{
    LIFETIME, Purpose, delete_base_chains, flags_of_ours, handover_table, make_way, of_handover,
    remove, serve,
};

/// Most attempts to create the new table: nothing else serves for long.
const ATTEMPTS: usize = 3;

/// Transactions that a step repeats: more than are committed between two steps.
const REPEATED: usize = 64;

/// The progress of a replacement after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Our table serves, unchanged. The replacement ends without harm if no step follows; a part of
    /// the handover table may exist.
    Copied,
    /// The handover table serves, or has just served. All other steps must follow.
    Serving,
    /// Our table has the flags and serves.
    Done,
}

/// A replacement that is under way, of a table of kernel `K`.
pub trait Replace<K>: Send {
    /// Performs the next step. Nothing may have changed the table between its listing and the first
    /// [`Step::Serving`].
    ///
    /// # Errors
    /// See [`HandoverError`]. Our table is unchanged, or the handover table serves; the new table
    /// may lack something.
    fn step(&mut self, kernel: &mut K) -> Result<Step, HandoverError>;

    /// Commits a transaction; to the handover table, and later to the new one, while that serves.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn commit(
        &mut self,
        kernel: &mut K,
        transaction: &Transaction,
    ) -> Result<Committed, CommitError>;
}

/// A table that is being replaced.
#[derive(Debug)]
pub struct Replacing {
    table: TableRef,
    own: WholeTable,
    elements: Elements,
    purpose: Purpose,
    /// Our table does not only get other priorities.
    replaces: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Begun,
    Copying(Creation),
    Copied,
    Serving(Box<Serving>),
    Replaced,
    Emptied,
    /// A commit tried to complete the new table. The next step returns the error.
    Failed(Option<HandoverError>),
}

/// The elements of a table.
#[derive(Debug)]
struct Elements {
    /// Messages that list those of named sets.
    of_commits: Vec<Vec<u8>>,
    /// Of sets that packets write, too.
    of_packets: Vec<Vec<u8>>,
    /// Those of sets that are in no message.
    known: Option<KnownElements>,
}

/// The new table, and what the handover table gets meanwhile.
#[derive(Debug, Default)]
struct Serving {
    new: Option<Creation>,
    /// Transactions that the handover table has, in their order.
    committed: Vec<Transaction>,
    /// How many of them the new table has too.
    repeated: usize,
    failures: usize,
    /// The new table lacks a transaction.
    lack: Option<CommitError>,
}

/// A table that is created in pieces. The rules of its base chains come last, so that it has no
/// effect before. All other rules come first: the kernel walks a whole map for each rule that is
/// added after its elements (`nf_tables_bind_set`).
#[derive(Debug)]
struct Creation {
    piece: Difference,
    effect: Option<Difference>,
    table: TableRef,
    /// The number of the next list.
    next: usize,
    /// The number of the next known element.
    next_known: usize,
}

impl Elements {
    fn list(&self, number: usize) -> Option<&Vec<u8>> {
        self.of_commits.iter().chain(&self.of_packets).nth(number)
    }
}

impl Creation {
    /// Begins to create a table, after the deletion of one with its name.
    fn of(
        contents: &WholeTable,
        table: TableRef,
        is_replaced: bool,
    ) -> Result<Self, DifferenceError> {
        let mut piece = contents.difference_from(None)?;
        let effect = Some(piece.split_effect());
        if is_replaced {
            let mut deletion = Difference::deletion(contents.family, &contents.name)?;
            deletion.append(piece);
            piece = deletion;
        }
        Ok(Self { piece, effect, table, next: 0, next_known: 0 })
    }

    /// Returns the operation that adds the next known elements.
    fn next_known(&self, elements: &Elements, bytes: usize) -> Option<Operation> {
        elements.known.as_ref()?.added_to(&self.table, self.next_known, bytes)
    }

    /// Returns whether all elements are sent.
    fn has_sent(&self, elements: &Elements) -> bool {
        self.piece.is_empty()
            && elements.list(self.next).is_none()
            && self.next_known(elements, 0).is_none()
    }

    /// Sends the next piece, the last one only if it `may_complete`. Returns whether it was.
    fn send(
        &mut self,
        kernel: &mut Nftables,
        elements: &Elements,
        piece: usize,
        may_complete: bool,
    ) -> Result<bool, HandoverError> {
        let limit = piece.min(kernel.max_batch() / 2);
        while self.piece.bytes() <= limit
            && let Some(list) = elements.list(self.next)
        {
            self.piece.add_listed(list)?;
            self.next += 1;
        }
        if !self.piece.is_empty() {
            kernel.apply(&self.piece)?;
            self.piece.clear();
        } else if let Some(operation) = self.next_known(elements, limit) {
            self.next_known += operation.elements().map_or(0, <[_]>::len);
            kernel.commit(&Transaction { operations: vec![operation] })?;
        }
        let completes = may_complete && self.has_sent(elements);
        if completes && let Some(effect) = self.effect.take() {
            kernel.apply(&effect)?;
        }
        Ok(completes)
    }
}

impl Replacing {
    /// Lists our table of a family, without the elements that are known; `None` if it need not be
    /// replaced, or if another program created it. Changes nothing.
    ///
    /// # Errors
    /// See [`HandoverError`]; [`HandoverError::Interrupted`] soon after `is_interrupted` returns true.
    pub fn list(
        kernel: &mut Nftables,
        (family, purpose): (Family, Purpose),
        known: Option<KnownElements>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, HandoverError> {
        let table = table(family);
        let Some(flags) = flags_of_ours(kernel, &table)? else { return Ok(None) };
        let replaces = flags.persist != purpose.flags().persist;
        if !replaces && purpose != Purpose::Leave {
            return Ok(None);
        }
        let Some(own) = kernel.whole_table(table.family, &table.name, Extent::Structure)? else {
            return Ok(None);
        };
        let left_out = if known.is_some() { &KnownElements::SETS[..] } else { &[] };
        let of_commits = |set: &AnySet| {
            !has_timeouts(set) && !left_out.iter().any(|known| known.name() == set.name)
        };
        let elements = Elements {
            of_commits: list_sets(kernel, (&own, &table), of_commits, is_interrupted)?,
            of_packets: list_sets(kernel, (&own, &table), has_timeouts, is_interrupted)?,
            known,
        };
        Ok(Some(Self { table, own, elements, purpose, replaces, phase: Phase::Begun }))
    }

    /// Creates the next piece of the new table, again from the first one after a failure.
    fn create(&mut self, kernel: &mut Nftables) -> Result<Step, HandoverError> {
        let created = self.create_piece(kernel);
        let Phase::Serving(serving) = &mut self.phase else { return Ok(Step::Serving) };
        match created {
            Ok(false) => {}
            Ok(true) => {
                let lack = serving.lack.take();
                self.phase = Phase::Replaced;
                if let Some(error) = lack {
                    return Err(error.into());
                }
            }
            Err(_) if serving.failures + 1 < ATTEMPTS => {
                (serving.new, serving.repeated) = (None, 0);
                serving.failures += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(Step::Serving)
    }

    /// Returns whether the new table is complete.
    fn create_piece(&mut self, kernel: &mut Nftables) -> Result<bool, HandoverError> {
        let (table, handover) = (self.table.clone(), handover_table(self.table.family));
        let Phase::Serving(serving) = &mut self.phase else { return Ok(true) };
        let Some(new) = &mut serving.new else {
            let listed = (&self.own, &handover);
            self.elements.of_packets = list_sets(kernel, listed, has_timeouts, &|| false)?;
            let new = WholeTable { flags: self.purpose.flags().bits(), ..self.own.clone() };
            let is_replaced = kernel.read_table(&table)?.is_some();
            serving.new = Some(Creation::of(&new, table, is_replaced)?);
            return Ok(false);
        };
        if new.has_sent(&self.elements) {
            for transaction in serving.committed.iter().skip(serving.repeated).take(REPEATED) {
                serving.repeated += 1;
                // Packets may have removed an element that it deletes. Then the caller compares.
                serving.lack = kernel.commit(transaction).err().or(serving.lack.take());
            }
        }
        // The last piece follows at once, else a change between any two steps would prevent it.
        let may_complete = serving.repeated == serving.committed.len();
        new.send(kernel, &self.elements, self.purpose.piece(), may_complete)
    }
}

impl Replace<Nftables> for Replacing {
    fn step(&mut self, kernel: &mut Nftables) -> Result<Step, HandoverError> {
        let (table, handover) = (self.table.clone(), handover_table(self.table.family));
        match &mut self.phase {
            Phase::Begun => {
                remove(kernel, &handover)?;
                let contents = of_handover(&self.own, self.elements.known.as_ref(), self.purpose);
                let copy = Creation::of(&contents, handover, false)?;
                self.phase = Phase::Copying(copy);
                Ok(Step::Copied)
            }
            Phase::Copying(copy) => {
                if copy.send(kernel, &self.elements, self.purpose.piece(), true)? {
                    serve(kernel, &self.own, None)?;
                    self.phase = if self.replaces { Phase::Copied } else { Phase::Replaced };
                }
                Ok(Step::Copied)
            }
            Phase::Copied => {
                delete_base_chains(kernel, &table, &self.own.chains)?;
                self.phase = Phase::Serving(Box::default());
                Ok(Step::Serving)
            }
            Phase::Serving(_) => self.create(kernel),
            Phase::Replaced if self.purpose == Purpose::Leave => {
                make_way(kernel, &handover)?;
                make_way(kernel, &table)?;
                serve(kernel, &self.own, Some(LIFETIME))?;
                Ok(Step::Done)
            }
            Phase::Replaced => {
                if let Some(contents) = kernel.read_table(&handover)? {
                    delete_base_chains(kernel, &handover, &contents.chains)?;
                }
                self.phase = Phase::Emptied;
                Ok(Step::Serving)
            }
            Phase::Emptied => {
                let operations = vec![Operation::DeleteTable(handover)];
                kernel.commit(&Transaction { operations })?;
                Ok(Step::Done)
            }
            Phase::Failed(error) => error.take().map_or(Ok(Step::Done), Err),
        }
    }

    fn commit(
        &mut self,
        kernel: &mut Nftables,
        transaction: &Transaction,
    ) -> Result<Committed, CommitError> {
        let mut operations = transaction.operations.iter();
        let concerns = operations.any(|operation| operation.table() == self.table);
        if let Phase::Serving(serving) = &mut self.phase
            && concerns
        {
            let to = handover_table(self.table.family);
            let redirected = redirect(transaction, &self.table, &to);
            if let Some(committed) = redirected.and_then(|it| kernel.commit(&it).ok()) {
                serving.committed.push(transaction.clone());
                return Ok(committed);
            }
            while let Phase::Serving(_) = self.phase {
                if let Err(error) = self.step(kernel) {
                    self.phase = Phase::Failed(Some(error));
                }
            }
        }
        kernel.commit(transaction)
    }
}

/// Elements have timeouts of their own, which packets set.
fn has_timeouts(set: &AnySet) -> bool {
    set.flags & AnySet::TIMEOUT != 0
}

/// Lists the elements of the wanted sets of a table or of its copy.
fn list_sets(
    kernel: &mut Nftables,
    (own, table): (&WholeTable, &TableRef),
    is_wanted: impl Fn(&AnySet) -> bool,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Vec<Vec<u8>>, HandoverError> {
    let mut lists = Vec::new();
    for contents in own.named_sets().filter(|contents| is_wanted(&contents.set)) {
        lists.extend(kernel.list_elements(table, &contents.set.name, is_interrupted)?);
    }
    Ok(lists)
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
