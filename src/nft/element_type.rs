//! Types of the fields of keys and data.

use std::borrow::Cow;

/// Type of one field of a key or of data.
///
/// nft(8) prints the types of most sets by name, `type ipv4_addr`, and those of others by
/// expressions, `typeof ip saddr`: where it has no name, or where a number stands for two types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// IPv4 address, 4 bytes in network byte order.
    Ipv4Addr,
    /// IPv6 address, 16 bytes in network byte order.
    Ipv6Addr,
    /// Address of an Ethernet interface, 6 bytes.
    EtherAddr,
    /// Transport protocol, 1 byte.
    InetProto,
    /// Port, 2 bytes in network byte order.
    InetService,
    /// Packet priority, two numbers of 16 bits: 4 bytes in host byte order.
    ClassId,
    /// Packet mark, 4 bytes in host byte order; printed as `typeof meta mark`.
    Mark,
    /// Index of an interface, 4 bytes in host byte order.
    IfaceIndex,
    /// A result of `numgen` or `jhash`, 4 bytes in host byte order; printed as `typeof numgen
    /// random mod 2`.
    Integer,
    /// [`Type::Ipv4Addr`], printed as `typeof ip saddr`.
    IpSaddr,
    /// [`Type::InetProto`], printed as `typeof ip protocol`.
    IpProtocol,
    /// Number of an IPv4 packet that its fragments share, 2 bytes in network byte order; printed as
    /// `typeof ip id`.
    IpId,
    /// Bits of the packet from its transport header on, in whole bytes and network byte order;
    /// printed as `typeof @th,136,8`.
    Transport {
        /// Number of bits before them.
        offset: u32,
        /// Number of bits.
        length: u32,
    },
}

impl Type {
    /// The types of which there is one each.
    pub(super) const NAMED: [Self; 12] = [
        Self::Ipv4Addr,
        Self::Ipv6Addr,
        Self::EtherAddr,
        Self::InetProto,
        Self::InetService,
        Self::ClassId,
        Self::Mark,
        Self::IfaceIndex,
        Self::Integer,
        Self::IpSaddr,
        Self::IpProtocol,
        Self::IpId,
    ];

    /// Returns the length in bytes of a field of this type, without padding.
    pub const fn length(self) -> u32 {
        match self {
            Self::Ipv4Addr | Self::IpSaddr => 4,
            Self::ClassId | Self::Mark | Self::IfaceIndex | Self::Integer => 4,
            Self::Ipv6Addr => 16,
            Self::EtherAddr => 6,
            Self::InetProto | Self::IpProtocol => 1,
            Self::InetService | Self::IpId => 2,
            Self::Transport { length, .. } => length.div_ceil(8),
        }
    }

    /// Returns whether values are in host byte order.
    pub(super) const fn is_host(self) -> bool {
        matches!(self, Self::ClassId | Self::Mark | Self::IfaceIndex | Self::Integer)
    }

    /// Returns its number in messages, of `enum datatypes` of nft's `datatype.h`.
    ///
    /// nft 0.9.8 ignores our `typeof`, and aborts on an integer (4), whose length it lacks. So an
    /// integer has the number of a type with its length and order. Later versions print the
    /// `typeof`.
    pub(super) const fn number(self) -> u32 {
        const IPV4_ADDR: u32 = 7;
        const IPV6_ADDR: u32 = 8;
        const INET_PROTO: u32 = 12;
        const INET_SERVICE: u32 = 13;
        const MARK: u32 = 19;
        match self {
            Self::Ipv4Addr | Self::IpSaddr => IPV4_ADDR,
            Self::Ipv6Addr => IPV6_ADDR,
            Self::EtherAddr => 9,
            Self::InetProto | Self::IpProtocol => INET_PROTO,
            Self::InetService | Self::IpId => INET_SERVICE,
            Self::Mark | Self::Integer => MARK,
            Self::IfaceIndex => 20,
            Self::ClassId => 23,
            Self::Transport { .. } => match self.length() {
                1 => INET_PROTO,
                2 => INET_SERVICE,
                4 => IPV4_ADDR,
                16 => IPV6_ADDR,
                _ => TYPE_INTEGER,
            },
        }
    }

    /// Returns whether a field of this type may have a number: ours, or that of a set that nft(8)
    /// has loaded.
    fn has_number(self, number: u32) -> bool {
        let is_integer = matches!(self, Self::Integer | Self::IpId | Self::Transport { .. });
        number == self.number() || (is_integer && number == TYPE_INTEGER)
    }

    /// Returns the type with a number, without its `typeof`.
    fn decode(number: u32) -> Option<Self> {
        if number == TYPE_INTEGER {
            return Some(Self::Integer);
        }
        Self::NAMED.into_iter().find(|kind| kind.number() == number)
    }

    /// Returns an expression of this type, for `typeof`.
    pub(super) fn sample(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Ipv4Addr => "ip daddr",
            Self::Ipv6Addr => "ip6 daddr",
            Self::EtherAddr => "ether saddr",
            Self::InetProto => "meta l4proto",
            Self::InetService => "th dport",
            Self::ClassId => "meta priority",
            Self::Mark => "meta mark",
            Self::IfaceIndex => "iif",
            Self::Integer => "numgen random mod 2",
            Self::IpSaddr => "ip saddr",
            Self::IpProtocol => "ip protocol",
            Self::IpId => "ip id",
            Self::Transport { offset, length } => return format!("@th,{offset},{length}").into(),
        })
    }

    /// Returns whether a set with such a field is printed with `typeof`.
    const fn needs_typeof(self) -> bool {
        matches!(
            self,
            Self::Mark
                | Self::Integer
                | Self::IpSaddr
                | Self::IpProtocol
                | Self::IpId
                | Self::Transport { .. }
        )
    }
}

/// `TYPE_INTEGER` of nft's `datatype.h`.
const TYPE_INTEGER: u32 = 4;

/// Number of bits per type in the number of a concatenation: `TYPE_BITS` of nft.
pub(super) const TYPE_BITS: u32 = 6;

/// Returns the number of a concatenation.
pub(super) fn packed(types: &[Type]) -> u32 {
    types.iter().fold(0, |all, kind| all << TYPE_BITS | kind.number())
}

/// Returns the numbers of the types of a concatenation.
pub(super) fn numbers(mut packed: u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    while packed != 0 {
        numbers.push(packed & ((1 << TYPE_BITS) - 1));
        packed >>= TYPE_BITS;
    }
    numbers.reverse();
    numbers
}

/// Returns the types of a concatenation; `None` with one that is unknown here. `named` are those of
/// its `typeof`, which tell types of one number apart.
pub(super) fn unpacked(packed: u32, named: Option<Vec<Type>>) -> Option<Vec<Type>> {
    let numbers = numbers(packed);
    let agrees = |types: &Vec<Type>| {
        types.len() == numbers.len()
            && types.iter().zip(&numbers).all(|(kind, number)| kind.has_number(*number))
    };
    named.filter(agrees).or_else(|| numbers.iter().map(|number| Type::decode(*number)).collect())
}

/// Returns the length of fields in the kernel in bytes: a single field has no padding.
pub(super) fn length(types: &[Type]) -> u32 {
    match types {
        [only] => only.length(),
        fields => fields.iter().map(|field| field.length().next_multiple_of(4)).sum(),
    }
}

/// Returns whether a set or map with these types is printed with `typeof`. nft(8) has no name for
/// the type of `numgen` or of bits, so it cannot load another form again.
pub(super) fn needs_typeof(key: &[Type], data: &[Type]) -> bool {
    key.iter().chain(data).any(|kind| kind.needs_typeof())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_number_are_told_apart_by_their_typeof() {
        let mark = packed(&[Type::Mark]);
        assert_eq!(mark, packed(&[Type::Integer]));
        assert_eq!(unpacked(mark, None), Some(vec![Type::Mark]));
        let named = |types: &[Type]| Some(types.to_vec());
        assert_eq!(unpacked(mark, named(&[Type::Integer])), named(&[Type::Integer]));
        // nft has loaded the set, with the type integer.
        assert_eq!(unpacked(TYPE_INTEGER, named(&[Type::Integer])), named(&[Type::Integer]));
        let bits = Type::Transport { offset: 8, length: 16 };
        assert_eq!(unpacked(TYPE_INTEGER, named(&[bits])), named(&[bits]));
    }

    #[test]
    fn a_typeof_of_other_types_or_of_none_is_not_used() {
        let address = packed(&[Type::Ipv4Addr, Type::InetProto]);
        let expected = Some(vec![Type::Ipv4Addr, Type::InetProto]);
        for named in [&[][..], &[Type::Mark, Type::InetProto], &[Type::Ipv4Addr]] {
            assert_eq!(unpacked(address, Some(named.to_vec())), expected, "{named:?}");
        }
        assert_eq!(unpacked(0xffff_ff00, None), None);
    }
}
