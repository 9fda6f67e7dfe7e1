//! Our tables in the kernel: presence, contents, and elements of their sets.

use std::collections::BTreeSet;

use engine::direct::is_own;
use engine::direct::ruleset::{self as direct, Destination, DirectElement};
use engine::model::Target;
use engine::ruleset::{self, LAYOUT, Layouts, ListSlot, NamedList, SetId, TableElement};
use nft::family::Family;
use nft::kernel::{Contents, Generation, Kernel, Nftables, OpenError, ReadError};
use nft::{Counter, ElementView, TableRef, Value};

/// Error of reading our tables.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The kernel cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Neither table exists.
    #[error(
        "this network namespace has no table ip kube-proxy or ip6 kube-proxy: deltaproxy has not \
         programmed this node"
    )]
    Missing,
    /// A table has another layout.
    #[error(
        "table {0} is not of this deltaproxy (layout {LAYOUT}): kube-proxy or another version of \
         deltaproxy has written it"
    )]
    Foreign(TableRef),
}

/// Reader of our tables in the network namespace where it was opened.
#[derive(Debug)]
pub struct TableReader {
    kernel: Nftables,
    layouts: Layouts,
}

/// One of our tables, without the elements of its sets.
#[derive(Debug)]
pub struct OurTable {
    /// Family of the table.
    pub family: Family,
    /// Chains, rules and sets.
    pub contents: Contents,
}

impl TableReader {
    /// Opens the netlink socket.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open() -> Result<Self, TablesError> {
        Ok(Self { kernel: Nftables::open()?, layouts: Layouts::default() })
    }

    /// Returns the generation of the rule set, which changes with each commit.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn generation(&mut self) -> Result<Generation, ReadError> {
        self.kernel.generation()
    }

    /// Returns the existing tables, at least one; `ip` first.
    ///
    /// # Errors
    /// See [`TablesError`].
    pub fn tables(&mut self) -> Result<Vec<OurTable>, TablesError> {
        let mut tables = Vec::new();
        for family in Family::ALL {
            let table = ruleset::table(family);
            let Some(contents) = self.kernel.read_table(&table)? else { continue };
            if contents.table.comment.as_deref() != Some(ruleset::table_comment().as_str()) {
                return Err(TablesError::Foreign(table));
            }
            tables.push(OurTable { family, contents });
        }
        if tables.is_empty() { Err(TablesError::Missing) } else { Ok(tables) }
    }

    /// Returns our sets in a table with their numbers of elements, in the order of reading; `None` if
    /// the kernel does not report it.
    pub fn sets(&self, table: &OurTable) -> Vec<(SetId, Option<u32>)> {
        self.layouts.of(table.family).found_in(&table.contents)
    }

    /// Calls `each` once for every element of a set that is ours, with its counter, also during
    /// concurrent commits. Returns false if the read is torn.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn elements(
        &mut self,
        family: Family,
        set: SetId,
        each: &mut dyn FnMut(TableElement<'_>, Option<Counter>),
    ) -> Result<bool, ReadError> {
        self.views(family, set, &mut |view| {
            if let Some(element) = TableElement::read(family, set, &view) {
                each(element, view.counter);
            }
        })
    }

    /// Does the same for the elements as the kernel lists them.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn views(
        &mut self,
        family: Family,
        set: SetId,
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<bool, ReadError> {
        self.kernel.read_elements_once(&ruleset::table(family), set.name(), each)
    }

    /// Returns the destinations whose packets table direct-return hands to nodes, and whether the
    /// read is whole; none without the table.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn direct_destinations(&mut self) -> Result<(BTreeSet<Destination>, bool), ReadError> {
        let mut found = BTreeSet::new();
        let table = direct::table();
        if !self.kernel.read_table(&table)?.as_ref().is_some_and(is_own) {
            return Ok((found, true));
        }
        let mut is_whole = true;
        for set in Family::ALL.map(direct::DirectSet::Frontends) {
            let read = self.kernel.read_elements_once(&table, set.name(), &mut |view| {
                if let Some(DirectElement::Frontend(to, _)) = DirectElement::read(set, &view) {
                    found.insert(to);
                }
            });
            match read {
                Ok(is_whole_set) => is_whole &= is_whole_set,
                // The table, or its layout, changed meanwhile.
                Err(error) if error.is_missing() => is_whole = false,
                Err(error) => return Err(error),
            }
        }
        Ok((found, is_whole))
    }

    /// Calls `each` for every endpoint in the slots of these lists, with its counter.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn endpoints(
        &mut self,
        family: Family,
        lists: impl Iterator<Item = NamedList>,
        each: &mut dyn FnMut(ListSlot, Target, Option<Counter>),
    ) -> Result<(), ReadError> {
        let (table, set) = (ruleset::table(family), SetId::Endpoints.name());
        let find = |keys: &[Value], found: &mut dyn FnMut(ElementView<'_>)| {
            self.kernel.find_elements(&table, set, keys, found)
        };
        ruleset::read_slots(lists, find, &mut |slot, view| {
            if let Some(target) = ruleset::target(family, view) {
                each(slot, target, view.counter);
            }
        })
    }
}
