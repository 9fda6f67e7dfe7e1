//! A kernel around another one: it makes things go wrong and watches what is committed.

use std::collections::VecDeque;
use std::net::IpAddr;

use engine::TableId;
use engine::direct::ruleset::DirectSet;
use nft::Errno;
use nft::kernel::{
    CommitError, Committed, Contents, ElementRead, Kernel, OthersChanges, ReadError, was_applied,
};
use nft::{
    Device, Element, ElementView, Family, Operation, TableFlags, TableRef, Transaction, Value,
};

use super::oracle::{Oracle, Wanted};
use super::trace::note;

/// A kernel in which other programs commit too.
pub(crate) trait Shared: Kernel + Send + 'static {
    /// Commits as another program; what the kernel refuses then is of no matter.
    fn commit_by_another(&mut self, transaction: &Transaction);

    /// Commits without a notice to the daemon.
    fn corrupt(&mut self, transaction: &Transaction);

    /// The daemon's socket was closed and a new one opened.
    fn reopen(&mut self);

    /// The flags of tables that belong to their writer, as far as the kernel has them.
    fn flags_of_own_tables(&self) -> TableFlags {
        TableFlags { owner: true, persist: true }
    }
}

/// The device that no flowtable gets.
pub(crate) const REFUSED_DEVICE: &str = "refused";

/// What goes wrong with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The kernel refuses the transaction as a whole.
    Refused(Errno),
    /// It cannot be sent.
    NotSent(Errno),
    /// The answer is lost. Look-ups may show whether the transaction was applied.
    AnswerLost { is_applied: bool, is_looked_up: bool },
}

pub(crate) struct Hostile<K> {
    pub(crate) inner: K,
    pub(crate) mishaps: VecDeque<Mishap>,
    pub(crate) reads_that_break_off: u8,
    /// Frontends of this address are refused.
    pub(crate) refused: Option<IpAddr>,
    /// The netlink port of the program that owns each of our tables, in the order of [`TableId::ALL`].
    pub(crate) owners: [Option<u32>; 3],
    pub(crate) max_batch: usize,
    pub(crate) oracle: Oracle,
    pub(crate) commits: usize,
    /// Reads of the table `ip6` outside of read-backs. While nothing goes wrong, each ends a round of
    /// the background check.
    pub(crate) rounds: usize,
    /// Whether a read-back has begun and not read `ip6` yet.
    is_reading_back: bool,
}

impl<K: Shared> Hostile<K> {
    pub(crate) fn new(inner: K) -> Self {
        Self {
            max_batch: inner.max_batch(),
            inner,
            mishaps: VecDeque::new(),
            reads_that_break_off: 0,
            refused: None,
            owners: [None; 3],
            oracle: Oracle::default(),
            commits: 0,
            rounds: 0,
            is_reading_back: false,
        }
    }

    /// From now on, what works must go on working.
    pub(crate) fn begin(&mut self, wanted: &Wanted) {
        self.oracle.begin(&wanted.served, &mut self.inner);
    }

    /// From now on nothing goes wrong.
    pub(crate) fn calm(&mut self) {
        self.mishaps.clear();
        self.reads_that_break_off = 0;
        self.owners = [None; 3];
    }

    fn breaks_off(&mut self) -> bool {
        let breaks_off = self.reads_that_break_off > 0;
        self.reads_that_break_off = self.reads_that_break_off.saturating_sub(1);
        breaks_off
    }

    fn commit_now(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        if let Some((place, errno)) = self.objection(transaction) {
            return Err(CommitError::refused(transaction, Some(place), errno));
        }
        let outcome = self.inner.commit(transaction);
        self.commits += 1;
        self.oracle.see(transaction, &outcome, &mut self.inner);
        outcome
    }

    /// Finds out like [`nft::kernel::Nftables`] whether a transaction was applied.
    fn look_up(&mut self, transaction: &Transaction, is_applied: bool) -> Option<bool> {
        let found = was_applied(self, transaction);
        if !self.oracle.is_damaged && found.is_some_and(|found| found != is_applied) {
            let text = format!("applied: {is_applied}, looked up: {found:?}: {transaction}");
            self.oracle.violations.push(text);
        }
        found
    }

    /// The operation that the kernel refuses, with the element of it, and why.
    fn objection(&self, transaction: &Transaction) -> Option<((usize, Option<usize>), Errno)> {
        let mut operations = transaction.operations.iter().enumerate();
        operations.find_map(|(i, operation)| match operation {
            Operation::AddElements(_, set, elements) => {
                let refused = Value::new().ip(self.refused?);
                let refuses = |it: &Element| it.key.as_bytes().starts_with(refused.as_bytes());
                let is_route =
                    ["services", DirectSet::Frontends(Family::Ip).name()].contains(&&*set.name);
                let element = elements.iter().position(refuses).filter(|_| is_route)?;
                Some(((i, Some(element)), Errno::EINVAL))
            }
            Operation::AddDevices(_, _, devices) => {
                let is_refused = devices.contains(&Device::Named(REFUSED_DEVICE.into()));
                is_refused.then_some(((i, None), Errno::EOPNOTSUPP))
            }
            _ => None,
        })
    }
}

impl<K: Shared> Kernel for Hostile<K> {
    fn max_batch(&self) -> usize {
        self.max_batch
    }

    fn port(&self) -> u32 {
        self.inner.port()
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        transaction.operations.iter().for_each(note);
        note("commit");
        if transaction.operations.is_empty() {
            return self.inner.commit(transaction);
        }
        let id = TableId::written_by(transaction).expect("it writes one of our tables");
        if let Some(port) = self.owners[id.index()] {
            let table = id.reference();
            return Err(CommitError::Owned { table, port });
        }
        match self.mishaps.pop_front() {
            Some(Mishap::Refused(errno)) => Err(CommitError::refused(transaction, None, errno)),
            Some(Mishap::NotSent(errno)) => Err(CommitError::NotSent(errno.into())),
            Some(Mishap::AnswerLost { is_applied, is_looked_up }) => {
                let is_applied = is_applied && self.commit_now(transaction).is_ok();
                match is_looked_up.then(|| self.look_up(transaction, is_applied)).flatten() {
                    Some(true) => Ok(Committed::nothing()),
                    Some(false) => self.commit_now(transaction),
                    None => Err(CommitError::Unknown(Errno::ENOBUFS.into())),
                }
            }
            None => self.commit_now(transaction),
        }
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        self.is_reading_back = true;
        self.inner.watch_others(tables)
    }

    fn ignore_others(&mut self) {
        self.inner.ignore_others();
    }

    fn others_changes(&mut self) -> OthersChanges {
        self.inner.others_changes()
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        note(format_args!("list table {table}"));
        if self.breaks_off() {
            return Err(ReadError::Changing { what: table.to_string() });
        }
        let id = TableId::of(table).expect("it reads our tables");
        if id == TableId::Ip6 && !std::mem::take(&mut self.is_reading_back) {
            self.rounds += 1;
        }
        let owner = self.owners[id.index()];
        let found = self.inner.read_table(table)?;
        Ok(found.map(|found| Contents { owner: owner.or(found.owner), ..found }))
    }

    fn count_elements(&mut self, table: &TableRef, set: &str) -> Result<Option<u32>, ReadError> {
        note(format_args!("count {table} {set}"));
        if self.breaks_off() {
            return Err(ReadError::Changing { what: set.to_owned() });
        }
        self.inner.count_elements(table, set)
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        note(format_args!("list set {table} {set}"));
        let breaks_off = self.breaks_off();
        self.inner.read_elements(table, set, each)?;
        if breaks_off { Err(ReadError::Changing { what: set.to_owned() }) } else { Ok(()) }
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        note(format_args!("get element {table} {set} {keys:?}"));
        if self.breaks_off() {
            return Err(ReadError::Changing { what: set.to_owned() });
        }
        self.inner.find_elements(table, set, keys, each)
    }
}
