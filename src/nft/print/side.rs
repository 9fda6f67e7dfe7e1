//! The left side of a comparison: fields as text, with the form of their values.

use super::headers;
use super::kind::Kind;
use super::load::{Bitrange, Load, Role, Space, Term};

/// A field, and the form of the values that it is compared with.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) text: String,
    pub(super) kind: Kind,
    pub(super) host: bool,
    /// Low bits of a value that are not part of the field.
    pub(super) shift: u32,
    /// Length of the field in bits.
    pub(super) bits: u32,
    /// Length of a value in bytes.
    pub(super) length: usize,
    /// The text is an operation, after which nft(8) also prints the operator of equality.
    pub(super) is_operation: bool,
    /// The header and the field, if it is one of the packet.
    pub(super) field: Option<(&'static headers::ProtocolHeader, &'static str)>,
    pub(super) role: Role,
}

/// The first half of a range: `>=`, to which `<=` may follow.
#[derive(Debug)]
pub(super) struct HalfRange {
    pub(super) statement: usize,
    pub(super) term: Term,
    pub(super) side: Side,
    pub(super) first: Vec<u8>,
}

impl Side {
    pub(super) fn new(text: String, kind: Kind, load: &Load) -> Self {
        Self {
            text,
            kind,
            host: load.host,
            shift: 0,
            bits: bits(load.length),
            length: load.length,
            is_operation: false,
            field: None,
            role: Role::None,
        }
    }

    /// A field of the key of a set.
    pub(super) fn of_set(kind: Kind, host: bool, length: usize) -> Self {
        Self::new(String::new(), kind, &Load::key("", kind, host, length))
    }

    /// Returns the bytes of the field in a value, the highest first.
    pub(super) fn big_endian(&self, value: &[u8]) -> Vec<u8> {
        if self.host && cfg!(target_endian = "little") {
            return value.iter().rev().copied().collect();
        }
        let is_whole = self.shift == 0 && self.bits.is_multiple_of(8);
        if is_whole || self.bits >= bits(value.len()) {
            return value.to_vec();
        }
        extract(value, bits(value.len()).saturating_sub(self.shift + self.bits), self.bits)
    }
}

/// Returns a length in bits.
pub(super) fn bits(bytes: usize) -> u32 {
    u32::try_from(bytes).map_or(u32::MAX, |bytes| bytes.saturating_mul(8))
}

/// Returns `length` bits of a value from bit `offset` on, as bytes.
pub(super) fn extract(value: &[u8], offset: u32, length: u32) -> Vec<u8> {
    let bit = |at: u32| {
        let byte = value.get(at as usize / 8).copied().unwrap_or_default();
        byte >> (7 - at % 8) & 1
    };
    let padding = length.next_multiple_of(8) - length;
    let mut bytes = vec![0u8; length.div_ceil(8) as usize];
    for i in 0..length {
        if let Some(byte) = bytes.get_mut(((i + padding) / 8) as usize) {
            *byte = *byte << 1 | bit(offset + i);
        }
    }
    bytes
}

/// Returns offset and length of the only run of ones in a mask.
pub(super) fn run_of_ones(mask: &[u8]) -> Option<(u32, u32)> {
    let ones: Vec<_> = (0..bits(mask.len()))
        .filter(|at| mask.get(*at as usize / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1))
        .collect();
    let (first, last) = (*ones.first()?, *ones.last()?);
    let length = u32::try_from(ones.len()).ok()?;
    (last - first + 1 == length).then_some((first, length))
}

/// Returns the form of bits without a known field.
pub(super) fn raw_kind(space: Space) -> Kind {
    match space {
        Space::Link | Space::Network | Space::Transport | Space::Inner => Kind::Hex(1),
        Space::Extension(_) | Space::TcpOption(_) | Space::IpOption(_) | Space::SctpChunk(_) => {
            Kind::Number
        }
    }
}

/// Returns bits without a known field, as nft(8) prints them.
pub(super) fn raw(range: Bitrange) -> String {
    let Bitrange { space, offset, length } = range;
    match space {
        Space::Link => format!("@ll,{offset},{length}"),
        Space::Network => format!("@nh,{offset},{length}"),
        Space::Transport => format!("@th,{offset},{length}"),
        Space::Inner => format!("@ih,{offset},{length}"),
        Space::Extension(kind) => format!("exthdr @{kind},{offset},{length}"),
        Space::TcpOption(kind) => format!("tcp option @{kind},{offset},{length}"),
        Space::IpOption(kind) => format!("ip option @{kind},{offset},{length}"),
        Space::SctpChunk(kind) => format!("sctp chunk @{kind},{offset},{length}"),
    }
}

/// Returns fields of a concatenation.
pub(super) fn joined(sides: &[Side]) -> String {
    sides.iter().map(|side| side.text.as_str()).collect::<Vec<_>>().join(" . ")
}
