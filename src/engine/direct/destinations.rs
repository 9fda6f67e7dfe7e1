//! The destinations whose packets are handed on, and their elements.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::elements::Place;
use super::ruleset::{Destination, DirectElement, DirectRoute, NodeListId};
use super::table::Table;
use crate::model::Protocol;

/// Destinations with elements. An address has one element, whatever number of destinations it has.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    /// With the list of the service that has them.
    all: BTreeMap<Destination, NodeListId>,
    /// Addresses that have an element without a destination.
    kept: BTreeSet<IpAddr>,
}

impl Destinations {
    /// Adds the elements of a destination with this route.
    pub(super) fn put(&mut self, destination: Destination, route: DirectRoute, table: &mut Table) {
        self.all.insert(destination, route.list);
        table.put(DirectElement::Address(destination.address));
        table.put(DirectElement::Frontend(destination, route));
        table.put(DirectElement::ErrorFrontend(destination, route));
    }

    /// Removes the elements of a destination, unless they lead to another list than this one: another
    /// service may have taken the address.
    pub(super) fn remove(&mut self, destination: Destination, list: NodeListId, table: &mut Table) {
        if self.all.get(&destination) != Some(&list) {
            return;
        }
        self.all.remove(&destination);
        table.remove(Place::Frontend(destination));
        table.remove(Place::ErrorFrontend(destination));
        self.remove_address(destination.address, table);
    }

    /// Keeps the elements of these addresses, whether or not they have destinations.
    pub(super) fn keep(&mut self, addresses: BTreeSet<IpAddr>, table: &mut Table) {
        addresses.iter().for_each(|address| table.put(DirectElement::Address(*address)));
        for former in std::mem::replace(&mut self.kept, addresses) {
            self.remove_address(former, table);
        }
    }

    /// Removes the element of an address that needs none.
    fn remove_address(&self, address: IpAddr, table: &mut Table) {
        if self.at(address).is_none() && !self.kept.contains(&address) {
            table.remove(Place::Address(address));
        }
    }

    /// Returns the first destination at an address.
    pub(super) fn at(&self, address: IpAddr) -> Option<Destination> {
        // They are sorted by address.
        let lowest = Destination { address, protocol: Protocol::Tcp, port: NonZeroU16::MIN };
        let next = self.all.range(lowest..).next();
        next.map(|(next, _)| *next).filter(|next| next.address == address)
    }
}
