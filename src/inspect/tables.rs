//! Our tables in the kernel: presence, contents, and elements of their sets.

use engine::ruleset::{self, LAYOUT, Layouts, SetId};
use nft::family::Family;
use nft::kernel::{Contents, Generation, Kernel, Nftables, OpenError, ReadError};
use nft::{ElementView, TableRef, Value};

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

    /// Returns the number of elements of a set. `None` if the kernel does not report it; 0 if the
    /// table lacks the set.
    pub fn count(&self, table: &OurTable, set: SetId) -> Option<u32> {
        let sets = self.layouts.of(table.family);
        let found = table.contents.sets.iter().find(|it| sets.identify(it) == Some(set));
        found.map_or(Some(0), |found| found.elements)
    }

    /// Calls `each` once for every element of a set, also during concurrent commits. Returns false
    /// if the read is torn.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn elements(
        &mut self,
        family: Family,
        set: SetId,
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<bool, ReadError> {
        self.kernel.read_elements_once(&ruleset::table(family), set.name(), each)
    }

    /// Calls `each` for the elements with these keys, up to the first missing one. Returns their
    /// number.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn find(
        &mut self,
        family: Family,
        set: SetId,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        self.kernel.find_elements(&ruleset::table(family), set.name(), keys, each)
    }
}
