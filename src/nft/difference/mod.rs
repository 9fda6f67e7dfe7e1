//! The difference of two tables: the messages that make of one the other.
//!
//! Only what differs is sent, in the order that the kernel accepts: a rule, element or object is
//! deleted before the objects that it refers to, and added after them. What cannot be changed, such
//! as the hook of a chain or the type of a set, is replaced together with the rules and elements
//! that refer to it. Counts, used quotas and remaining times are no difference. Elements of sets in
//! which rules add elements are added, but never deleted.

mod edits;
mod elements;
mod references;
mod rules;
mod script;
mod steps;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use thiserror::Error;

use crate::abi::*;
use crate::any::SetContents;
use crate::copy::RawMessage;
use crate::family::TableFamily;
use crate::message_kind::MessageKind;
use crate::netlink::attr::{AttrWriter, TooLong};
use crate::request::Generation;
use crate::whole::WholeTable;

/// Changes of one table in the order in which the kernel accepts them.
///
/// Displayed, it is a script like those of `nft -f`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    family: TableFamily,
    table: String,
    /// Generation of the ruleset that was compared.
    generation: Option<Generation>,
    messages: Vec<RawMessage>,
    /// The sets of the desired table, for texts; named ones without elements.
    sets: Vec<SetContents>,
}

impl Difference {
    /// Returns the deletion of a table with its contents.
    ///
    /// # Errors
    /// [`TooLong`] if the name does not fit an attribute.
    pub fn deletion(family: TableFamily, table: &str) -> Result<Self, TooLong> {
        let mut attributes = Vec::new();
        let mut w = AttrWriter::new(&mut attributes);
        w.str(NFTA_TABLE_NAME, table);
        w.finish()?;
        let messages = vec![RawMessage { kind: MessageKind::DelTable, attributes }];
        let (table, generation, sets) = (table.to_owned(), None, Vec::new());
        Ok(Self { family, table, generation, messages, sets })
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether the tables are equal.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the family of the table.
    pub fn family(&self) -> TableFamily {
        self.family
    }

    /// Returns the messages, without headers.
    pub fn messages(&self) -> &[RawMessage] {
        &self.messages
    }

    /// Returns the generation of the ruleset to which the difference may be applied.
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }
}

/// Why two tables cannot be compared.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DifferenceError {
    /// The tables have other names or families.
    #[error("the tables have other names or families")]
    OtherTable,
    /// A chain belongs to a rule, as with `jump { … }` of nft(8).
    #[error("chain {0} has no name of its own")]
    AnonymousChain(String),
    /// A name or an object is too long for a message.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl WholeTable {
    /// Returns what makes of `installed` this table; `None` if there is no such table.
    ///
    /// # Errors
    /// See [`DifferenceError`].
    pub fn difference_from(&self, installed: Option<&Self>) -> Result<Difference, DifferenceError> {
        let tables = [Some(self), installed];
        for table in tables.into_iter().flatten() {
            if (table.family, &table.name) != (self.family, &self.name) {
                return Err(DifferenceError::OtherTable);
            }
            if let Some(chain) = table.chains.iter().find(|chain| chain.is_anonymous()) {
                return Err(DifferenceError::AnonymousChain(chain.name.to_string()));
            }
        }
        let empty = Self::new(self.family, &self.name);
        let mut script = Script::new(self, installed, &empty);
        script.add_all()?;
        Ok(Difference {
            family: self.family,
            table: self.name.clone(),
            generation: installed.and_then(|table| table.generation),
            messages: script.messages,
            sets: script.sets,
        })
    }
}

/// The messages so far, in the order in which the kernel gets them, and what they depend on.
struct Script<'a> {
    desired: &'a WholeTable,
    /// The table in the kernel; empty if there is none or if it is replaced.
    installed: &'a WholeTable,
    /// The sets of both tables by name, anonymous ones included.
    installed_sets: Sets<'a>,
    desired_sets: Sets<'a>,
    /// The table in the kernel stays; only its contents change.
    is_kept: bool,
    /// A table of the same name is deleted first.
    is_deleted: bool,
    replaced: Replaced<'a>,
    /// Number in the name of the next anonymous set.
    next_anonymous: usize,
    messages: Vec<RawMessage>,
    sets: Vec<SetContents>,
}

/// Sets by name.
type Sets<'a> = HashMap<&'a str, &'a SetContents>;

/// Names of objects that are deleted and created again.
#[derive(Default)]
struct Replaced<'a> {
    chains: HashSet<&'a str>,
    sets: HashSet<&'a str>,
    objects: HashSet<(u32, &'a str)>,
    flowtables: HashSet<&'a str>,
}

impl Script<'_> {
    /// Adds a message with the attributes that `fill` writes after the name of the table.
    fn message(
        &mut self,
        kind: MessageKind,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<(), TooLong> {
        let mut attributes = Vec::new();
        let mut w = AttrWriter::new(&mut attributes);
        // The table is attribute 1 of every message.
        w.str(NFTA_TABLE_NAME, &self.desired.name);
        fill(&mut w);
        w.finish()?;
        self.messages.push(RawMessage { kind, attributes });
        Ok(())
    }

    fn encoded(&mut self, kind: MessageKind, attributes: Vec<u8>) {
        self.messages.push(RawMessage { kind, attributes });
    }

    /// Returns a number that no set of this batch has; 0 means none.
    fn set_id(&self) -> u32 {
        u32::try_from(self.messages.len() + 1).unwrap_or(u32::MAX)
    }
}

/// Returns objects by their keys.
fn index<'a, T, K: Eq + Hash>(
    objects: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> HashMap<K, &'a T> {
    objects.into_iter().map(|object| (key(object), object)).collect()
}

/// Returns the objects of `left` whose keys `right` lacks.
fn missing<'a, T, K: Eq + Hash>(
    left: impl IntoIterator<Item = &'a T>,
    right: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> Vec<&'a T> {
    let known: HashSet<K> = right.into_iter().map(&key).collect();
    left.into_iter().filter(|object| !known.contains(&key(object))).collect()
}
