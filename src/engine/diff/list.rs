//! The installed endpoints of one list, by slot.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use nft::family::Family;

use crate::model::Target;
use crate::ruleset::ListUse;

/// The installed endpoints of one list, by slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) of: ListUse,
    /// A service needs the list.
    pub(super) is_owned: bool,
    /// Number of installed routes that name the list.
    pub(super) references: u32,
    slots: Slots,
}

/// Slots by number. A hole has port 0; it occurs only after a read-back or a correction.
#[derive(Debug, PartialEq, Eq)]
enum Slots {
    V4(Box<[Slot<Ipv4Addr>]>),
    V6(Box<[Slot<Ipv6Addr>]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot<A> {
    address: A,
    port: u16,
}

impl List {
    pub(super) fn new(family: Family, of: ListUse) -> Self {
        let slots = match family {
            Family::Ip => Slots::V4(Box::default()),
            Family::Ip6 => Slots::V6(Box::default()),
        };
        Self { of, is_owned: false, references: 0, slots }
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        match &self.slots {
            Slots::V4(slots) => slots.len(),
            Slots::V6(slots) => slots.len(),
        }
    }

    /// Returns the endpoint in a slot.
    pub(super) fn slot(&self, slot: usize) -> Option<Target> {
        match &self.slots {
            Slots::V4(slots) => slots.get(slot)?.target(),
            Slots::V6(slots) => slots.get(slot)?.target(),
        }
    }

    /// Returns the endpoint in each slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<Target>> {
        (0..self.len()).map(|slot| self.slot(slot))
    }

    /// Returns the first slot that holds an endpoint.
    pub(super) fn position(&self, endpoint: &Target) -> Option<usize> {
        let port = endpoint.port.get();
        match (&self.slots, endpoint.address) {
            (Slots::V4(slots), IpAddr::V4(address)) => {
                slots.iter().position(|slot| *slot == Slot { address, port })
            }
            (Slots::V6(slots), IpAddr::V6(address)) => {
                slots.iter().position(|slot| *slot == Slot { address, port })
            }
            (Slots::V4(_), IpAddr::V6(_)) | (Slots::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Puts an endpoint of the list's family into a slot. Adds holes if the list is too short.
    pub(super) fn put(&mut self, slot: usize, target: Target) {
        if slot >= self.len() {
            self.resize(slot + 1);
        }
        let port = target.port.get();
        match (&mut self.slots, target.address) {
            (Slots::V4(slots), IpAddr::V4(address)) => slots[slot] = Slot { address, port },
            (Slots::V6(slots), IpAddr::V6(address)) => slots[slot] = Slot { address, port },
            (Slots::V4(_), IpAddr::V6(_)) | (Slots::V6(_), IpAddr::V4(_)) => {}
        }
    }

    /// Empties a slot.
    pub(super) fn empty(&mut self, slot: usize) {
        match &mut self.slots {
            Slots::V4(slots) => set(slots.get_mut(slot), Slot::hole(Ipv4Addr::UNSPECIFIED)),
            Slots::V6(slots) => set(slots.get_mut(slot), Slot::hole(Ipv6Addr::UNSPECIFIED)),
        }
        self.trim();
    }

    /// Removes the slots from `length` on, or adds holes up to it.
    pub(super) fn resize(&mut self, length: usize) {
        match &mut self.slots {
            Slots::V4(slots) => resize(slots, length, Slot::hole(Ipv4Addr::UNSPECIFIED)),
            Slots::V6(slots) => resize(slots, length, Slot::hole(Ipv6Addr::UNSPECIFIED)),
        }
    }

    /// Removes the holes at the end.
    pub(super) fn trim(&mut self) {
        let length = (0..self.len()).rev().find(|slot| self.slot(*slot).is_some());
        self.resize(length.map_or(0, |last| last + 1));
    }

    /// Returns whether no service needs the list and no installed route names it.
    pub(super) fn is_unused(&self) -> bool {
        !self.is_owned && self.references == 0
    }
}

impl<A: Into<IpAddr> + Copy> Slot<A> {
    fn hole(address: A) -> Self {
        Self { address, port: 0 }
    }

    fn target(&self) -> Option<Target> {
        Some(Target { address: self.address.into(), port: NonZeroU16::new(self.port)? })
    }
}

fn set<T>(slot: Option<&mut T>, value: T) {
    if let Some(slot) = slot {
        *slot = value;
    }
}

fn resize<T: Copy>(slots: &mut Box<[T]>, length: usize, hole: T) {
    if slots.len() == length {
        return;
    }
    let mut resized = std::mem::take(slots).into_vec();
    resized.reserve_exact(length.saturating_sub(resized.len()));
    resized.resize(length, hole);
    *slots = resized.into_boxed_slice();
}
