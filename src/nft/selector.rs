//! Fields of the packet, and the operands of their comparisons.

use std::fmt;

use ipnet::IpNet;

use super::abi::*;
use super::element::write_class_id;
use super::statement::{FIRST, LowerError};
use super::{Expr, Family, Name, Register};

/// A field of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// Source address: `ip saddr`.
    Saddr,
    /// Destination address: `ip daddr`.
    Daddr,
    /// Transport protocol: `meta l4proto`.
    L4Proto,
    /// Destination port: `th dport`.
    Dport,
    /// Destination address of the packet that began the connection: `ct original ip daddr`.
    OriginalDaddr,
    /// Destination port of the packet that began the connection: `ct original proto-dst`.
    OriginalDport,
    /// Index of the input interface, 0 for a packet of this node: `iif`.
    Iif,
    /// Name of the input interface: `iifname`.
    Iifname,
    /// Queueing priority, until routing sets it: `meta priority`.
    Priority,
    /// Some bits of the priority: `meta priority & ffff:8000`. nft(8) loads it as the first field
    /// only.
    PriorityBits(u32),
    /// A random number below this one, which is never 0: `numgen random mod 2`.
    Random(u32),
    /// A hash of the source address, from 0 to `modulus` minus 1:
    /// `jhash ip saddr mod 32768 seed 0x1`.
    SaddrHash {
        /// One more than the highest hash.
        modulus: u32,
        /// Seed of the hash.
        seed: u32,
    },
    /// A hash of the source address and the source port: `jhash ip saddr . th sport mod 251 seed
    /// 0x1`.
    SourceHash {
        /// One more than the highest hash.
        modulus: u32,
        /// Seed of the hash.
        seed: u32,
    },
}

impl Selector {
    fn load(self, family: Family, to: Register, out: &mut Vec<Expr>) {
        let meta = |key| Expr::Meta { key, to };
        let load = match self {
            Self::Saddr => load_address(saddr_offset(family), address_length(family), to),
            Self::Daddr => load_address(daddr_offset(family), address_length(family), to),
            Self::Dport => {
                Expr::Payload { base: NFT_PAYLOAD_TRANSPORT_HEADER, offset: 2, length: 2, to }
            }
            Self::OriginalDaddr => {
                let key = match family {
                    Family::Ip => NFT_CT_DST_IP,
                    Family::Ip6 => NFT_CT_DST_IP6,
                };
                Expr::CtOriginal { key, to }
            }
            Self::OriginalDport => Expr::CtOriginal { key: NFT_CT_PROTO_DST, to },
            Self::L4Proto => meta(NFT_META_L4PROTO),
            Self::Iif => meta(NFT_META_IIF),
            Self::Iifname => meta(NFT_META_IIFNAME),
            Self::Priority | Self::PriorityBits(_) => meta(NFT_META_PRIORITY),
            Self::Random(modulus) => Expr::Numgen { modulus, to },
            Self::SaddrHash { modulus, seed } => {
                Self::Saddr.load(family, to, out);
                Expr::Jhash { from: to, length: address_length(family), modulus, seed, to }
            }
            Self::SourceHash { modulus, seed } => {
                Self::Saddr.load(family, to, out);
                let port = after(to, Self::Saddr.words(family));
                out.push(Expr::Payload {
                    base: NFT_PAYLOAD_TRANSPORT_HEADER,
                    offset: 0,
                    length: 2,
                    to: port,
                });
                // The kernel zeroes the remainder of the port's register (`nft_payload_eval`).
                let length = address_length(family) + 4;
                Expr::Jhash { from: to, length, modulus, seed, to }
            }
        };
        out.push(load);
        if let Self::PriorityBits(bits) = self {
            let (mask, xor) = (bits.to_ne_bytes().to_vec(), vec![0; 4]);
            out.push(Expr::Bitwise { from: to, to, mask, xor });
        }
    }

    /// Returns the number of four-byte registers needed to load the field.
    fn loaded_words(self, family: Family) -> u8 {
        match self {
            Self::SaddrHash { .. } => Self::Saddr.words(family),
            Self::SourceHash { .. } => Self::Saddr.words(family) + 1,
            Self::Saddr
            | Self::Daddr
            | Self::L4Proto
            | Self::Dport
            | Self::OriginalDaddr
            | Self::OriginalDport
            | Self::Iif
            | Self::Iifname
            | Self::Priority
            | Self::PriorityBits(_)
            | Self::Random(_) => self.words(family),
        }
    }

    /// Returns the number of four-byte registers that the field fills.
    pub(super) fn words(self, family: Family) -> u8 {
        match (self, family) {
            (Self::Saddr | Self::Daddr | Self::OriginalDaddr, Family::Ip) => 1,
            (Self::Saddr | Self::Daddr | Self::OriginalDaddr, Family::Ip6) => 4,
            (Self::L4Proto | Self::Dport | Self::OriginalDport | Self::Iif, _)
            | (Self::Priority | Self::PriorityBits(_) | Self::Random(_), _)
            | (Self::SaddrHash { .. } | Self::SourceHash { .. }, _) => 1,
            (Self::Iifname, _) => 4,
        }
    }
}

/// Offset in `struct iphdr` and `struct ipv6hdr`.
const fn saddr_offset(family: Family) -> u32 {
    match family {
        Family::Ip => 12,
        Family::Ip6 => 8,
    }
}

const fn daddr_offset(family: Family) -> u32 {
    saddr_offset(family) + address_length(family)
}

const fn address_length(family: Family) -> u32 {
    match family {
        Family::Ip => 4,
        Family::Ip6 => 16,
    }
}

const fn after(register: Register, words: u8) -> Register {
    match register {
        Register::Word(word) => Register::Word(word + words),
        Register::Verdict => Register::Verdict,
    }
}

const fn load_address(offset: u32, length: u32, to: Register) -> Expr {
    Expr::Payload { base: NFT_PAYLOAD_NETWORK_HEADER, offset, length, to }
}

/// Loads the fields one after the other; returns the register after the last.
pub(super) fn load_key(
    key: &[Selector],
    family: Family,
    out: &mut Vec<Expr>,
) -> Result<Register, LowerError> {
    load_key_at(0, key, family, out)
}

/// As [`load_key`], from this word on.
pub(super) fn load_key_at(
    mut word: u8,
    key: &[Selector],
    family: Family,
    out: &mut Vec<Expr>,
) -> Result<Register, LowerError> {
    for selector in key {
        let start = Register::Word(word);
        if word + selector.loaded_words(family) > REGISTER_WORDS {
            return Err(LowerError::KeyTooLong);
        }
        word += selector.words(family);
        selector.load(family, start, out);
    }
    Ok(Register::Word(word))
}

/// Number of words in the kernel's data registers: `NFT_REG32_COUNT`.
pub(super) const REGISTER_WORDS: u8 = 16;

/// Writes the fields as printed by nft(8): `ip daddr . meta l4proto . th dport`.
pub(super) fn write_key(
    f: &mut fmt::Formatter<'_>,
    key: &[Selector],
    family: Family,
) -> fmt::Result {
    for (i, selector) in key.iter().enumerate() {
        f.write_str(if i > 0 { " . " } else { "" })?;
        match selector {
            Selector::Saddr => write!(f, "{family} saddr")?,
            Selector::Daddr => write!(f, "{family} daddr")?,
            Selector::L4Proto => f.write_str("meta l4proto")?,
            Selector::Dport => f.write_str("th dport")?,
            Selector::OriginalDaddr => write!(f, "ct original {family} daddr")?,
            Selector::OriginalDport => f.write_str("ct original proto-dst")?,
            Selector::Iif => f.write_str("iif")?,
            Selector::Iifname => f.write_str("iifname")?,
            Selector::Priority => f.write_str("meta priority")?,
            Selector::PriorityBits(bits) => {
                f.write_str("meta priority & ")?;
                write_class_id(f, *bits)?;
            }
            Selector::Random(modulus) => write!(f, "numgen random mod {modulus}")?,
            Selector::SaddrHash { modulus, seed } => {
                write!(f, "jhash {family} saddr mod {modulus} seed {seed:#x}")?;
            }
            Selector::SourceHash { modulus, seed } => {
                write!(f, "jhash {family} saddr . th sport mod {modulus} seed {seed:#x}")?;
            }
        }
    }
    Ok(())
}

/// The operand of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A network; host bits are ignored.
    Network(IpNet),
    /// An interface's index.
    InterfaceIndex(u32),
    /// An interface name, at most 15 bytes.
    Interface(Name),
    /// Every interface whose name has this prefix: `"cali*"`.
    InterfacePrefix(Name),
    /// A packet priority.
    Class(u32),
}

impl Operand {
    /// Appends the load of `selector` and the comparison.
    pub(super) fn lower(
        &self,
        selector: Selector,
        negated: bool,
        family: Family,
        out: &mut Vec<Expr>,
    ) -> Result<(), LowerError> {
        use Selector::{
            Daddr, Dport, Iif, Iifname, L4Proto, OriginalDaddr, OriginalDport, Priority,
            PriorityBits, Random, Saddr, SaddrHash, SourceHash,
        };
        let value = match (selector, self) {
            (Saddr | Daddr, Self::Network(network)) => {
                let source = saddr_offset(family);
                let offset = if selector == Saddr { source } else { daddr_offset(family) };
                return lower_network(offset, *network, negated, family, out);
            }
            (Iif, Self::InterfaceIndex(index)) => index.to_ne_bytes().to_vec(),
            (Iifname, Self::Interface(name)) => {
                let mut value = interface_name(name)?;
                value.resize(IFNAMSIZ, 0);
                value
            }
            (Iifname, Self::InterfacePrefix(prefix)) => interface_name(prefix)?,
            (Priority | PriorityBits(_), Self::Class(id)) => id.to_ne_bytes().to_vec(),
            (Saddr | Daddr | L4Proto | Dport | Iif | Iifname, _)
            | (OriginalDaddr | OriginalDport, _)
            | (Priority | PriorityBits(_) | Random(_) | SaddrHash { .. } | SourceHash { .. }, _) => {
                return Err(LowerError::Operand);
            }
        };
        selector.load(family, FIRST, out);
        out.push(Expr::Cmp { from: FIRST, negated, value });
        Ok(())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                write!(f, "{}", network.addr())
            }
            Self::Network(network) => write!(f, "{}", network.trunc()),
            Self::InterfaceIndex(index) => write!(f, "{index}"),
            Self::Interface(name) => write!(f, "\"{name}\""),
            Self::InterfacePrefix(prefix) => write!(f, "\"{prefix}*\""),
            Self::Class(id) => write_class_id(f, *id),
        }
    }
}

/// Length of an interface name in bytes with its NUL.
const IFNAMSIZ: usize = 16;

fn interface_name(name: &str) -> Result<Vec<u8>, LowerError> {
    match name.len() {
        1..IFNAMSIZ if !name.contains(['"', '*', '\\']) => Ok(name.as_bytes().to_vec()),
        _ => Err(LowerError::InterfaceName),
    }
}

/// Appends the comparison of the address at `offset` of the header with a network. As nft(8), it
/// compares whole bytes directly and other prefixes through a mask.
fn lower_network(
    offset: u32,
    network: IpNet,
    negated: bool,
    family: Family,
    out: &mut Vec<Expr>,
) -> Result<(), LowerError> {
    let mut value = family.octets(network.network()).ok_or(LowerError::Family)?;
    let mask = family.octets(network.netmask()).ok_or(LowerError::Family)?;
    let bits = u32::from(network.prefix_len());
    if bits > 0 && bits.is_multiple_of(8) {
        value.truncate(usize::from(network.prefix_len() / 8));
        out.push(load_address(offset, bits / 8, FIRST));
    } else {
        out.push(load_address(offset, u32::from(network.max_prefix_len()) / 8, FIRST));
        let xor = vec![0; mask.len()];
        out.push(Expr::Bitwise { from: FIRST, to: FIRST, mask, xor });
    }
    out.push(Expr::Cmp { from: FIRST, negated, value });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lower(selector: Selector, value: &Operand) -> Result<Vec<Expr>, LowerError> {
        let mut out = Vec::new();
        value.lower(selector, false, Family::Ip, &mut out).map(|()| out)
    }

    #[test]
    fn whole_bytes_of_a_network_are_compared_without_a_mask() {
        let exprs =
            lower(Selector::Saddr, &Operand::Network("10.244.9.9/16".parse().unwrap())).unwrap();
        let expected = [
            load_address(12, 2, FIRST),
            Expr::Cmp { from: FIRST, negated: false, value: vec![10, 244] },
        ];
        assert_eq!(exprs, expected);
    }

    #[test]
    fn other_networks_are_masked_and_host_bits_have_no_meaning() {
        let network = Operand::Network("10.244.255.9/17".parse().unwrap());
        assert_eq!(network.to_string(), "10.244.128.0/17");
        let exprs = lower(Selector::Daddr, &network).unwrap();
        let mask = vec![255, 255, 128, 0];
        let expected = [
            load_address(16, 4, FIRST),
            Expr::Bitwise { from: FIRST, to: FIRST, mask, xor: vec![0; 4] },
            Expr::Cmp { from: FIRST, negated: false, value: vec![10, 244, 128, 0] },
        ];
        assert_eq!(exprs, expected);
    }

    #[test]
    fn what_a_field_cannot_be_is_refused() {
        let check =
            |selector, value: Operand, error| assert_eq!(lower(selector, &value), Err(error));
        check(Selector::Saddr, Operand::Network("::/8".parse().unwrap()), LowerError::Family);
        check(Selector::Dport, Operand::Class(6), LowerError::Operand);
        for name in ["", "sixteen-long-123", "a\"b", "a*"] {
            let operand = Operand::InterfacePrefix(name.into());
            check(Selector::Iifname, operand, LowerError::InterfaceName);
        }
    }

    #[test]
    fn a_key_longer_than_the_registers_is_refused() {
        let mut out = Vec::new();
        let key = [Selector::Saddr, Selector::Daddr, Selector::Iifname, Selector::Iifname];
        assert_eq!(load_key(&key, Family::Ip6, &mut out), Ok(Register::Word(16)));
        let key = [&key[..], &[Selector::Dport]].concat();
        assert_eq!(load_key(&key, Family::Ip6, &mut out), Err(LowerError::KeyTooLong));
    }

    #[test]
    fn a_hashed_address_and_port_fill_one_word_and_need_room_for_both() {
        let hash = Selector::SourceHash { modulus: 8, seed: 1 };
        let mut out = Vec::new();
        let end = load_key(&[Selector::Priority, hash], Family::Ip6, &mut out);
        assert_eq!(end, Ok(Register::Word(2)));
        let (at, port) = (Register::Word(1), Register::Word(5));
        let expected = [
            load_address(8, 16, at),
            Expr::Payload { base: NFT_PAYLOAD_TRANSPORT_HEADER, offset: 0, length: 2, to: port },
            Expr::Jhash { from: at, length: 20, modulus: 8, seed: 1, to: at },
        ];
        assert_eq!(out[1..], expected);
        let full = [Selector::Saddr, Selector::Daddr, Selector::Saddr, hash];
        assert_eq!(load_key(&full, Family::Ip6, &mut out), Err(LowerError::KeyTooLong));
        assert_eq!(load_key(&full, Family::Ip, &mut out), Ok(Register::Word(4)));
    }

    #[test]
    fn a_hashed_address_fills_one_word_and_needs_room_for_the_address() {
        let hash = Selector::SaddrHash { modulus: 8, seed: 1 };
        let mut out = Vec::new();
        let end = load_key(&[Selector::Priority, hash], Family::Ip6, &mut out);
        assert_eq!(end, Ok(Register::Word(2)));
        let at = Register::Word(1);
        let expected = [
            load_address(8, 16, at),
            Expr::Jhash { from: at, length: 16, modulus: 8, seed: 1, to: at },
        ];
        assert_eq!(out[1..], expected);
        let full = [Selector::Saddr, Selector::Daddr, Selector::Saddr, Selector::Dport, hash];
        assert_eq!(load_key(&full, Family::Ip6, &mut out), Err(LowerError::KeyTooLong));
        assert_eq!(load_key(&full, Family::Ip, &mut out), Ok(Register::Word(5)));
    }
}
