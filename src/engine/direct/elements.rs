//! Elements of the table, desired or installed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nft::Family;

use super::ruleset::{Destination, DirectElement, DirectRoute, NodeListId, NodeNumber};

/// Elements by their places.
///
/// A list has hundreds or thousands of slots, so these are stored as an array.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Elements {
    lists: BTreeMap<NodeListId, Vec<Option<NodeNumber>>>,
    others: BTreeMap<Place, DirectElement>,
}

/// The place of an element: its set and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    HardwareAddress([u8; 6]),
    Address(IpAddr),
    Frontend(Destination),
    ErrorFrontend(Destination),
    NodeAddress(NodeNumber, Family),
    NodeDevice(NodeNumber),
    Slot(NodeListId, u32),
}

impl Place {
    /// Returns the place of an element.
    pub(super) fn of(element: &DirectElement) -> Self {
        match *element {
            DirectElement::HardwareAddress(address) => Self::HardwareAddress(address),
            DirectElement::Address(address) => Self::Address(address),
            DirectElement::Frontend(destination, _) => Self::Frontend(destination),
            DirectElement::ErrorFrontend(destination, _) => Self::ErrorFrontend(destination),
            DirectElement::NodeAddress(node, address) => {
                Self::NodeAddress(node, Family::of(address))
            }
            DirectElement::NodeDevice(node, _) => Self::NodeDevice(node),
            DirectElement::Slot(list, slot, _) => Self::Slot(list, slot),
        }
    }
}

impl Elements {
    /// Adds an element, or replaces the one at its place.
    pub(super) fn put(&mut self, element: DirectElement) {
        let DirectElement::Slot(list, slot, node) = element else {
            self.others.insert(Place::of(&element), element);
            return;
        };
        let (slots, slot) = (self.lists.entry(list).or_default(), slot as usize);
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        slots[slot] = Some(node);
    }

    /// Removes the element at a place.
    pub(super) fn remove(&mut self, place: &Place) {
        let Place::Slot(list, slot) = place else {
            self.others.remove(place);
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
        let element = self.others.get(&Place::Frontend(destination))?;
        if let DirectElement::Frontend(_, route) = element { Some(*route) } else { None }
    }

    /// Returns the element at a place other than a slot.
    pub(super) fn at(&self, place: &Place) -> Option<DirectElement> {
        self.others.get(place).copied()
    }

    /// Returns all lists.
    pub(super) fn lists(&self) -> impl Iterator<Item = NodeListId> + '_ {
        self.lists.keys().copied()
    }

    /// Returns the places of all elements other than slots.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.others.keys()
    }
}
