//! Types of the fields of keys and data.

/// Type of one field of a key or of data, with its number in `enum datatypes` of nft's
/// `datatype.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Type {
    /// IPv4 address, 4 bytes in network byte order.
    Ipv4Addr = 7,
    /// IPv6 address, 16 bytes in network byte order.
    Ipv6Addr = 8,
    /// Transport protocol, 1 byte.
    InetProto = 12,
    /// Port, 2 bytes in network byte order.
    InetService = 13,
    /// Packet priority, two numbers of 16 bits: 4 bytes in host byte order.
    ClassId = 23,
    /// A result of `numgen`, 4 bytes in host byte order. Messages carry the type of a mark (19),
    /// which has this length and order. nft 0.9.8 ignores our `typeof`, and aborts on an integer
    /// (4), whose length it lacks. Later versions print the `typeof`.
    Integer = 19,
}

impl Type {
    /// Returns the length in bytes of a field of this type, without padding.
    pub const fn length(self) -> u32 {
        match self {
            Self::Ipv4Addr | Self::ClassId | Self::Integer => 4,
            Self::Ipv6Addr => 16,
            Self::InetProto => 1,
            Self::InetService => 2,
        }
    }

    fn decode(number: u32) -> Option<Self> {
        use Type::{ClassId, InetProto, InetService, Integer, Ipv4Addr, Ipv6Addr};
        // The number in a set that nft(8) has loaded.
        if number == TYPE_INTEGER {
            return Some(Integer);
        }
        [Ipv4Addr, Ipv6Addr, InetProto, InetService, ClassId, Integer]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ipv4Addr => "ipv4_addr",
            Self::Ipv6Addr => "ipv6_addr",
            Self::InetProto => "inet_proto",
            Self::InetService => "inet_service",
            Self::ClassId => "classid",
            Self::Integer => "integer",
        }
    }

    /// Returns an expression of this type, for `typeof`.
    pub(super) const fn sample(self) -> &'static str {
        match self {
            Self::Ipv4Addr => "ip daddr",
            Self::Ipv6Addr => "ip6 daddr",
            Self::InetProto => "meta l4proto",
            Self::InetService => "th dport",
            Self::ClassId => "meta priority",
            Self::Integer => "numgen random mod 2",
        }
    }
}

/// `TYPE_INTEGER` of nft's `datatype.h`.
const TYPE_INTEGER: u32 = 4;

/// Number of bits per type in the number of a concatenation: `TYPE_BITS` of nft.
const TYPE_BITS: u32 = 6;

/// Returns the number of a concatenation.
pub(super) fn packed(types: &[Type]) -> u32 {
    types.iter().fold(0, |all, kind| all << TYPE_BITS | *kind as u32)
}

/// Returns the types of a concatenation; `None` with one that is unknown here.
pub(super) fn unpacked(mut packed: u32) -> Option<Vec<Type>> {
    let mut types = Vec::new();
    while packed != 0 {
        types.push(Type::decode(packed & ((1 << TYPE_BITS) - 1))?);
        packed >>= TYPE_BITS;
    }
    types.reverse();
    Some(types)
}

/// Returns the length of fields in the kernel in bytes: a single field has no padding.
pub(super) fn length(types: &[Type]) -> u32 {
    match types {
        [only] => only.length(),
        fields => fields.iter().map(|field| field.length().next_multiple_of(4)).sum(),
    }
}

/// Returns whether a key is printed with `typeof`: nft(8) has no name for the type of `numgen`, so
/// it cannot load another form again.
pub(super) fn needs_typeof(key: &[Type]) -> bool {
    key.contains(&Type::Integer)
}
