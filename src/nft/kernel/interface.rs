//! The interface to a kernel, real or fake, and what its calls return.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::error::{CommitError, ReadError};
use crate::chain::Chain;
use crate::element::ElementView;
use crate::flowtable::Flowtable;
use crate::listed_rule::ListedRule;
use crate::message_kind::MessageKind;
use crate::request::Generation;
use crate::set::DecodedSet;
use crate::table::{Table, TableRef};
use crate::transaction::Transaction;
use crate::value::Value;

/// Holder of our tables. Each call blocks until the kernel has completed its work.
pub trait Kernel {
    /// Returns the limit of one encoded transaction in bytes.
    fn max_batch(&self) -> usize;

    /// Returns the netlink port of our socket, which owns the tables that it creates with an owner.
    fn port(&self) -> u32;

    /// Returns a flag for other threads: while it is set, reads end soon, with
    /// [`ReadError::Stopped`].
    fn stop_of_reads(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    /// Applies all of `transaction` or nothing. An empty one is not sent.
    ///
    /// # Errors
    /// See [`CommitError`]: nothing was applied, except perhaps with [`CommitError::Unknown`].
    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError>;

    /// Starts to watch these tables for changes by other programs, if not started.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError>;

    /// Stops watching. While it watches, the kernel also sends notifications for our own commits,
    /// which takes time.
    fn ignore_others(&mut self);

    /// Returns the changes of watched tables by other programs since the last call. Does not block.
    /// Returns none while no table is watched.
    fn others_changes(&mut self) -> OthersChanges;

    /// Returns whether other programs may have changed a watched table since the last call of this
    /// or of [`Kernel::others_changes`].
    fn tampered(&mut self) -> bool {
        self.others_changes() != OthersChanges::Nothing
    }

    /// Returns the netlink port of the socket that owns a table; `None` without an owner or without
    /// the table.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn owner(&mut self, table: &TableRef) -> Result<Option<u32>, ReadError> {
        Ok(self.read_table(table)?.and_then(|contents| contents.owner))
    }

    /// Returns the contents of a table without set elements; `None` if the table does not exist.
    ///
    /// # Errors
    /// See [`ReadError`]. [`ReadError::Changing`] if other commits interrupted every attempt.
    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError>;

    /// Calls `each` with every element of a set or map, in no particular order.
    ///
    /// Every attempt begins with [`ElementRead::Start`], which invalidates the elements before it.
    /// While other programs are watched, elements of several generations may be mixed, and
    /// [`Kernel::tampered`] reports this.
    ///
    /// # Errors
    /// See [`ReadError`]; [`ReadError::is_missing`] if the set does not exist, and
    /// [`ReadError::Changing`] if no tables are watched and other commits interrupted every
    /// attempt.
    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError>;

    /// Returns the number of elements of a set or map; `None` without such a set and where the
    /// kernel does not report it (Linux 6.18 does).
    ///
    /// # Errors
    /// See [`ReadError`].
    fn count_elements(&mut self, table: &TableRef, set: &str) -> Result<Option<u32>, ReadError> {
        let contents = self.read_table(table)?;
        let sets = contents.iter().flat_map(|contents| &contents.sets);
        Ok(sets.into_iter().find(|found| found.name == set).and_then(|found| found.elements))
    }

    /// Calls `each` with the elements of these keys, in this order, up to the first missing one.
    /// Returns how many it found.
    ///
    /// The keys are concatenations of fields. They should be at most a hundred or so, since all
    /// answers must fit the receive buffer. The elements may be of several generations.
    ///
    /// # Errors
    /// See [`ReadError`]. Without such a set, every element is missing.
    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError>;
}

/// Changes by other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OthersChanges {
    /// None.
    #[default]
    Nothing,
    /// Elements were added or deleted, and nothing else.
    Elements(Vec<ElementKey>),
    /// Other objects, very many elements, or unknown changes.
    Anything,
}

/// The place of an element in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementKey {
    /// The table.
    pub table: TableRef,
    /// The name of the set or map.
    pub set: String,
    /// The key; of an interval, its lower end.
    pub key: Value,
}

/// Limit of [`OthersChanges::Elements`], which are kept until the next query. Each costs a lookup
/// of its own.
const MAX_CHANGED_ELEMENTS: usize = 256;

impl OthersChanges {
    /// Adds a change; `None` stands for one of another object.
    pub fn add(&mut self, element: Option<ElementKey>) {
        let Some(element) = element else {
            *self = Self::Anything;
            return;
        };
        match self {
            Self::Nothing => *self = Self::Elements(vec![element]),
            Self::Elements(elements) if elements.len() < MAX_CHANGED_ELEMENTS => {
                elements.push(element);
            }
            Self::Elements(_) | Self::Anything => *self = Self::Anything,
        }
    }
}

/// A step of a dump of set elements.
#[derive(Debug)]
pub enum ElementRead<'a> {
    /// The dump starts, or restarts because it was inconsistent: discard the elements so far.
    Start,
    /// One element.
    Element(ElementView<'a>),
}

/// A transaction that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Length of the encoded transaction in bytes.
    pub bytes: usize,
    /// Number of messages by kind, without those that begin and end the batch.
    pub messages: BTreeMap<MessageKind, usize>,
    /// Duration of the encoding.
    pub encode_time: Duration,
    /// Duration of the system call that sent the transaction, in which the kernel does all the
    /// work.
    pub kernel_time: Duration,
}

impl Committed {
    /// Returns the outcome of an empty transaction.
    pub fn nothing() -> Self {
        Self {
            bytes: 0,
            messages: BTreeMap::new(),
            encode_time: Duration::ZERO,
            kernel_time: Duration::ZERO,
        }
    }
}

/// Contents of a table, all of one generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// Generation of the contents.
    pub generation: Generation,
    /// The table itself.
    pub table: Table,
    /// Netlink port of the socket that owns the table. `None` without an owner, or if the owner is
    /// gone and the table persists.
    pub owner: Option<u32>,
    /// Chains, in the kernel's order.
    pub chains: Vec<Chain>,
    /// Rules, those of one chain in their order. Copies share them.
    pub rules: Arc<[ListedRule]>,
    /// Sets and maps, in the kernel's order.
    pub sets: Vec<DecodedSet>,
    /// Flowtables, in the kernel's order.
    pub flowtables: Vec<Flowtable>,
    /// Number of objects left out because a transaction cannot create their kind: chains of another
    /// type or policy. Counts the table too if it has unknown flags. If not 0, the table belongs to
    /// another program.
    pub foreign: usize,
}

impl Contents {
    /// Returns the error of a commit from netlink port `ours`, if another socket owns the table.
    pub fn owned_by_another(&self, ours: u32) -> Option<CommitError> {
        let port = self.owner.filter(|owner| *owner != ours)?;
        Some(CommitError::Owned { table: self.table.reference(), port })
    }
}
