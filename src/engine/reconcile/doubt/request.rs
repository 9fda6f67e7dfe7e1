//! What is read from the kernel, and the answers.

use std::time::Duration;

use nft::Family;
use nft::kernel::Contents;

use crate::diff::ReadLists;
use crate::direct;
use crate::reconcile::{Changed, ElementId, FoundTable, FoundTables};
use crate::ruleset::{NamedList, SetId};

/// Something to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// All tables as a whole. Commits wait for the answer.
    Tables,
    /// As `Tables`, without endpoint lists that can be read later.
    TablesWithoutLists,
    /// The table of direct return as a whole: it is small.
    DirectReturn,
    /// Endpoint lists of one table. Commits of services with other lists do not wait.
    Lists(Family, Vec<NamedList>),
    /// Chains, rules and sets of a table.
    Rules(Family),
    /// Elements by their keys.
    Keys(Vec<ElementId>),
    /// The number of elements of these sets.
    Sizes(Vec<(Family, SetId)>),
    /// The keys of all elements of these sets. Long: commits do not wait for it.
    Dump(Vec<(Family, SetId)>),
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Reply {
    /// All tables.
    Tables(Box<Reading>),
    /// The table of direct return.
    DirectReturn(direct::Found),
    /// Endpoint lists.
    Lists(ReadLists),
    /// Chains, rules and sets.
    Rules(Rules),
    /// The finding at each key, in any order.
    Keys(Vec<Changed>),
    /// The numbers of elements of sets.
    Sizes(Vec<Size>),
    /// The elements of sets. Commits meanwhile may cause missing ones, and deleted ones.
    Dump(Vec<ElementId>),
    /// None: the kernel returned an error.
    Failed,
}

/// All tables as read.
#[derive(Debug)]
pub struct Reading {
    /// What was found.
    pub tables: FoundTables,
    /// Another program changed one of them meanwhile, so that the contents may never have existed.
    pub is_torn: bool,
    /// The netlink port of our socket.
    pub port: u32,
    /// Duration of the reading, where it is measured.
    pub took: Duration,
}

impl Reading {
    /// Returns endpoint lists of one table to be read next; `None` if all are read.
    pub fn next_lists(&mut self) -> Option<(Family, Vec<NamedList>)> {
        let next = |table: &mut FoundTable| {
            let lists = table.elements.next_lists();
            (!lists.is_empty()).then(|| (table.elements.family(), lists))
        };
        self.tables.of_services.iter_mut().find_map(next)
    }
}

/// Chains, rules and sets of a table that was read.
#[derive(Debug)]
pub struct Rules {
    /// The family of the table.
    pub family: Family,
    /// Without elements; `None` without such a table.
    pub contents: Option<Contents>,
    /// The netlink port of our socket.
    pub port: u32,
}

/// The number of elements of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The family of the table.
    pub family: Family,
    /// The set.
    pub set: SetId,
    /// The number in the kernel; `None` if it does not report it.
    pub found: Option<u32>,
    /// The number that was written.
    pub written: i64,
}
