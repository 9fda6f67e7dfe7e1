//! The numbers that a packet carries from rule to rule: its priority, a [`DirectRoute`], and its mark, a
//! [`NodeNumber`].
//!
//! nft(8) prints a route as two halves, `NNNN:NNFS`:
//!
//! ```text
//! NNNNNN  the list of nodes
//!     FS  the class of the table in the lowest five bits, and flags:
//!           18 to 1b  251, 1021, 4093, 65521 slots, by address and port of the client
//!           1c to 1f  the same, by its address alone
//!           20        connections are remembered
//!           40        only connections whose start was seen
//! ```

use std::num::NonZeroU32;

use crate::model::HashedSource;
use crate::ruleset::number::{LIST_BITS, SIZE_BITS, SizeClass, TableSize};

/// The value of a frontend: the list of nodes, and how rules choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectRoute {
    /// The list of nodes.
    pub list: NodeListId,
    /// Number of slots of its table.
    pub size: TableSize,
    /// The hash is of the client's address alone, which session affinity needs.
    pub by_address: bool,
    /// Connections keep their node when the table changes.
    pub remembered: bool,
    /// Packets of connections whose start was not seen stay on this node.
    pub from_start: bool,
}

/// The number of a list of nodes, from 1 to [`NodeListId::LAST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeListId(NonZeroU32);

/// The number of a node, which is the same on all nodes. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeNumber(NonZeroU32);

/// The bit of a route: connections are remembered.
pub(super) const REMEMBERED: u32 = 0x20;
/// The bit of a route: only connections whose start was seen.
pub(super) const FROM_START: u32 = 0x40;
const FLAGS: u32 = REMEMBERED | FROM_START;

impl DirectRoute {
    /// Returns the packet priority.
    pub fn bits(self) -> u32 {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        let flags = flag(self.remembered, REMEMBERED) | flag(self.from_start, FROM_START);
        let source =
            if self.by_address { HashedSource::Address } else { HashedSource::AddressAndPort };
        self.list.key() | SizeClass::of_table(source, self.size).bits() | flags
    }

    /// Returns the route with these bits; `None` if no frontend has such a route.
    pub fn from_bits(bits: u32) -> Option<Self> {
        let class = SizeClass::from_bits(bits & SIZE_BITS)?;
        let (source, size) = class.table()?;
        let route = Self {
            list: NodeListId::new(bits >> LIST_BITS.trailing_zeros())?,
            size,
            by_address: source != HashedSource::AddressAndPort,
            remembered: bits & REMEMBERED != 0,
            from_start: bits & FROM_START != 0,
        };
        (bits & !(LIST_BITS | SIZE_BITS | FLAGS) == 0).then_some(route)
    }
}

impl NodeListId {
    /// The highest number.
    pub const LAST: u32 = 0xff_ffff;

    /// Returns the list with a number from 1 to [`NodeListId::LAST`].
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).filter(|_| number <= Self::LAST).map(Self)
    }

    /// Returns its number.
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the packet priority by which rules look up the list: `NNNN:NN00`.
    pub fn key(self) -> u32 {
        self.get() << LIST_BITS.trailing_zeros()
    }

    /// Returns the list with this key.
    pub fn from_key(key: u32) -> Option<Self> {
        Self::new(key >> LIST_BITS.trailing_zeros()).filter(|list| list.key() == key)
    }
}

impl NodeNumber {
    /// Returns the node with a number; `None` for 0.
    pub fn of(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Returns the number of a node whose name has this hash.
    pub fn of_hash(hash: u64) -> Self {
        let low = u32::try_from(hash & u64::from(u32::MAX)).ok();
        Self(low.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN))
    }

    /// Returns the packet mark.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_route_names_list_size_and_flags() {
        let route = DirectRoute {
            list: NodeListId::new(0x1_02).unwrap(),
            size: TableSize::ALL[1],
            by_address: true,
            remembered: true,
            from_start: false,
        };
        assert_eq!(route.bits(), 0x0001_023d);
        let other = DirectRoute { by_address: false, remembered: false, from_start: true, ..route };
        assert_eq!(other.bits(), 0x0001_0259);
        assert_eq!(route.list.key(), 0x0001_0200);
    }

    #[test]
    fn bits_that_no_frontend_has_are_no_route() {
        for bits in [0, 0x18, 0x0000_0118 | 0x80, 0x0000_0115, 0x0000_0120] {
            assert_eq!(DirectRoute::from_bits(bits), None, "{bits:x}");
        }
        for key in [0, 0xff, 0x101] {
            assert_eq!(NodeListId::from_key(key), None, "{key:x}");
        }
        assert_eq!(NodeListId::new(NodeListId::LAST + 1), None);
        assert_eq!(NodeNumber::of(0), None);
    }

    proptest! {
        #[test]
        fn a_route_is_read_as_it_was_written(
            list in 1..=NodeListId::LAST,
            size in proptest::sample::select(&TableSize::ALL[..]),
            (by_address, remembered, from_start) in any::<(bool, bool, bool)>(),
        ) {
            let list = NodeListId::new(list).unwrap();
            let route = DirectRoute { list, size, by_address, remembered, from_start };
            prop_assert_eq!(DirectRoute::from_bits(route.bits()), Some(route));
            prop_assert_eq!(NodeListId::from_key(list.key()), Some(list));
        }
    }
}
