//! Statements: a rule's parts as nft(8) writes them.
//!
//! `text` is what `nft list` prints for the expressions that `lower` makes.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::abi::*;
use super::expr::Register;
use super::selector::{load_key, write_key};
use super::text::{Time, milliseconds};
use super::{Expr, Family, Name, Operand, Selector, Verdict};

/// A part of a rule. The family of the table decides between `ip` and `ip6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Goes on if the set has the key: `ip daddr . meta l4proto . th dport @service-ips`.
    InSet {
        /// Fields of the key.
        key: Vec<Selector>,
        /// Name of the set.
        set: Name,
        /// Goes on if the set does not have it: `!=`.
        negated: bool,
    },
    /// Goes on if the packet has the value: `ip saddr != 10.244.0.0/16`, `iifname "cali*"`.
    Compare {
        /// What is compared.
        selector: Selector,
        /// Goes on if the packet does not have it: `!=`.
        negated: bool,
        /// What it is compared with.
        value: Operand,
    },
    /// Goes on for the first packet of a connection: `ct state new`.
    CtStateNew,
    /// Goes on if the connection's destination was translated: `ct status dnat`.
    CtStatusDnat,
    /// Goes on if the source is an address of this host: `fib saddr type local`.
    FibSaddrLocal,
    /// Goes on if the destination is an address of this host: `fib daddr type local`.
    FibDaddrLocal,
    /// Sets bits of the mark: `meta mark set meta mark | 0x00004000`.
    MarkSet(u32),
    /// Flips bits of the mark, which clears them if they are set: `meta mark set meta mark ^ ..`.
    MarkClear(u32),
    /// Goes on if any of the bits is set: `meta mark & 0x00004000 != 0x00000000`.
    MarkTest(u32),
    /// Ends the rule.
    Verdict(Verdict),
    /// Takes the verdict from a map; goes on if the map has none: `.. vmap @affinity-services`.
    VerdictMap {
        /// Fields of the key.
        key: Vec<Selector>,
        /// Name of the map.
        map: Name,
    },
    /// Answers with "port unreachable".
    Reject,
    /// Sends the connection to the address and port that a map has for the key and a random number:
    /// `dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints`.
    DnatMap {
        /// Fields of the key before the number.
        key: Vec<Selector>,
        /// The number is from 0 to this minus 1; never 0.
        modulus: u32,
        /// Name of the map.
        map: Name,
    },
    /// Sends the connection to an address and port: `dnat to 10.244.1.5:8080`. nft loads it only
    /// after a comparison of the transport protocol.
    DnatTo {
        /// Address of the table's family.
        address: IpAddr,
        /// Port.
        port: u16,
    },
    /// Replaces the source by the leaving interface's address: `masquerade fully-random`.
    Masquerade,
    /// Adds an element or renews its timeout: `update @affinity { ip saddr timeout 10m }`.
    UpdateSet {
        /// Name of the set.
        set: Name,
        /// Fields of the key.
        key: Vec<Selector>,
        /// How long the element lives, if not as long as the set says.
        timeout: Option<Duration>,
    },
}

/// Why a statement cannot be sent.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum LowerError {
    /// An address is not of the table's family.
    #[error("an address of another family than the table's")]
    Family,
    /// A field cannot have a value of this type, or a prefix is longer than the address.
    #[error("a field is compared with something that it cannot be")]
    Operand,
    /// An interface name is empty, longer than 15 bytes or has a quote in it.
    #[error("not the name of an interface")]
    InterfaceName,
    /// The key does not fit the kernel's registers, 64 bytes.
    #[error("a key of more than 64 bytes")]
    KeyTooLong,
}

impl Statement {
    /// Appends the expressions of this statement.
    pub(super) fn lower(&self, family: Family, out: &mut Vec<Expr>) -> Result<(), LowerError> {
        match self {
            Self::InSet { key, set, negated } => {
                load_key(key, family, out)?;
                out.push(lookup(set, None, *negated));
            }
            Self::Compare { selector, negated, value } => {
                value.lower(*selector, *negated, family, out)?;
            }
            Self::CtStateNew => lower_ct_bit(NFT_CT_STATE, NF_CT_STATE_BIT_NEW, out),
            Self::CtStatusDnat => lower_ct_bit(NFT_CT_STATUS, IPS_DST_NAT, out),
            Self::FibSaddrLocal => lower_fib(NFTA_FIB_F_SADDR, out),
            Self::FibDaddrLocal => lower_fib(NFTA_FIB_F_DADDR, out),
            Self::MarkSet(bits) => lower_mark(!bits, *bits, out),
            Self::MarkClear(bits) => lower_mark(u32::MAX, *bits, out),
            Self::MarkTest(bits) => {
                out.push(Expr::Meta { key: NFT_META_MARK, to: FIRST });
                lower_any_bit(*bits, out);
            }
            Self::Verdict(verdict) => out.push(Expr::Verdict(verdict.clone())),
            Self::VerdictMap { key, map } => {
                load_key(key, family, out)?;
                out.push(lookup(map, Some(Register::Verdict), false));
            }
            Self::Reject => out.push(reject(family)),
            Self::DnatMap { key, modulus, map } => {
                lower_dnat_map(key, *modulus, map, family, out)?;
            }
            Self::DnatTo { address, port } => lower_dnat_to(*address, *port, family, out)?,
            Self::Masquerade => {
                out.push(Expr::Masquerade { flags: NF_NAT_RANGE_PROTO_RANDOM_FULLY });
            }
            Self::UpdateSet { set, key, timeout } => {
                load_key(key, family, out)?;
                let timeout = timeout.map(milliseconds);
                out.push(Expr::UpdateSet { set: set.clone(), key: FIRST, timeout });
            }
        }
        Ok(())
    }

    /// The statement as `nft list` prints it in a table of `family`.
    pub fn text(&self, family: Family) -> impl fmt::Display {
        fmt::from_fn(move |f| self.write(f, family))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, family: Family) -> fmt::Result {
        match self {
            Self::InSet { key, set, negated } => {
                write_key(f, key, family)?;
                write!(f, " {}@{set}", if *negated { "!= " } else { "" })
            }
            Self::Compare { selector, negated, value } => {
                write_key(f, &[*selector], family)?;
                write!(f, " {}{value}", if *negated { "!= " } else { "" })
            }
            Self::CtStateNew => f.write_str("ct state new"),
            Self::CtStatusDnat => f.write_str("ct status dnat"),
            Self::FibSaddrLocal => f.write_str("fib saddr type local"),
            Self::FibDaddrLocal => f.write_str("fib daddr type local"),
            Self::MarkSet(bits) => write!(f, "meta mark set meta mark | {bits:#010x}"),
            Self::MarkClear(bits) => write!(f, "meta mark set meta mark ^ {bits:#010x}"),
            Self::MarkTest(bits) => write!(f, "meta mark & {bits:#010x} != 0x00000000"),
            Self::Verdict(verdict) => write!(f, "{verdict}"),
            Self::VerdictMap { key, map } => {
                write_key(f, key, family)?;
                write!(f, " vmap @{map}")
            }
            Self::Reject => f.write_str("reject"),
            Self::DnatMap { key, modulus, map } => {
                write!(f, "dnat {family} to ")?;
                write_key(f, key, family)?;
                write!(f, " . numgen random mod {modulus} map @{map}")
            }
            Self::DnatTo { address: IpAddr::V4(address), port } => {
                write!(f, "dnat to {address}:{port}")
            }
            Self::DnatTo { address: IpAddr::V6(address), port } => {
                write!(f, "dnat to [{address}]:{port}")
            }
            Self::Masquerade => f.write_str("masquerade fully-random"),
            Self::UpdateSet { set, key, timeout } => {
                write!(f, "update @{set} {{ ")?;
                write_key(f, key, family)?;
                match timeout {
                    Some(timeout) => write!(f, " timeout {} }}", Time(*timeout)),
                    None => f.write_str(" }"),
                }
            }
        }
    }
}

/// Where keys and values start.
pub(super) const FIRST: Register = Register::Word(0);

fn lookup(set: &Name, to: Option<Register>, negated: bool) -> Expr {
    Expr::Lookup { set: set.clone(), from: FIRST, to, negated }
}

fn lower_any_bit(bits: u32, out: &mut Vec<Expr>) {
    let (mask, zero) = (bits.to_ne_bytes().to_vec(), vec![0; 4]);
    out.push(Expr::Bitwise { from: FIRST, to: FIRST, mask, xor: zero.clone() });
    out.push(Expr::Cmp { from: FIRST, negated: true, value: zero });
}

fn lower_ct_bit(key: u32, bit: u32, out: &mut Vec<Expr>) {
    out.push(Expr::Ct { key, to: FIRST });
    lower_any_bit(bit, out);
}

fn lower_fib(flags: u32, out: &mut Vec<Expr>) {
    out.push(Expr::FibType { flags, to: FIRST });
    let value = RTN_LOCAL.to_ne_bytes().to_vec();
    out.push(Expr::Cmp { from: FIRST, negated: false, value });
}

fn lower_mark(mask: u32, xor: u32, out: &mut Vec<Expr>) {
    out.push(Expr::Meta { key: NFT_META_MARK, to: FIRST });
    let (mask, xor) = (mask.to_ne_bytes().to_vec(), xor.to_ne_bytes().to_vec());
    out.push(Expr::Bitwise { from: FIRST, to: FIRST, mask, xor });
    out.push(Expr::MetaSet { key: NFT_META_MARK, from: FIRST });
}

fn reject(family: Family) -> Expr {
    let code = match family {
        Family::Ip => ICMP_PORT_UNREACH,
        Family::Ip6 => ICMPV6_PORT_UNREACH,
    };
    Expr::Reject { kind: NFT_REJECT_ICMP_UNREACH, code }
}

fn lower_dnat_map(
    key: &[Selector],
    modulus: u32,
    map: &Name,
    family: Family,
    out: &mut Vec<Expr>,
) -> Result<(), LowerError> {
    let to = load_key(key, family, out)?;
    if matches!(to, Register::Word(16..)) {
        return Err(LowerError::KeyTooLong);
    }
    out.push(Expr::Numgen { modulus, to });
    out.push(lookup(map, Some(FIRST), false));
    out.push(dnat(family));
    Ok(())
}

fn lower_dnat_to(
    address: IpAddr,
    port: u16,
    family: Family,
    out: &mut Vec<Expr>,
) -> Result<(), LowerError> {
    let value = family.octets(address).ok_or(LowerError::Family)?;
    out.push(Expr::Immediate { value, to: FIRST });
    out.push(Expr::Immediate { value: port.to_be_bytes().to_vec(), to: after_address(family) });
    out.push(dnat(family));
    Ok(())
}

fn dnat(family: Family) -> Expr {
    let port = Some(after_address(family));
    Expr::Dnat { family: family.number(), address: FIRST, port }
}

fn after_address(family: Family) -> Register {
    match family {
        Family::Ip => Register::Word(1),
        Family::Ip6 => Register::Word(4),
    }
}
