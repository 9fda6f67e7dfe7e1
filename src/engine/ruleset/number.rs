//! The number that a packet carries from rule to rule, as its priority.
//!
//! nft(8) prints it as two halves, `NNNN:NNFS`:
//!
//! ```text
//! NNNNNN  the endpoint list
//!     FS  the size class in the lowest five bits, and flags:
//!           20 masquerade regardless of the source
//!           40 local endpoints only; pods and the node use the internal route
//!           60 local endpoints if direct return has chosen this node, else the internal route and
//!              masquerade
//!           80 session affinity; then SSSS:TTFS is session SSSS with timeout TT
//! ```
//!
//! With affinity, `SSSS:8001` and above are the endpoints of session `SSSS`.

use std::fmt;
use std::num::NonZeroU32;

use crate::model::HashedSource;

/// The priority of the first packet of a connection to a node port for which direct return has chosen
/// this node, until its frontend is looked up: `ffff:fff0`. No route has it.
pub const CHOSEN_NODE: u32 = 0xffff_fff0;

/// The value of a frontend: an endpoint list, its size class and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route(NonZeroU32);

/// The number of an endpoint list, plain or with session affinity.
///
/// It is the bits of a [`Route`] without size class, flags and timeout. So every route names its
/// list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListId(NonZeroU32);

/// The number of slots of a list, and how rules choose one.
///
/// 0 means no slots. In classes 1 to 21, slots are drawn: 1 to 8 are exact; 9 stands for at most 16
/// slots, 10 for at most 32, up to 21 for at most 65,536. From 24 on, a hash of the source chooses
/// a slot of a table: 24 to 27 hash address and port, 28 to 31 the address, each with the sizes of
/// [`TableSize::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SizeClass(u8);

/// The number of slots of a table: a prime number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableSize(u8);

/// The number of an affinity timeout, from 1 to [`Timeout::LAST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timeout(u8);

/// The number of an endpoint of a list with affinity, from 1 to [`LAST_ENDPOINT`].
pub type EndpointId = u16;

/// The highest number of an endpoint of a list with affinity.
pub const LAST_ENDPOINT: EndpointId = 0x7fff;

/// Properties of a route besides its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    /// Masquerade regardless of the source.
    pub masquerade: bool,
    /// The list holds local endpoints; pods and the node use the internal route. With `masquerade`,
    /// everyone does but packets for which direct return has chosen this node.
    pub local: bool,
}

/// The bits of a route for the size class.
pub const SIZE_BITS: u32 = 0x1f;
/// The bit of a route: masquerade regardless of the source.
pub const MASQUERADE: u32 = 0x20;
/// The bit of a route: local endpoints only.
pub const LOCAL: NonZeroU32 = NonZeroU32::new(0x40).unwrap();
/// The bit of a route: session affinity.
pub const AFFINITY: u32 = 0x80;
/// [`AFFINITY`], as the lowest bits of a list with affinity.
const SESSION: NonZeroU32 = NonZeroU32::new(AFFINITY).unwrap();
/// The bits of a route for the number of a plain list.
pub const LIST_BITS: u32 = 0xffff_ff00;
/// The bits of a route for the number of a list with affinity.
pub const SESSION_BITS: u32 = 0xffff_0000;
/// The bits of a route for the number of a timeout.
pub const TIMEOUT_BITS: u32 = 0x7f00;
/// The bit of a priority that marks an endpoint of a list with affinity.
pub const ENDPOINT_BIT: u32 = 0x8000;

impl Route {
    /// Returns the route to a plain list, or to a list with affinity and this timeout.
    pub fn new(list: ListId, timeout: Option<Timeout>, size: SizeClass, flags: Flags) -> Self {
        let timeout = timeout.map_or(0, Timeout::bits);
        Self(list.0 | timeout | size.bits() | flags.bits())
    }

    /// The route of a frontend without local endpoints, where other nodes have endpoints.
    pub const WITHOUT_LIST: Self = Self(LOCAL);

    /// Returns the route with these bits; `None` if no frontend has such a route.
    pub fn from_bits(bits: u32) -> Option<Self> {
        let route = Self(NonZeroU32::new(bits)?);
        let size = route.size();
        let is_known_size = size <= SizeClass::LARGEST || size.table().is_some();
        let has_list = route.list().is_some_and(|list| list.is_valid());
        let is_valid = match bits & AFFINITY {
            _ if route == Self::WITHOUT_LIST => true,
            0 => has_list,
            _ => has_list && bits & ENDPOINT_BIT == 0 && bits & TIMEOUT_BITS != 0,
        };
        (is_valid && is_known_size).then_some(route)
    }

    /// Returns the packet priority.
    pub fn bits(self) -> u32 {
        self.0.get()
    }

    /// Returns the list; `None` without a local endpoint.
    pub fn list(self) -> Option<ListId> {
        let list = match self.bits() & AFFINITY {
            0 => self.bits() & LIST_BITS,
            affinity => self.bits() & SESSION_BITS | affinity,
        };
        NonZeroU32::new(list).map(ListId)
    }

    /// Returns the size class of the list.
    pub fn size(self) -> SizeClass {
        SizeClass((self.bits() & SIZE_BITS) as u8)
    }

    /// Returns the flags.
    pub fn flags(self) -> Flags {
        Flags { masquerade: self.bits() & MASQUERADE != 0, local: self.bits() & LOCAL.get() != 0 }
    }

    /// Returns the timeout of a list with affinity.
    pub fn timeout(self) -> Option<Timeout> {
        let number = (self.bits() & TIMEOUT_BITS) >> 8;
        Timeout::new(u8::try_from(number).ok()?).filter(|_| self.bits() & AFFINITY != 0)
    }
}

impl Flags {
    fn bits(self) -> u32 {
        let masquerade = if self.masquerade { MASQUERADE } else { 0 };
        let local = if self.local { LOCAL.get() } else { 0 };
        masquerade | local
    }
}

impl ListId {
    /// The lowest number of a plain list. nft(8) prints lower ones with an upper half of 0.
    pub const FIRST_PLAIN: u32 = 0x100;
    /// The highest number of a plain list.
    pub const LAST_PLAIN: u32 = 0xff_ffff;
    /// The lowest number of a list with affinity.
    pub const FIRST_SESSION: u32 = 1;
    /// The highest number of a list with affinity.
    pub const LAST_SESSION: u32 = 0xffff;

    /// Returns the plain list with a number up to [`ListId::LAST_PLAIN`].
    ///
    /// # Panics
    /// The number is 0, which is a bug.
    pub const fn plain(number: u32) -> Self {
        match NonZeroU32::new(number << 8) {
            Some(bits) => Self(bits),
            None => panic!("bug: no list has the number 0"),
        }
    }

    /// Returns the list with affinity with a number up to [`ListId::LAST_SESSION`].
    pub const fn session(number: u32) -> Self {
        Self(SESSION.saturating_add(number << 16))
    }

    /// Returns whether the list has session affinity.
    pub fn has_affinity(self) -> bool {
        self.0.get() & AFFINITY != 0
    }

    /// Returns its number among lists of its kind.
    pub fn number(self) -> u32 {
        if self.has_affinity() { self.0.get() >> 16 } else { self.0.get() >> 8 }
    }

    /// Returns the packet priority by which rules look up the list: `NNNN:NN00`, or `SSSS:0`.
    pub fn key(self) -> u32 {
        self.0.get() & !AFFINITY
    }

    /// Returns the plain list with this key.
    pub fn from_plain_key(key: u32) -> Option<Self> {
        let list = NonZeroU32::new(key).map(Self)?;
        (key & !LIST_BITS == 0 && list.is_valid()).then_some(list)
    }

    /// Returns the list with affinity with this key.
    pub fn from_session_key(key: u32) -> Option<Self> {
        (key & !SESSION_BITS == 0 && key != 0).then(|| Self::session(key >> 16))
    }

    /// Returns the packet priority of an endpoint of a list with affinity.
    pub fn endpoint(self, id: EndpointId) -> u32 {
        self.key() | ENDPOINT_BIT | u32::from(id)
    }

    /// Returns the list with affinity and its endpoint in a packet priority.
    pub fn from_endpoint(priority: u32) -> Option<(Self, EndpointId)> {
        let list = Self::from_session_key(priority & SESSION_BITS)?;
        let id = u16::try_from(priority & u32::from(LAST_ENDPOINT)).ok()?;
        (priority & ENDPOINT_BIT != 0 && id != 0).then_some((list, id))
    }

    fn is_valid(self) -> bool {
        if self.has_affinity() {
            self.number() >= Self::FIRST_SESSION
        } else {
            self.number() >= Self::FIRST_PLAIN
        }
    }
}

impl fmt::Display for ListId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.key() >> 16, self.key() & 0xffff)
    }
}

impl SizeClass {
    /// Number of endpoints up to which each count has its own class.
    pub const EXACT: u8 = 8;
    /// The largest class with drawn slots.
    pub const LARGEST: Self = Self(21);
    /// The largest class with drawn slots in a list with affinity.
    pub const LARGEST_SESSION: Self = Self(19);

    /// Returns the class of a table by hashed source and size.
    pub fn of_table(source: HashedSource, TableSize(size): TableSize) -> Self {
        match source {
            HashedSource::AddressAndPort => Self(FIRST_TABLE + size),
            HashedSource::Address | HashedSource::AddressForAllPorts => {
                Self(FIRST_TABLE + TABLE_SIZES + size)
            }
        }
    }

    /// Returns the source that packets hash, [`HashedSource::Address`] for two, and the size of a table;
    /// `None` if slots are drawn.
    pub fn table(self) -> Option<(HashedSource, TableSize)> {
        let number = self.0.checked_sub(FIRST_TABLE).filter(|it| *it < 2 * TABLE_SIZES)?;
        let source = match number / TABLE_SIZES {
            0 => HashedSource::AddressAndPort,
            _ => HashedSource::Address,
        };
        Some((source, TableSize(number % TABLE_SIZES)))
    }

    /// Returns all classes of tables, ascending.
    pub fn tables() -> impl Iterator<Item = Self> {
        (FIRST_TABLE..FIRST_TABLE + 2 * TABLE_SIZES).map(Self)
    }

    /// Returns the class of a list with `count` slots to draw; the largest for more.
    pub fn of(count: usize) -> Self {
        let exact = usize::from(Self::EXACT);
        if count <= exact {
            return Self(u8::try_from(count).unwrap_or(Self::EXACT));
        }
        let power = count.checked_next_power_of_two().unwrap_or(usize::MAX).ilog2();
        let above = power.saturating_sub(exact.ilog2());
        let class = u8::try_from(above).unwrap_or(u8::MAX).saturating_add(Self::EXACT);
        Self(class.min(Self::LARGEST.0))
    }

    /// Returns all classes, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::LARGEST.0).map(Self).chain(Self::tables())
    }

    /// Returns the class with these bits of a route.
    pub fn from_bits(bits: u32) -> Option<Self> {
        Self::all().find(|size| size.bits() == bits)
    }

    /// Returns whether each count up to this one has its own class.
    pub fn is_exact(self) -> bool {
        self.0 <= Self::EXACT
    }

    /// Returns the classes that stand for one count, ascending.
    pub fn exact() -> impl Iterator<Item = Self> {
        (1..=Self::EXACT).map(Self)
    }

    /// Returns the maximum number of slots of this class, which is the modulus of draws and hashes.
    pub fn most(self) -> u32 {
        if let Some((_, size)) = self.table() {
            return size.slots();
        }
        match self.0.checked_sub(Self::EXACT) {
            None | Some(0) => self.0.into(),
            Some(above) => 1 << (above + 3),
        }
    }

    /// Returns the minimum number of slots of this class.
    pub fn fewest(self) -> u32 {
        if let Some((_, size)) = self.table() {
            return size.slots();
        }
        match self.0 {
            ..=Self::EXACT => self.0.into(),
            class => Self(class - 1).most() + 1,
        }
    }

    /// Returns the bits of the class in a route.
    pub fn bits(self) -> u32 {
        self.0.into()
    }
}

const FIRST_TABLE: u8 = 24;
const TABLE_SIZES: u8 = 4;

impl TableSize {
    /// All sizes, ascending.
    pub const ALL: [Self; TABLE_SIZES as usize] = [Self(0), Self(1), Self(2), Self(3)];
    /// The largest size.
    pub const LARGEST: Self = Self(TABLE_SIZES - 1);

    /// Returns the number of slots of a table.
    pub const fn slots(self) -> u32 {
        match self.0 {
            0 => 251,
            1 => 1_021,
            2 => 4_093,
            _ => 65_521,
        }
    }
}

impl Timeout {
    /// The highest number.
    pub const LAST: u8 = 0x7f;
    /// The number of sessions that remember no client: those of port ranges without affinity.
    pub const NONE: Self = Self(Self::LAST);

    /// Returns the timeout with a number from 1 to [`Timeout::LAST`].
    pub fn new(number: u8) -> Option<Self> {
        (1..=Self::LAST).contains(&number).then_some(Self(number))
    }

    /// Returns its bits in a route.
    pub fn bits(self) -> u32 {
        u32::from(self.0) << 8
    }

    /// Returns the timeout with these bits of a route.
    pub fn from_bits(bits: u32) -> Option<Self> {
        let number = u8::try_from(bits >> 8).ok()?;
        Self::new(number).filter(|timeout| timeout.bits() == bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_names_list_size_and_flags() {
        let list = ListId::plain(0x2_07);
        let flags = Flags { masquerade: true, local: false };
        let route = Route::new(list, None, SizeClass::of(3), flags);
        assert_eq!(route.bits(), 0x0002_0723);
        assert_eq!((route.list(), route.size(), route.flags()), (Some(list), SizeClass(3), flags));
        assert_eq!(list.to_string(), "2:700");
        let session = ListId::session(0x101);
        let route = Route::new(session, Timeout::new(1), SizeClass::of(2), Flags::default());
        assert_eq!(route.bits(), 0x0101_0182);
        assert_eq!((route.list(), route.timeout()), (Some(session), Timeout::new(1)));
        assert_eq!(session.endpoint(3), 0x0101_8003);
        assert_eq!(ListId::from_endpoint(0x0101_8003), Some((session, 3)));
        assert_eq!(ListId::from_endpoint(0x0101_0003), None);
        assert_eq!(session.to_string(), "101:0");
    }

    #[test]
    fn no_route_has_the_priority_of_a_chosen_node() {
        assert_eq!(Route::from_bits(CHOSEN_NODE), None);
    }

    #[test]
    fn bits_that_no_frontend_has_are_no_route() {
        for bits in [0x0002_0723, 0x0101_0182, 0x40, 0x0001_0041] {
            assert_eq!(Route::from_bits(bits).map(Route::bits), Some(bits), "{bits:x}");
        }
        for bits in [0, 0x20, 0x60, 0x0002_0716, 0x0101_8182, 0x0101_0082, 0x0000_0101, 0x183] {
            assert_eq!(Route::from_bits(bits), None, "{bits:x}");
        }
        assert_eq!(Route::WITHOUT_LIST.list(), None);
        assert_eq!(ListId::from_plain_key(0x0002_0701), None);
        assert_eq!(ListId::from_session_key(0), None);
    }

    #[test]
    fn classes_are_exact_up_to_8_and_powers_of_two_above() {
        let rows = [
            (0, 0, 0, 0),
            (1, 1, 1, 1),
            (8, 8, 8, 8),
            (9, 9, 9, 16),
            (16, 9, 9, 16),
            (17, 10, 17, 32),
            (5_000, 18, 4_097, 8_192),
            (65_536, 21, 32_769, 65_536),
            (1_000_000, 21, 32_769, 65_536),
        ];
        for (count, class, fewest, most) in rows {
            let size = SizeClass::of(count);
            assert_eq!((size.0, size.fewest(), size.most()), (class, fewest, most), "{count}");
        }
        assert_eq!(SizeClass::LARGEST_SESSION.most(), 16_384);
        assert!((0..=21).all(|class| SizeClass(class).table().is_none()));
        assert_eq!(SizeClass::of(usize::MAX), SizeClass::LARGEST);
    }

    #[test]
    fn classes_of_tables_name_what_is_hashed_and_a_prime_size() {
        let classes: Vec<_> = SizeClass::tables().collect();
        let by_port = TableSize::ALL.map(|it| (HashedSource::AddressAndPort, it));
        let by_address = TableSize::ALL.map(|it| (HashedSource::Address, it));
        let all = [by_port, by_address].concat();
        let of_tables = all.iter().map(|(source, size)| SizeClass::of_table(*source, *size));
        assert!(of_tables.eq(classes.iter().copied()));
        assert!(classes.iter().filter_map(|class| class.table()).eq(all));
        for class in SizeClass::tables() {
            assert_eq!((class.fewest(), class.bits() & !SIZE_BITS), (class.most(), 0));
            let size = class.most();
            let has_factor = (2..size).any(|it| it * it <= size && size.is_multiple_of(it));
            assert!(!has_factor, "{size}");
        }
        let route = Route::from_bits(0x0002_071d).unwrap();
        let size = SizeClass::of_table(HashedSource::Address, TableSize::ALL[1]);
        assert_eq!((route.size(), route.list()), (size, Some(ListId::plain(0x2_07))));
    }
}
