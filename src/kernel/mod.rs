//! The kernel side: commit, read back, notice changes by others.
//!
//! A transaction is applied whole or not at all, and the error says which where that can be
//! known. There are two kernels behind one trait: [`Nftables`], and the crate `fake-kernel` for tests.

mod announced;
mod answer;
mod any;
mod culprit;
mod error;
mod jumps;
mod nftables;
mod others;
mod read;
mod release;
mod route;
mod tracer;
mod writer;

use std::collections::BTreeMap;
use std::time::Duration;

pub use announced::Announced;
pub use error::{CommitError, Malformed, OpenError, ReadError};
pub use nftables::Nftables;
pub use read::{MAX_ANSWER_BYTES, MAX_ANSWER_TIME};
pub use release::Release;
pub use route::{NoRoute, Route, Routes, Way, interface_index, interface_name};
pub use tracer::Tracer;
pub use writer::{Requests, Writer, WriterGone};

use crate::nft::{
    Chain, DecodedRule, DecodedSet, ElementView, MessageKind, Table, TableRef, Transaction, Value,
};

/// What holds our tables. All calls block until the kernel has done its work.
pub trait Kernel {
    /// The most bytes that one encoded transaction may have.
    fn max_batch(&self) -> usize;

    /// The netlink port of our socket, which owns the tables that it makes with an owner.
    fn port(&self) -> u32;

    /// Applies all of `transaction` or nothing. An empty one is not sent.
    ///
    /// # Errors
    /// See [`CommitError`]: nothing was applied, except perhaps with [`CommitError::Unknown`].
    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError>;

    /// Begins to notice what others change in these tables, unless it has begun.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError>;

    /// Notices it no more. While it is noticed, the kernel announces our own commits too, which
    /// takes time.
    fn ignore_others(&mut self);

    /// Whether others may have changed one of the watched tables since the last call. Does not
    /// wait. False while nothing is watched.
    fn tampered(&mut self) -> bool;

    /// The netlink port of the socket that owns a table; `None` if it has none, or there is no such
    /// table.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn owner(&mut self, table: &TableRef) -> Result<Option<u32>, ReadError> {
        Ok(self.read_table(table)?.and_then(|contents| contents.owner))
    }

    /// What is in a table, without the elements of its sets; `None` if there is no such table.
    ///
    /// # Errors
    /// See [`ReadError`]. [`ReadError::Changing`] if other commits spoilt every attempt.
    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError>;

    /// Gives every element of a set or map to `each`, in no particular order.
    ///
    /// Every attempt begins with [`ElementRead::Start`]; elements given before it do not count. While
    /// others are watched, the elements may be of several generations, and [`Kernel::tampered`] says
    /// whether they are.
    ///
    /// # Errors
    /// See [`ReadError`]; [`ReadError::is_missing`] if there is no such set, and
    /// [`ReadError::Changing`] if others are not watched and their commits spoilt every attempt.
    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError>;

    /// How many elements a set or map has; `None` where the kernel does not report it (Linux 6.18
    /// does), and without such a set.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn count_elements(&mut self, table: &TableRef, set: &str) -> Result<Option<u32>, ReadError> {
        let contents = self.read_table(table)?;
        let sets = contents.iter().flat_map(|contents| &contents.sets);
        Ok(sets.into_iter().find(|found| found.name == set).and_then(|found| found.elements))
    }

    /// Gives the elements with these keys to `each`, in this order, up to the first that is missing;
    /// how many they were.
    ///
    /// The keys are concatenations of fields, and at most some hundred, since all answers must fit
    /// the receive buffer. Nothing ensures that the elements are of one generation.
    ///
    /// # Errors
    /// See [`ReadError`]. If there is no such set, every element is missing.
    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError>;
}

/// A step in reading the elements of a set.
#[derive(Debug)]
pub enum ElementRead<'a> {
    /// Reading starts, or starts again because the rule set changed: forget what was given.
    Start,
    /// One element.
    Element(ElementView<'a>),
}

/// Number that the kernel counts up by one with every commit, of whatever table, in a network
/// namespace. It is never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation(pub u32);

/// A transaction that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The generation after it.
    pub generation: Generation,
    /// Length of the encoded transaction in bytes.
    pub bytes: usize,
    /// Messages by kind, without those that begin and end the batch.
    pub messages: BTreeMap<MessageKind, usize>,
    /// Time that it took to encode the transaction.
    pub encode_time: Duration,
    /// Time in the system call that sent the transaction, which is where the kernel does the
    /// whole work.
    pub kernel_time: Duration,
}

impl Committed {
    /// The outcome of an empty transaction.
    pub fn nothing(generation: Generation) -> Self {
        Self {
            generation,
            bytes: 0,
            messages: BTreeMap::new(),
            encode_time: Duration::ZERO,
            kernel_time: Duration::ZERO,
        }
    }
}

/// What a table holds, all of one generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The generation at which it was read.
    pub generation: Generation,
    /// The table itself.
    pub table: Table,
    /// Netlink port of the socket that owns the table. `None` if it is not owned, or if its owner
    /// is gone and the table persists.
    pub owner: Option<u32>,
    /// Chains, in the kernel's order.
    pub chains: Vec<Chain>,
    /// Rules, those of one chain in their order.
    pub rules: Vec<DecodedRule>,
    /// Sets and maps, in the kernel's order.
    pub sets: Vec<DecodedSet>,
    /// How many objects were left out because this program never makes such: chains of another
    /// type or policy, rules with unknown verdicts. More than 0 makes the table someone else's.
    pub foreign: usize,
}

impl Contents {
    /// The error that a commit from netlink port `ours` ends with, if the table is somebody else's.
    pub fn owned_by_another(&self, ours: u32) -> Option<CommitError> {
        let port = self.owner.filter(|owner| *owner != ours)?;
        Some(CommitError::Owned { table: self.table.reference(), port })
    }
}
