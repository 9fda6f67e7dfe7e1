//! The destinations whose packets are handed on, and their elements.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::elements::Place;
use super::ruleset::{Destination, DirectElement, Route};
use super::table::Table;
use crate::model::Protocol;

/// Destinations with elements. An address has one element, whatever number of destinations it has.
#[derive(Debug, Default)]
pub(super) struct Destinations(BTreeSet<Destination>);

impl Destinations {
    /// Wants the elements of a destination with this route.
    pub(super) fn want(&mut self, destination: Destination, route: Route, table: &mut Table) {
        self.0.insert(destination);
        table.want(DirectElement::Address(destination.address));
        table.want(DirectElement::Frontend(destination, route));
        table.want(DirectElement::ErrorFrontend(destination, route));
    }

    /// Wants no elements of a destination.
    pub(super) fn want_no(&mut self, destination: Destination, table: &mut Table) {
        if !self.0.remove(&destination) {
            return;
        }
        table.want_no(Place::Frontend(destination));
        table.want_no(Place::ErrorFrontend(destination));
        if self.at(destination.address).is_none() {
            table.want_no(Place::Address(destination.address));
        }
    }

    /// Returns the first destination at an address.
    pub(super) fn at(&self, address: IpAddr) -> Option<Destination> {
        // They are sorted by address.
        let lowest = Destination { address, protocol: Protocol::Tcp, port: NonZeroU16::MIN };
        let next = self.0.range(lowest..).next().copied();
        next.filter(|next| next.address == address)
    }
}
