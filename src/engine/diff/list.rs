//! The installed endpoints of one list, by slot.

use std::net::IpAddr;
use std::num::NonZeroU16;

use nft::family::Family;

use crate::model::Target;
use crate::ruleset::ListUse;

/// The installed endpoints of one list, by slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List {
    family: Family,
    pub(super) of: ListUse,
    /// A service needs the list.
    pub(super) is_owned: bool,
    /// Number of installed routes that name the list.
    pub(super) references: u32,
    /// Address and port of each slot. A hole has zeros; it occurs only after a read-back or a
    /// correction.
    slots: Box<[u8]>,
}

/// Bytes of a slot with an IPv4 address.
const V4: usize = 4 + PORT;

/// Bytes of a slot with an IPv6 address.
const V6: usize = 16 + PORT;

const PORT: usize = 2;

impl List {
    pub(super) fn new(family: Family, of: ListUse) -> Self {
        Self { family, of, is_owned: false, references: 0, slots: Box::default() }
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len() / self.width()
    }

    /// Returns the number of bytes of a slot.
    fn width(&self) -> usize {
        match self.family {
            Family::Ip => V4,
            Family::Ip6 => V6,
        }
    }

    /// Returns the endpoint in a slot.
    pub(super) fn slot(&self, slot: usize) -> Option<Target> {
        self.unpack(self.slots.chunks_exact(self.width()).nth(slot)?)
    }

    /// Returns the endpoint in each slot.
    pub(super) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = Option<Target>> + ExactSizeIterator {
        self.slots.chunks_exact(self.width()).map(|slot| self.unpack(slot))
    }

    fn unpack(&self, slot: &[u8]) -> Option<Target> {
        let (address, port) = slot.split_last_chunk::<PORT>()?;
        let address = match self.family {
            Family::Ip => IpAddr::from(<[u8; V4 - PORT]>::try_from(address).ok()?),
            Family::Ip6 => IpAddr::from(<[u8; V6 - PORT]>::try_from(address).ok()?),
        };
        Some(Target { address, port: NonZeroU16::new(u16::from_be_bytes(*port))? })
    }

    /// Returns the first slot that holds an endpoint.
    pub(super) fn position(&self, endpoint: &Target) -> Option<usize> {
        match (self.family, endpoint.address) {
            (Family::Ip, IpAddr::V4(address)) => {
                position::<V4>(&self.slots, packed(&address.octets(), endpoint))
            }
            (Family::Ip6, IpAddr::V6(address)) => {
                position::<V6>(&self.slots, packed(&address.octets(), endpoint))
            }
            (Family::Ip, IpAddr::V6(_)) | (Family::Ip6, IpAddr::V4(_)) => None,
        }
    }

    /// Puts an endpoint of the list's family into a slot. Adds holes if the list is too short.
    pub(super) fn put(&mut self, slot: usize, target: Target) {
        if slot >= self.len() {
            self.resize(slot + 1);
        }
        match (self.family, target.address) {
            (Family::Ip, IpAddr::V4(address)) => {
                self.slots.as_chunks_mut::<V4>().0[slot] = packed(&address.octets(), &target);
            }
            (Family::Ip6, IpAddr::V6(address)) => {
                self.slots.as_chunks_mut::<V6>().0[slot] = packed(&address.octets(), &target);
            }
            (Family::Ip, IpAddr::V6(_)) | (Family::Ip6, IpAddr::V4(_)) => {}
        }
    }

    /// Empties a slot.
    pub(super) fn empty(&mut self, slot: usize) {
        let width = self.width();
        self.slots.chunks_exact_mut(width).skip(slot).take(1).for_each(|slot| slot.fill(0));
        self.trim();
    }

    /// Removes the slots from `length` on, or adds holes up to it.
    pub(super) fn resize(&mut self, length: usize) {
        if self.len() == length {
            return;
        }
        let bytes = length * self.width();
        let mut resized = std::mem::take(&mut self.slots).into_vec();
        resized.reserve_exact(bytes.saturating_sub(resized.len()));
        resized.resize(bytes, 0);
        self.slots = resized.into_boxed_slice();
    }

    /// Removes the holes at the end.
    pub(super) fn trim(&mut self) {
        let length = self.iter().rposition(|slot| slot.is_some());
        self.resize(length.map_or(0, |last| last + 1));
    }

    /// Returns whether no service needs the list and no installed route names it.
    pub(super) fn is_unused(&self) -> bool {
        !self.is_owned && self.references == 0
    }
}

/// Returns the bytes of a slot.
fn packed<const N: usize>(address: &[u8], target: &Target) -> [u8; N] {
    let mut bytes = [0; N];
    let port = target.port.get().to_be_bytes();
    bytes.iter_mut().zip(address.iter().chain(&port)).for_each(|(to, from)| *to = *from);
    bytes
}

/// Returns the first slot with these bytes.
fn position<const N: usize>(slots: &[u8], packed: [u8; N]) -> Option<usize> {
    slots.as_chunks::<N>().0.iter().position(|slot| *slot == packed)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;
    use crate::model::Protocol;

    #[test]
    fn a_list_takes_24_bytes() {
        assert_eq!(size_of::<List>(), 24);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "times are compared")]
    fn the_last_slot_of_a_large_list_is_read_as_fast_as_the_first() {
        let mut list = List::new(Family::Ip, ListUse::Port(Protocol::Tcp));
        list.resize(65_536);
        let fastest = |slot| {
            let read = |_| {
                let start = Instant::now();
                (0..1_000).for_each(|_| _ = black_box(list.slot(black_box(slot))));
                start.elapsed()
            };
            (0..20).map(read).min().unwrap()
        };
        let (first, last) = (fastest(0), fastest(65_535));
        assert!(last < 50 * first, "{first:?}, {last:?}");
    }

    #[test]
    fn slots_hold_endpoints_of_their_family() {
        let ends = [([10, 1, 2, 3].into(), "fd00::1"), ([10, 1, 2, 4].into(), "fd00::2")];
        let port = NonZeroU16::new(0x1234).unwrap();
        for family in Family::ALL {
            let [one, other] = ends.map(|(v4, v6): (IpAddr, _)| {
                let address = if family == Family::Ip { v4 } else { v6.parse().unwrap() };
                Target { address, port }
            });
            let mut list = List::new(family, ListUse::Port(Protocol::Tcp));
            list.put(2, other);
            list.put(0, one);
            assert!(list.iter().eq([Some(one), None, Some(other)]), "{list:?}");
            assert_eq!((list.position(&other), list.slot(3)), (Some(2), None));
            let next = Target { port: port.checked_add(1).unwrap(), ..other };
            assert_eq!(list.position(&next), None);
            list.empty(2);
            assert_eq!((list.len(), list.position(&other)), (1, None));
            list.empty(5);
            assert_eq!(list.slot(0), Some(one));
        }
    }
}
