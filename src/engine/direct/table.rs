//! The elements of the table, desired and installed, and the changes between the two.
//!
//! Packets look up elements while a transaction is applied, so changes go in stages, each in
//! transactions of its own: what frontends lead to is made, then frontends change, then what no
//! frontend leads to is deleted. A change counts as installed as soon as it is made.

use std::collections::BTreeSet;

use nft::Operation;
use nft::kernel::Contents;

use super::changes::{DirectChange, Stage, operations};
use super::elements::Elements;
use super::ruleset::{
    self, Destination, DirectElement, DirectKey, DirectRoute, NodeListId, NodeNumber,
};
use crate::ruleset::base::Base;

/// The elements of the table of direct return.
#[derive(Debug, Default)]
pub(crate) struct Table {
    desired: Elements,
    installed: Elements,
    /// Keys and lists whose installed elements may differ.
    keys: BTreeSet<DirectKey>,
    lists: BTreeSet<NodeListId>,
}

/// The table as it was read.
#[derive(Debug, Default)]
pub struct Found {
    /// Chains, rules and sets; `None` without the table.
    pub contents: Option<Contents>,
    /// Elements, without those that packets write.
    pub elements: Vec<DirectElement>,
    /// Operations that delete elements which this program never writes.
    pub cleanup: Vec<Operation>,
}

impl Table {
    /// Adds a desired element, other than a slot, in place of the one with its key.
    pub(super) fn put(&mut self, element: DirectElement) {
        let key = element.key();
        if self.desired.at(&key) != Some(element) {
            self.desired.put(element);
            self.keys.insert(key);
        }
    }

    /// Removes the desired element with a key other than that of a slot.
    pub(super) fn remove(&mut self, key: DirectKey) {
        self.desired.remove(&key);
        self.keys.insert(key);
    }

    /// Adds the desired elements of a destination with this route. An address has one element,
    /// whatever number of destinations it has.
    pub(super) fn put_destination(&mut self, destination: Destination, route: DirectRoute) {
        self.put(DirectElement::Address(destination.address));
        self.put(DirectElement::Frontend(destination, route));
        self.put(DirectElement::ErrorFrontend(destination, route));
    }

    /// Sets the desired nodes in the slots of a list.
    pub(super) fn put_list(&mut self, list: NodeListId, slots: Vec<Option<NodeNumber>>) {
        if self.desired.slots(list) != slots {
            self.desired.put_list(list, slots);
            self.lists.insert(list);
        }
    }

    /// Removes a desired list.
    pub(super) fn remove_list(&mut self, list: NodeListId) {
        self.desired.remove_list(list);
        self.lists.insert(list);
    }

    /// Returns the desired elements.
    pub(super) fn desired(&self) -> &Elements {
        &self.desired
    }

    /// Returns the installed elements.
    pub(super) fn installed(&self) -> &Elements {
        &self.installed
    }

    /// Returns whether a number is that of a list, desired or installed.
    pub(super) fn has_list(&self, list: NodeListId) -> bool {
        [&self.desired, &self.installed].iter().any(|elements| !elements.slots(list).is_empty())
    }

    /// Returns whether no element differs.
    pub(super) fn is_settled(&self) -> bool {
        self.keys.is_empty() && self.lists.is_empty()
    }

    /// Returns the operations of the first stage with changes, at most `most` of them. They count as
    /// installed from now on.
    pub(crate) fn next_stage(&mut self, base: &Base, most: usize) -> Vec<Operation> {
        for stage in Stage::ALL {
            let changes = self.changes(stage, most);
            if !changes.is_empty() {
                changes.iter().for_each(|change| self.apply(change));
                return operations(&changes, base);
            }
        }
        self.keys.clear();
        self.lists.clear();
        Vec::new()
    }

    /// Returns at most `most` changes of a stage.
    fn changes(&self, stage: Stage, most: usize) -> Vec<DirectChange> {
        let slots = self.lists.iter().flat_map(|list| {
            let (old, new) = (self.installed.slots(*list), self.desired.slots(*list));
            DirectChange::of_slots(*list, old, new)
        });
        let others = self.keys.iter().map(|key| {
            let (old, new) = (self.installed.at(key), self.desired.at(key));
            DirectChange { key: *key, old, new }
        });
        let changes = others.chain(slots).filter(|change| change.old != change.new);
        changes.filter(|change| change.stage() == stage).take(most).collect()
    }

    /// Records a change, and forgets its key or list if that is as desired now.
    fn apply(&mut self, DirectChange { key, new, .. }: &DirectChange) {
        match new {
            Some(new) => self.installed.put(*new),
            None => self.installed.remove(key),
        }
        if let DirectKey::Slot(list, _) = key {
            if self.installed.slots(*list) == self.desired.slots(*list) {
                self.lists.remove(list);
            }
        } else if self.installed.at(key) == self.desired.at(key) {
            self.keys.remove(key);
        }
    }

    /// Records that the kernel has no elements any more.
    pub(crate) fn forget_installed(&mut self) {
        self.replace_installed(Vec::new());
    }

    /// Replaces the installed elements; returns whether they differ.
    pub(super) fn replace_installed(&mut self, found: Vec<DirectElement>) -> bool {
        let former = std::mem::take(&mut self.installed);
        found.into_iter().for_each(|element| self.installed.put(element));
        for elements in [&self.installed, &self.desired] {
            self.keys.extend(elements.keys().copied());
            self.lists.extend(elements.lists());
        }
        former != self.installed
    }
}

/// Returns whether this program created a table, of any layout.
pub fn is_own(contents: &Contents) -> bool {
    let comment = contents.table.comment.as_deref();
    comment.is_some_and(|comment| comment.starts_with(ruleset::TABLE_COMMENT))
}
