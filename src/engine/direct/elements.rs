//! Elements of the table, desired or installed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::ruleset::{Destination, DirectElement, DirectKey, DirectRoute, NodeListId, NodeNumber};
use crate::model::Protocol;

/// Elements by their keys.
///
/// A list has hundreds or thousands of slots, so these are stored as an array.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Elements {
    lists: BTreeMap<NodeListId, Vec<Option<NodeNumber>>>,
    others: BTreeMap<DirectKey, DirectElement>,
}

impl Elements {
    /// Adds an element, or replaces the one with its key.
    pub(super) fn put(&mut self, element: DirectElement) {
        let DirectElement::Slot(list, slot, node) = element else {
            self.others.insert(element.key(), element);
            return;
        };
        let (slots, slot) = (self.lists.entry(list).or_default(), slot as usize);
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        slots[slot] = Some(node);
    }

    /// Removes the element with a key.
    pub(super) fn remove(&mut self, key: &DirectKey) {
        let DirectKey::Slot(list, slot) = key else {
            self.others.remove(key);
            return;
        };
        let Some(slots) = self.lists.get_mut(list) else { return };
        if let Some(node) = slots.get_mut(*slot as usize) {
            *node = None;
        }
        while slots.last().is_some_and(Option::is_none) {
            slots.pop();
        }
        if slots.is_empty() {
            self.lists.remove(list);
        }
    }

    /// Replaces the slots of a list.
    pub(super) fn put_list(&mut self, list: NodeListId, slots: Vec<Option<NodeNumber>>) {
        self.lists.insert(list, slots);
    }

    /// Removes a list with its slots.
    pub(super) fn remove_list(&mut self, list: NodeListId) {
        self.lists.remove(&list);
    }

    /// Returns the nodes in the slots of a list.
    pub(super) fn slots(&self, list: NodeListId) -> &[Option<NodeNumber>] {
        self.lists.get(&list).map_or(&[], Vec::as_slice)
    }

    /// Returns the route of a frontend.
    pub(super) fn route(&self, destination: Destination) -> Option<DirectRoute> {
        let element = self.others.get(&DirectKey::Frontend(destination))?;
        if let DirectElement::Frontend(_, route) = element { Some(*route) } else { None }
    }

    /// Returns the first destination at an address.
    pub(super) fn destination_at(&self, address: IpAddr) -> Option<Destination> {
        // They are sorted by address.
        let lowest = Destination { address, protocol: Protocol::Tcp, port: NonZeroU16::MIN };
        let (next, _) = self.others.range(DirectKey::Frontend(lowest)..).next()?;
        let DirectKey::Frontend(next) = next else { return None };
        Some(*next).filter(|next| next.address == address)
    }

    /// Returns the element with a key other than that of a slot.
    pub(super) fn at(&self, key: &DirectKey) -> Option<DirectElement> {
        self.others.get(key).copied()
    }

    /// Returns all lists.
    pub(super) fn lists(&self) -> impl Iterator<Item = NodeListId> + '_ {
        self.lists.keys().copied()
    }

    /// Returns the keys of all elements other than slots.
    pub(super) fn keys(&self) -> impl Iterator<Item = &DirectKey> {
        self.others.keys()
    }
}
