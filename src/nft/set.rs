//! Sets and maps: their keys, their data and how elements behave.

use std::time::Duration;

use super::Name;

/// A set, or a map if it has data.
///
/// A map whose key contains [`Type::Integer`] carries user data from which nft prints `typeof`;
/// all others are printed with `type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Name within the table.
    pub name: Name,
    /// Types of the key's fields, in order; never empty.
    pub key: Vec<Type>,
    /// What a map returns; `None` for a set.
    pub data: Option<SetData>,
    /// How elements behave.
    pub flags: SetFlags,
    /// How long elements live unless they say otherwise. Needs [`SetFlags::timeout`].
    pub timeout: Option<Duration>,
    /// Most elements that it may have.
    pub size: Option<u32>,
    /// What `nft list` prints as the set's comment.
    pub comment: Option<String>,
}

/// What a map returns for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetData {
    /// Fields of these types, in order.
    Values(Vec<Type>),
    /// A verdict.
    Verdict,
}

/// Flags of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetFlags {
    /// Elements may be ranges.
    pub interval: bool,
    /// Rules may add elements.
    pub dynamic: bool,
    /// Elements may expire.
    pub timeout: bool,
}

/// Type of one field of a key or of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// IPv4 address, 4 bytes in network byte order.
    Ipv4Addr,
    /// IPv6 address, 16 bytes in network byte order.
    Ipv6Addr,
    /// Transport protocol, 1 byte.
    InetProto,
    /// Port, 2 bytes in network byte order.
    InetService,
    /// Packet mark, 4 bytes in host byte order.
    Mark,
    /// A number made by `numgen`, 4 bytes in host byte order.
    Integer,
}
