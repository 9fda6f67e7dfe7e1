//! The packet inside an ICMP error: the places of its fields.
//!
//! It is an answer to a client that did not arrive. So its source is the service, and its
//! destination the client. An IPv4 header with options, or extension headers of IPv6, are not
//! looked for: then the fields hold something else, and no frontend is found.

use nft::{Family, Type};

use crate::ruleset::field::Field;

/// Bytes from the ICMP header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inner {
    /// Number of bytes before them.
    offset: u32,
    /// Number of bytes.
    length: u8,
}

/// Length in bytes of the header of ICMP and ICMPv6 errors (RFC 792, RFC 4443).
const ICMP_HEADER: u32 = 8;

impl Inner {
    /// Returns the place of the transport protocol.
    pub(super) const fn protocol(family: Family) -> Self {
        match family {
            Family::Ip => Self::inside(9, 1),
            Family::Ip6 => Self::inside(6, 1),
        }
    }

    /// Returns the place of the source port.
    pub(super) const fn service_port(family: Family) -> Self {
        Self::inside(header(family), 2)
    }

    /// Returns the place of the destination address.
    pub(super) const fn client_address(family: Family) -> Self {
        match family {
            Family::Ip => Self::inside(16, 4),
            Family::Ip6 => Self::inside(24, 16),
        }
    }

    /// Returns the place of the destination port.
    pub(super) const fn client_port(family: Family) -> Self {
        Self::inside(header(family) + 2, 2)
    }

    /// Returns the type of these bytes in a key.
    pub(super) const fn of_type(self) -> Type {
        // A cast, because `u32::from` is not const.
        Type::Transport { offset: self.offset * 8, length: self.length as u32 * 8 }
    }

    /// Returns these bytes as a field of a key.
    pub(super) const fn field(self) -> Field {
        Field::Transport { offset: self.offset, length: self.length }
    }

    /// Returns bytes from an offset in the network header of the packet inside.
    const fn inside(offset: u32, length: u8) -> Self {
        Self { offset: ICMP_HEADER + offset, length }
    }
}

/// Returns the length of a network header in bytes, without options or extension headers.
const fn header(family: Family) -> u32 {
    match family {
        Family::Ip => 20,
        Family::Ip6 => 40,
    }
}
