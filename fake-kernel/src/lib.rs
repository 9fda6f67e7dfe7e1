//! An in-memory implementation of [`Kernel`] for tests.
//!
//! ```
//! # extern crate nft as nft_netlink;
//! use nft_netlink::kernel::Kernel;
//! use nft_netlink::{Operation, Table, TableFamily, Transaction};
//! use nft_netlink_fake::Fake;
//!
//! let table = Table::new(TableFamily::Inet, "t");
//! let reference = table.reference();
//! let mut kernel = Fake::new();
//! kernel.commit(&Transaction { operations: vec![Operation::AddTable(table)] })?;
//! assert!(kernel.read_table(&reference)?.is_some());
//! let deletion = Operation::DeleteSet(reference, "none".into());
//! assert!(kernel.commit(&Transaction { operations: vec![deletion] }).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Tables may be of any family. It takes a [`Transaction`], not a difference of two tables.
//!
//! It applies a transaction as a whole or not at all, and refuses the same transactions as the real
//! kernel; `netlink-tests/tests/fake.rs` compares both. Of a rule, it checks only the chains and
//! sets that the rule names, not its keys.

mod listed;
mod ruleset;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use listed::ListedElement;
use nft::kernel::{
    CommitError, Committed, Contents, ElementKey, ElementRead, Generation, Kernel, OthersChanges,
    ReadError,
};
use nft::netlink::message::HEADER_LENGTH;
use nft::request::Request;
use nft::{
    self, Acknowledge, Batch, DecodedSet, Element, ElementView, Flowtable, ListedRule, Operation,
    TableRef, Transaction, Value,
};
use nix::errno::Errno;
use ruleset::{InstalledSet, InstalledTable, Refused, Ruleset};

/// Failure of a future commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The kernel refuses the transaction as a whole with this error number.
    Refused(Errno),
    /// The answer is lost after the transaction was applied.
    AnswerLost,
    /// The transaction cannot be sent.
    NotSent,
}

/// In-memory replacement of nf_tables.
#[derive(Clone, Debug)]
pub struct Fake {
    ruleset: Ruleset,
    generation: Generation,
    /// The watched tables.
    watched: Vec<TableRef>,
    /// Changes of watched tables by other programs.
    others_changes: OthersChanges,
    max_batch: usize,
    /// Failure of each future commit, in order; `None` or no entry means success.
    mishaps: VecDeque<Option<Mishap>>,
    commits: usize,
    committer: Option<ThreadId>,
    failures: usize,
    hides_sizes: bool,
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Fake {
    /// Returns a kernel without tables.
    pub fn new() -> Self {
        Self {
            ruleset: Ruleset::default(),
            generation: Generation(1),
            watched: Vec::new(),
            others_changes: OthersChanges::Nothing,
            max_batch: usize::MAX,
            mishaps: VecDeque::new(),
            commits: 0,
            committer: None,
            failures: 0,
            hides_sizes: false,
        }
    }

    /// Does not report the number of elements of sets, as Linux 6.1.
    pub fn hide_sizes(&mut self) {
        self.hides_sizes = true;
    }

    /// Refuses to send transactions of more than `bytes`.
    pub fn set_max_batch(&mut self, bytes: usize) {
        self.max_batch = bytes;
    }

    /// Refuses flowtables from now on, as a kernel without them does.
    pub fn lack_flowtables(&mut self) {
        self.ruleset.lacks_flowtables = true;
    }

    /// Makes the next commit without a planned failure fail.
    pub fn expect_mishap(&mut self, mishap: Mishap) {
        self.mishaps.push_back(Some(mishap));
    }

    /// Lets `commits` commits succeed and makes the next one fail.
    pub fn expect_mishap_after(&mut self, commits: usize, mishap: Mishap) {
        self.mishaps.extend(std::iter::repeat_n(None, commits));
        self.expect_mishap(mishap);
    }

    /// Cancels all planned failures and the limit of a batch.
    pub fn forgive(&mut self) {
        self.mishaps.clear();
        self.max_batch = usize::MAX;
    }

    /// Returns the number of planned failures that have not happened yet.
    pub fn mishaps_left(&self) -> usize {
        self.mishaps.iter().flatten().count()
    }

    /// Returns the number of transactions that [`Kernel::commit`] has applied.
    pub fn commits(&self) -> usize {
        self.commits
    }

    /// Returns the thread of the last transaction that [`Kernel::commit`] has applied.
    pub fn committer(&self) -> Option<ThreadId> {
        self.committer
    }

    /// Returns the number of commits that ended with an error.
    pub fn failures(&self) -> usize {
        self.failures
    }

    /// Applies a transaction like another program.
    ///
    /// # Errors
    /// The error number with which the kernel refuses it.
    pub fn tamper(&mut self, transaction: &Transaction) -> Result<(), Errno> {
        let before = self.ruleset.clone();
        self.apply(transaction).map_err(|(_, refused)| refused.errno)?;
        for operation in &transaction.operations {
            if self.watched.contains(&operation.table()) {
                note(&mut self.others_changes, operation, &before);
            }
        }
        Ok(())
    }

    /// Applies a transaction without a new generation and without notification.
    ///
    /// # Errors
    /// The error number with which the kernel refuses it.
    pub fn corrupt(&mut self, transaction: &Transaction) -> Result<(), Errno> {
        let generation = self.generation;
        self.apply(transaction).map_err(|(_, refused)| refused.errno)?;
        self.generation = generation;
        Ok(())
    }

    /// Closes our socket, which owns the tables created with an owner, and opens another.
    pub fn reopen(&mut self) {
        self.ruleset.lose_owner();
        self.ignore_others();
        self.advance();
    }

    /// Deletes every table, like `nft flush ruleset` of another program.
    pub fn flush_ruleset(&mut self) {
        if self.watched.iter().any(|it| self.ruleset.tables.contains_key(it)) {
            self.others_changes.add(None);
        }
        self.ruleset.tables.clear();
        self.advance();
    }

    /// Returns the elements of a set or map, in the order of their keys; empty without such a set.
    pub fn elements(&self, table: &TableRef, set: &str) -> Vec<Element> {
        let installed = self.ruleset.tables.get(table).and_then(|table| table.sets.get(set));
        installed.map(|set| set.elements.objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Applies all operations or none; the error contains the index of the operation.
    fn apply(&mut self, transaction: &Transaction) -> Result<(), (usize, Refused)> {
        let mut next = self.ruleset.clone();
        for (index, operation) in transaction.operations.iter().enumerate() {
            next.apply(operation).map_err(|refused| (index, refused))?;
        }
        next.finish();
        self.ruleset = next;
        self.advance();
        Ok(())
    }

    fn try_commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let batch = transaction
            .encode(1, Acknowledge::BatchEnd)
            .map_err(|error| CommitError::unencodable(transaction, &error))?;
        if transaction.operations.is_empty() {
            return Ok(Committed::nothing());
        }
        if batch.bytes.len() > self.max_batch {
            return Err(CommitError::NotSent(Errno::EMSGSIZE.into()));
        }
        let mishap = self.mishaps.pop_front().flatten();
        match mishap {
            Some(Mishap::Refused(errno)) => {
                return Err(CommitError::refused(transaction, None, errno));
            }
            Some(Mishap::NotSent) => return Err(CommitError::NotSent(Errno::ENOBUFS.into())),
            Some(Mishap::AnswerLost) | None => {}
        }
        self.apply(transaction).map_err(|(index, refused)| refusal(transaction, index, refused))?;
        let committed = self.committed_now(&batch);
        match mishap {
            Some(Mishap::AnswerLost) => Err(CommitError::Unknown(Errno::ENOBUFS.into())),
            Some(Mishap::Refused(_) | Mishap::NotSent) | None => Ok(committed),
        }
    }

    fn advance(&mut self) {
        self.generation = Generation(self.generation.0.checked_add(1).unwrap_or(1));
    }

    fn committed_now(&mut self, batch: &Batch) -> Committed {
        self.commits += 1;
        self.committer = Some(thread::current().id());
        Committed {
            bytes: batch.bytes.len(),
            messages: batch.counts(),
            encode_time: Duration::ZERO,
            kernel_time: Duration::ZERO,
        }
    }
}

impl Kernel for Fake {
    fn max_batch(&self) -> usize {
        self.max_batch
    }

    fn port(&self) -> u32 {
        PORT
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let outcome = self.try_commit(transaction);
        self.failures += usize::from(outcome.is_err());
        outcome
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        if self.watched.is_empty() {
            self.watched = tables.to_vec();
        }
        Ok(())
    }

    fn ignore_others(&mut self) {
        self.watched.clear();
        self.others_changes = OthersChanges::Nothing;
    }

    fn others_changes(&mut self) -> OthersChanges {
        std::mem::take(&mut self.others_changes)
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        let installed = self.ruleset.tables.get(table);
        let mut contents = installed.map(|installed| contents(installed, self.generation));
        if self.hides_sizes {
            let sets = contents.iter_mut().flat_map(|contents| &mut contents.sets);
            sets.for_each(|set| set.elements = None);
        }
        Ok(contents)
    }

    fn count_elements(&mut self, table: &TableRef, set: &str) -> Result<Option<u32>, ReadError> {
        let installed = self.ruleset.tables.get(table).and_then(|table| table.sets.get(set));
        Ok(installed.filter(|_| !self.hides_sizes).and_then(InstalledSet::count))
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        let installed = self.ruleset.tables.get(table).and_then(|table| table.sets.get(set));
        let Some(installed) = installed else {
            let what = Request::Elements(table, set).to_string();
            return Err(ReadError::Refused { what, errno: Errno::ENOENT, reason: None });
        };
        each(ElementRead::Start);
        let listing = &installed.elements.listing;
        if listing.get().is_none() {
            let elements = installed.elements.objects.values().cloned().collect();
            // Another thread may have been faster, with the same messages.
            let _ = listing.set(listed(table, installed, elements)?);
        }
        let listing = listing.get().map(Vec::as_slice).unwrap_or_default();
        listing.iter().for_each(|element| each(ElementRead::Element(element.view())));
        Ok(())
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        let installed = self.ruleset.tables.get(table).and_then(|table| table.sets.get(set));
        let Some(installed) = installed else { return Ok(0) };
        // The key of an interval is its lower end.
        let of = |key: &Value| {
            let mut found = installed.elements.objects.range((key.clone(), None)..);
            found.next().filter(|((found, _), _)| found == key).map(|(_, element)| element.clone())
        };
        let found: Vec<_> = keys.iter().map_while(of).collect();
        let found = listed(table, installed, found)?;
        found.iter().for_each(|element| each(element.view()));
        Ok(found.len())
    }
}

/// Adds the changes of an operation by another program. The kernel reports each element of a set
/// that is flushed.
fn note(changes: &mut OthersChanges, operation: &Operation, before: &Ruleset) {
    let (set, keys): (_, Vec<Value>) = if let Operation::FlushSet(table, set) = operation {
        let flushed = before.tables.get(table).and_then(|table| table.sets.get(set));
        let keys = flushed.into_iter().flat_map(|set| set.elements.objects.keys());
        (set, keys.map(|(key, _)| key.clone()).collect())
    } else if let Operation::AddElements(_, set, elements)
    | Operation::DeleteElements(_, set, elements) = operation
    {
        (&set.name, elements.iter().map(|it| it.key.clone()).collect())
    } else {
        return changes.add(None);
    };
    for key in keys {
        changes.add(Some(ElementKey { table: operation.table(), set: set.to_string(), key }));
    }
}

fn contents(installed: &InstalledTable, generation: Generation) -> Contents {
    let sets = installed.sets.values().map(|installed| DecodedSet {
        name: installed.set.name.to_string(),
        set: Some(installed.set.as_ref().clone()),
        anonymous: false,
        elements: installed.count(),
    });
    let chains = &installed.chains.objects;
    let rules = installed.chains.listing.get_or_init(|| {
        let rules = chains.values().flat_map(|chain| &chain.rules);
        let table = &installed.table.name;
        (1..).zip(rules).map(|(handle, rule)| ListedRule::of(rule, table, handle)).collect()
    });
    let flowtables = installed.flowtables.values().map(|(flowtable, devices)| Flowtable {
        devices: devices.iter().cloned().collect(),
        ..flowtable.clone()
    });
    Contents {
        generation,
        table: installed.table.clone(),
        owner: installed.table.flags.owner.then_some(PORT),
        chains: chains.values().map(|installed| installed.chain.clone()).collect(),
        rules: Arc::clone(rules),
        sets: sets.collect(),
        flowtables: flowtables.collect(),
        foreign: 0,
    }
}

/// Returns elements of a set as read from the messages that list them.
fn listed(
    table: &TableRef,
    installed: &InstalledSet,
    elements: Vec<Element>,
) -> Result<Vec<ListedElement>, ReadError> {
    let mut listed = Vec::with_capacity(elements.len());
    let operation = Operation::AddElements(table.clone(), installed.set.clone(), elements.into());
    let transaction = Transaction { operations: vec![operation] };
    let Ok(batch) = transaction.encode(1, Acknowledge::BatchEnd) else {
        unreachable!("bug: an installed element cannot be encoded")
    };
    for origin in &batch.messages {
        let attributes = batch.message(*origin).get(MESSAGE_HEADERS..).unwrap_or_default();
        let each = |view: ElementView<'_>| listed.push(ListedElement::of(&view));
        nft::decode_elements(attributes, each).map_err(|error| ReadError::Malformed {
            what: "elements".to_owned(),
            error: error.into(),
        })?;
    }
    Ok(listed)
}

/// The netlink port of our socket.
const PORT: u32 = 100;

/// Length of `struct nlmsghdr` and `struct nfgenmsg`.
const MESSAGE_HEADERS: usize = HEADER_LENGTH + 4;

fn refusal(transaction: &Transaction, index: usize, refused: Refused) -> CommitError {
    let Refused { errno, element } = refused;
    CommitError::refused(transaction, Some((index, element)), errno)
}

#[cfg(test)]
mod tests {
    use nft::kernel::was_applied;
    use nft::{Family, Set, Table, Type, Value};

    use super::*;

    fn reference() -> TableRef {
        TableRef::new(Family::Ip, "kube-proxy")
    }

    fn set() -> Arc<Set> {
        let key = vec![Type::Ipv4Addr];
        Arc::new(Set { name: "cluster-ips".into(), key, ..Set::default() })
    }

    fn table_and_set() -> Transaction {
        let table = Operation::AddTable(Table::new(Family::Ip, "kube-proxy"));
        Transaction { operations: vec![table, Operation::AddSet(reference(), set())] }
    }

    fn elements(last_bytes: &[u8]) -> Vec<Element> {
        let key = |byte: &u8| Value::new().ip([10, 96, 0, *byte].into());
        last_bytes.iter().map(|byte| Element::new(key(byte))).collect()
    }

    fn add(last_bytes: &[u8]) -> Transaction {
        let operation = Operation::AddElements(reference(), set(), elements(last_bytes).into());
        Transaction { operations: vec![operation] }
    }

    fn delete(last_bytes: &[u8]) -> Transaction {
        let operation = Operation::DeleteElements(reference(), set(), elements(last_bytes).into());
        Transaction { operations: vec![operation] }
    }

    /// Returns a fake kernel with a table and an empty set.
    fn prepared() -> Fake {
        let mut fake = Fake::new();
        fake.commit(&table_and_set()).unwrap();
        fake
    }

    #[test]
    fn a_refused_transaction_changes_nothing_and_names_the_element() {
        let mut fake = prepared();
        let before = fake.generation;
        let mut transaction = add(&[1, 2]);
        transaction.operations.extend(delete(&[2, 9]).operations);
        let refused = fake.commit(&transaction);
        let Err(CommitError::Refused { operation, element, errno, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((operation, element, errno), (Some(1), Some(1), Errno::ENOENT));
        assert_eq!(fake.elements(&reference(), "cluster-ips"), []);
        assert_eq!(fake.generation, before);
    }

    #[test]
    fn a_lost_answer_leaves_the_transaction_applied() {
        let mut fake = prepared();
        fake.expect_mishap(Mishap::AnswerLost);
        assert!(matches!(fake.commit(&add(&[1])), Err(CommitError::Unknown(_))));
        assert_eq!(fake.elements(&reference(), "cluster-ips"), elements(&[1]));
    }

    #[test]
    fn elements_show_whether_a_transaction_was_applied() {
        let all = |parts: &[Transaction]| Transaction {
            operations: parts.iter().flat_map(|it| it.operations.clone()).collect(),
        };
        let replacement = [delete(&[1]), add(&[1])];
        // Before, the set holds 1 and 2.
        for (transaction, before, after) in [
            (add(&[3, 4]), Some(false), Some(true)),
            (delete(&[1, 2]), Some(false), Some(true)),
            (all(&[delete(&[1]), add(&[3])]), Some(false), Some(true)),
            (all(&[all(&replacement), add(&[3])]), Some(false), Some(true)),
            (all(&replacement), None, None),
            // Another program was faster.
            (all(&[add(&[2]), add(&[3])]), None, Some(true)),
            (table_and_set(), None, None),
        ] {
            let mut fake = prepared();
            fake.commit(&add(&[1, 2])).unwrap();
            assert_eq!(was_applied(&mut fake, &transaction), before, "{transaction}");
            fake.commit(&transaction).unwrap();
            assert_eq!(was_applied(&mut fake, &transaction), after, "{transaction}");
        }
    }

    #[test]
    fn changes_of_watched_tables_by_other_programs_are_detected() {
        let mut fake = prepared();
        fake.tamper(&add(&[1])).unwrap();
        assert!(!fake.tampered());
        fake.watch_others(&[reference()]).unwrap();
        fake.commit(&add(&[2])).unwrap();
        assert!(!fake.tampered());
        fake.tamper(&delete(&[1])).unwrap();
        assert!(fake.tampered() && !fake.tampered());
        fake.flush_ruleset();
        assert!(fake.tampered());
        assert!(fake.read_table(&reference()).unwrap().is_none());
    }
}
