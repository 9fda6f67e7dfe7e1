//! Fields of the packet, loaded into registers as keys of sets and maps.

use nft::expression::{Bitwise, Hash, Numgen, Payload, Reg, ct, ip, ip6, meta, th};
use nft::{Expression, Family, key};

use crate::model::port_mask;

/// A field of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Source address: `ip saddr`.
    Saddr,
    /// The first bits of the source address, others are 0: `ip saddr & 255.255.255.0`. nft(8) loads it
    /// as the first field only.
    SourceNetwork(u8),
    /// Destination address: `ip daddr`.
    Daddr,
    /// Transport protocol: `meta l4proto`.
    L4Proto,
    /// Source port: `th sport`.
    Sport,
    /// Destination port: `th dport`.
    Dport,
    /// The first bits of the destination port, at least one: `th dport & 0xff00`. nft(8) loads it as the
    /// first field only.
    PortBlock(u8),
    /// Destination address of the packet that began the connection: `ct original ip daddr`.
    OriginalDaddr,
    /// Destination port of the packet that began the connection: `ct original proto-dst`.
    OriginalDport,
    /// Queueing priority, until routing sets it: `meta priority`.
    Priority,
    /// Mark of the packet: `meta mark`.
    Mark,
    /// Some bits of the priority: `meta priority & ffff:8000`. nft(8) loads it as the first field
    /// only.
    PriorityBits(u32),
    /// Bytes from the network header on: `ip id`, or `@nh,352,32`.
    Network {
        /// Number of bytes before them.
        offset: u32,
        /// Number of bytes.
        length: u8,
    },
    /// Bytes from the transport header on, also of ICMP: `@th,136,8`.
    Transport {
        /// Number of bytes before them.
        offset: u32,
        /// Number of bytes.
        length: u8,
    },
    /// A random number below this one, which is never 0: `numgen random mod 2`.
    Random(u32),
    /// This number in every packet: `numgen inc mod 1 offset 24`. nft(8) has no other constant in a key.
    Number(u32),
    /// A hash of fields, from 0 to `modulus` minus 1: `jhash ip saddr . th sport mod 251 seed 0x1`.
    Hash {
        /// The fields.
        of: &'static [Self],
        /// One more than the highest hash.
        modulus: u32,
        /// Seed of the hash.
        seed: u32,
    },
}

/// The source address, as the input of a hash.
pub const SOURCE_ADDRESS: &[Field] = &[Field::Saddr];

/// The source address and the source port, as the input of a hash.
pub const SOURCE_ADDRESS_AND_PORT: &[Field] = &[Field::Saddr, Field::Sport];

/// The fields of a packet for a service address.
pub const SERVICE: &[Field] = &[Field::Daddr, Field::L4Proto, Field::Dport];

/// The fields of [`SERVICE`] of a packet from there.
pub const FROM_SERVICE: &[Field] = &[Field::Saddr, Field::L4Proto, Field::Sport];

/// The fields of a packet for the port ranges of an address.
pub const RANGE_SERVICE: &[Field] = &[Field::Daddr, Field::L4Proto];

/// The fields of a packet for a node port.
pub const NODE_PORT: &[Field] = &[Field::L4Proto, Field::Dport];

impl Field {
    /// Returns the number of four-byte registers that the field fills.
    pub(super) const fn words(self, family: Family) -> u8 {
        match (self, family) {
            (
                Self::Saddr | Self::SourceNetwork(_) | Self::Daddr | Self::OriginalDaddr,
                Family::Ip6,
            ) => 4,
            (
                Self::Saddr | Self::SourceNetwork(_) | Self::Daddr | Self::OriginalDaddr,
                Family::Ip,
            )
            | (Self::L4Proto | Self::Sport | Self::Dport | Self::PortBlock(_), _)
            | (Self::OriginalDport, _)
            | (Self::Priority | Self::Mark | Self::PriorityBits(_) | Self::Random(_), _)
            | (Self::Number(_) | Self::Hash { .. }, _) => 1,
            (Self::Network { length, .. } | Self::Transport { length, .. }, _) => {
                length.div_ceil(4)
            }
        }
    }

    /// Returns the expressions that load the field into the registers from `word` on. A hash also
    /// writes registers after its own, before the hash is computed.
    pub(super) fn load(self, family: Family, word: u8) -> Vec<Expression> {
        let to = Reg::of_word(word);
        let whole = address_length(family);
        match self {
            Self::Saddr => vec![Address::Source.load(family, whole, to)],
            Self::SourceNetwork(length) => source_network(family, length, to),
            Self::Daddr => vec![Address::Destination.load(family, whole, to)],
            Self::Sport => vec![th::sport(to)],
            Self::Dport => vec![th::dport(to)],
            Self::OriginalDaddr => vec![match family {
                Family::Ip => ct::original_ip_daddr(to),
                Family::Ip6 => ct::original_ip6_daddr(to),
            }],
            Self::PortBlock(length) => {
                let mask = port_mask(length);
                let masked = Bitwise::mask_xor(to, mask.to_be_bytes(), [0; 2]);
                [th::dport(to)].into_iter().chain((mask != u16::MAX).then_some(masked)).collect()
            }
            Self::OriginalDport => vec![ct::original_proto_dst(to)],
            Self::L4Proto => vec![meta::l4proto(to)],
            Self::Priority => vec![meta::priority(to)],
            Self::Mark => vec![meta::mark(to)],
            Self::Network { offset, length } => {
                vec![Payload::load(key::PAYLOAD_NETWORK, offset, length.into(), to)]
            }
            Self::Transport { offset, length } => {
                vec![Payload::load(key::PAYLOAD_TRANSPORT, offset, length.into(), to)]
            }
            Self::PriorityBits(bits) => {
                vec![meta::priority(to), Bitwise::mask_xor(to, bits.to_ne_bytes(), [0; 4])]
            }
            Self::Random(modulus) => vec![Numgen::random(modulus, to)],
            Self::Number(number) => vec![Numgen::constant(number, to)],
            Self::Hash { of, modulus, seed } => {
                let (mut loads, end) = load_key(of, family, word);
                // The kernel zeroes the remainder of a port's register (`nft_payload_eval`).
                loads.push(Hash::jenkins(to, u32::from(end - word) * 4, modulus, seed));
                loads
            }
        }
    }
}

fn source_network(family: Family, length: u8, to: Reg) -> Vec<Expression> {
    let load = Address::Source.load(family, address_length(family), to);
    // A length is at least 1, and at most that of an address.
    let length = u32::from(length);
    let mask = match family {
        Family::Ip => (u32::MAX << (32 - length)).to_be_bytes().to_vec(),
        Family::Ip6 => (u128::MAX << (128 - length)).to_be_bytes().to_vec(),
    };
    // nft(8) prints no mask of all bits.
    let is_whole = mask.iter().all(|byte| *byte == 0xff);
    let zeros = vec![0; mask.len()];
    let masked = (!is_whole).then(|| Bitwise::mask_xor(to, mask, zeros));
    [load].into_iter().chain(masked).collect()
}

/// Length of an address in bytes.
pub(super) const fn address_length(family: Family) -> u32 {
    match family {
        Family::Ip => 4,
        Family::Ip6 => 16,
    }
}

/// An address of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Source,
    Destination,
}

impl Address {
    /// Returns a load of the first bytes of the address.
    pub(super) fn load(self, family: Family, length: u32, to: Reg) -> Expression {
        match (self, family) {
            (Self::Source, Family::Ip) => ip::saddr_prefix(length, to),
            (Self::Destination, Family::Ip) => ip::daddr_prefix(length, to),
            (Self::Source, Family::Ip6) => ip6::saddr_prefix(length, to),
            (Self::Destination, Family::Ip6) => ip6::daddr_prefix(length, to),
        }
    }
}

/// Returns the expressions that load the fields one after the other from `word` on, and the word
/// after the last.
pub(super) fn load_key(key: &[Field], family: Family, mut word: u8) -> (Vec<Expression>, u8) {
    let mut expressions = Vec::new();
    for field in key {
        expressions.extend(field.load(family, word));
        word += field.words(family);
    }
    (expressions, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Reg = Reg::of_word(0);

    #[test]
    fn a_key_of_ip6_is_loaded_without_a_gap() {
        let (loads, end) = load_key(SERVICE, Family::Ip6, 0);
        let expected =
            [ip6::daddr(FIRST), meta::l4proto(Reg::of_word(4)), th::dport(Reg::of_word(5))];
        assert_eq!((&loads[..], end), (&expected[..], 6));
    }

    #[test]
    fn a_hashed_address_and_port_fill_one_word() {
        let hash = Field::Hash { of: SOURCE_ADDRESS_AND_PORT, modulus: 8, seed: 1 };
        let (loads, end) = load_key(&[Field::Priority, hash], Family::Ip6, 0);
        assert_eq!(end, 2);
        let (at, port) = (Reg::of_word(1), Reg::of_word(5));
        let expected = [ip6::saddr(at), th::sport(port), Hash::jenkins(at, 20, 8, 1)];
        assert_eq!(loads[1..], expected);
    }

    #[test]
    fn a_hashed_address_fills_one_word() {
        let hash = Field::Hash { of: SOURCE_ADDRESS, modulus: 8, seed: 1 };
        let (loads, end) = load_key(&[Field::Priority, hash], Family::Ip6, 0);
        assert_eq!(end, 2);
        let at = Reg::of_word(1);
        let expected = [ip6::saddr(at), Hash::jenkins(at, 16, 8, 1)];
        assert_eq!(loads[1..], expected);
    }
}
