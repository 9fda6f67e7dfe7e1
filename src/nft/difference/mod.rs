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
use crate::expression::Reference;
use crate::family::TableFamily;
use crate::fields::{DecodeError, Fields};
use crate::kept;
use crate::message_kind::MessageKind;
use crate::netlink::attr::{AttrWriter, Attrs, TooLong};
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
    pub(super) generation: Option<Generation>,
    messages: Vec<RawMessage>,
    /// Number of messages before those of the rules of base chains.
    effect: usize,
    /// Handles of the rules of the desired table that stay; 0 for the others.
    pub(super) handles: Vec<u64>,
    /// The sets of the desired table, for texts; named ones without elements.
    sets: Vec<SetContents>,
}

/// An encoded message of a batch, without its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawMessage {
    /// Type of the message.
    pub kind: MessageKind,
    /// The attributes.
    pub attributes: Vec<u8>,
}

impl RawMessage {
    /// A rule with a position goes before the rule there, all others to the end of their chain.
    pub(super) fn flags(&self) -> u16 {
        let has_position = self.kind == MessageKind::NewRule
            && Attrs::new(&self.attributes)
                .any(|attr| attr.is_ok_and(|attr| attr.kind == NFTA_RULE_POSITION));
        if has_position { self.kind.flags() & !NLM_F_APPEND } else { self.kind.flags() }
    }
}

impl Difference {
    /// Returns the deletion of a table with its contents.
    ///
    /// # Errors
    /// [`TooLong`] if the name does not fit an attribute.
    pub fn deletion(family: TableFamily, table: &str) -> Result<Self, TooLong> {
        let attributes = kept::written(|w| w.str(NFTA_TABLE_NAME, table))?;
        let messages = vec![RawMessage { kind: MessageKind::DelTable, attributes }];
        let (table, effect) = (table.to_owned(), messages.len());
        let (generation, handles, sets) = Default::default();
        Ok(Self { family, table, generation, messages, effect, handles, sets })
    }

    /// Moves the messages of the rules of base chains to another difference: without them, a new
    /// table has no effect. They must follow in a later transaction, or at the end of this one.
    #[must_use]
    pub fn split_effect(&mut self) -> Self {
        let messages = self.messages.split_off(self.effect);
        let (table, sets) = (self.table.clone(), self.sets.clone());
        let (family, handles) = (self.family, Vec::new());
        Self { family, table, generation: None, messages, effect: 0, handles, sets }
    }

    /// Adds the messages of another difference of this table.
    pub fn append(&mut self, next: Self) {
        self.effect = self.messages.len() + next.effect;
        self.messages.extend(next.messages);
        self.sets.extend(next.sets);
    }

    /// Adds the elements of a message that lists those of a set with the same name in any table.
    ///
    /// # Errors
    /// See [`DifferenceError`].
    pub fn add_listed(&mut self, listed: &[u8]) -> Result<(), DifferenceError> {
        let fields = Fields::read(Attrs::new(listed))?;
        let set = fields.str(NFTA_SET_ELEM_LIST_SET)?;
        let elements = fields.need(NFTA_SET_ELEM_LIST_ELEMENTS)?.payload;
        let mut attributes = Vec::with_capacity(listed.len() + self.table.len());
        let mut w = AttrWriter::new(&mut attributes);
        w.str(NFTA_SET_ELEM_LIST_TABLE, &self.table);
        w.str(NFTA_SET_ELEM_LIST_SET, set);
        w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| w.encoded(elements));
        w.finish()?;
        self.messages.push(RawMessage { kind: MessageKind::NewSetElem, attributes });
        Ok(())
    }

    /// Removes the messages.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.effect = 0;
    }

    /// Returns the length of the messages in bytes, without headers.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.attributes.len()).sum()
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
    /// A rule of this chain that is deleted, or before which another one goes, has no handle. Only
    /// tables that were read have them.
    #[error("a rule of chain {0} has no handle, so the table must be read")]
    UnknownHandle(String),
    /// A name or an object is too long for a message.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The listed attributes are damaged.
    #[error("listed elements are damaged: {0}")]
    Listed(#[from] DecodeError),
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
        Ok(script.difference)
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
    difference: Difference,
}

/// Sets by name.
type Sets<'a> = HashMap<&'a str, &'a SetContents>;

/// Objects that are deleted and created again.
#[derive(Default)]
struct Replaced<'a>(HashSet<Reference<'a>>);

impl Script<'_> {
    /// Adds a message with the attributes that `fill` writes after the name of the table.
    fn message(
        &mut self,
        kind: MessageKind,
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<(), TooLong> {
        let attributes = kept::written(|w| {
            // The table is attribute 1 of every message.
            w.str(NFTA_TABLE_NAME, &self.desired.name);
            fill(w);
        })?;
        self.encoded(kind, attributes);
        Ok(())
    }

    fn encoded(&mut self, kind: MessageKind, attributes: Vec<u8>) {
        self.difference.messages.push(RawMessage { kind, attributes });
    }

    /// Returns a number that no set of this batch has; 0 means none.
    fn set_id(&self) -> u32 {
        u32::try_from(self.difference.messages.len() + 1).unwrap_or(u32::MAX)
    }
}

/// Returns objects by their keys.
fn index<'a, T, K: Eq + Hash>(
    objects: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> HashMap<K, &'a T> {
    objects.into_iter().map(|object| (key(object), object)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{BaseChain, Chain, HookPoint};
    use crate::expression::Immediate;
    use crate::verdict::Verdict;

    /// The attributes of a message that lists one element.
    fn list(table: &str, timeout: Option<u64>) -> Vec<u8> {
        crate::kept::written(|w| {
            w.str(NFTA_SET_ELEM_LIST_TABLE, table);
            w.str(NFTA_SET_ELEM_LIST_SET, "services");
            w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                w.nest(NFTA_LIST_ELEM, |w| {
                    w.bytes(NFTA_SET_ELEM_KEY, &[1, 2, 3, 4]);
                    if let Some(timeout) = timeout {
                        w.be64(NFTA_SET_ELEM_TIMEOUT, timeout);
                    }
                });
            });
        })
        .unwrap()
    }

    #[test]
    fn listed_elements_are_added_byte_for_byte_to_another_table() {
        for timeout in [None, Some(5)] {
            let mut copy = Difference::deletion(TableFamily::Ip, "copy").unwrap();
            copy.clear();
            copy.add_listed(&list("kube-proxy", timeout)).unwrap();
            let attributes = list("copy", timeout);
            assert_eq!(copy.bytes(), attributes.len());
            let kind = MessageKind::NewSetElem;
            assert_eq!(copy.messages(), [RawMessage { kind, attributes }]);
        }
    }

    #[test]
    fn damaged_lists_are_errors() {
        let mut copy = Difference::deletion(TableFamily::Ip, "copy").unwrap();
        for damaged in [&[9, 0, 1, 0, 5][..], &[]] {
            assert!(copy.add_listed(damaged).is_err());
        }
        assert_eq!(copy.len(), 1);
    }

    #[test]
    fn the_rules_of_base_chains_can_be_sent_later() {
        let mut table = WholeTable::new(TableFamily::Ip, "t");
        let base = BaseChain::new("filter", HookPoint::Input, 0);
        table.chains = vec![Chain::at_hook("a", base), Chain::new("b")];
        table.append_rule("a", vec![Immediate::verdict(Verdict::Drop)]);
        table.append_rule("b", vec![Immediate::verdict(Verdict::Accept)]);
        let whole = table.difference_from(None).unwrap();
        let mut first = whole.clone();
        let last = first.split_effect();
        assert_eq!(last.to_string(), "add rule ip t a drop\n");
        assert_eq!(format!("{first}{last}"), whole.to_string());
        let mut replacement = Difference::deletion(TableFamily::Ip, "t").unwrap();
        replacement.append(first);
        assert_eq!(replacement.split_effect().len(), 0);
        replacement.append(last);
        assert_eq!(replacement.to_string(), format!("delete table ip t\n{whole}"));
        assert_eq!(replacement.split_effect().to_string(), "add rule ip t a drop\n");
    }

    #[test]
    fn a_rule_that_was_not_read_can_stay_but_has_no_handle_to_delete_it_by() {
        let table = |verdicts: &[Verdict]| {
            let mut table = WholeTable::new(TableFamily::Ip, "t");
            table.chains = vec![Chain::new("c")];
            for verdict in verdicts {
                table.append_rule("c", vec![Immediate::verdict(verdict.clone())]);
            }
            table
        };
        let mut installed = table(&[Verdict::Accept, Verdict::Drop]);
        let more = table(&[Verdict::Accept, Verdict::Drop, Verdict::Return]);
        let difference = more.difference_from(Some(&installed)).unwrap();
        assert_eq!(difference.to_string(), "add rule ip t c return\n");
        let before = table(&[Verdict::Accept, Verdict::Return, Verdict::Drop]);
        let unknown = Err(DifferenceError::UnknownHandle("c".to_owned()));
        for other in [&table(&[Verdict::Accept]), &before] {
            assert_eq!(other.difference_from(Some(&installed)), unknown);
        }
        installed.rules[1].handle = 7;
        let difference = before.difference_from(Some(&installed)).unwrap();
        assert_eq!(difference.to_string(), "insert rule ip t c position 7 return\n");
        assert_eq!(difference.handles, [0, 0, 7]);
        let difference = table(&[Verdict::Accept]).difference_from(Some(&installed)).unwrap();
        assert_eq!(difference.to_string(), "delete rule ip t c handle 7\n");
    }
}
