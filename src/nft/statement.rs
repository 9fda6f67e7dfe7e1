//! Statements: the parts of a rule in nft(8).
//!
//! `text` is the output of `nft list` for the expressions that `lower` returns.

use std::fmt;
use std::time::Duration;

use super::abi::*;
use super::selector::{load_key, load_key_at, write_key};
use super::text::{Time, milliseconds};
use super::{
    DynsetOperation, Expr, Family, Name, Operand, Order, Register, Selector, Verdict, key,
};

/// A part of a rule. The family of the table selects `ip` or `ip6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Matches if the set has the key: `ip daddr . meta l4proto . th dport @restricted-services`.
    InSet {
        /// Fields of the key.
        key: Vec<Selector>,
        /// Name of the set.
        set: Name,
        /// Matches if the set does not have it: `!=`.
        negated: bool,
    },
    /// Matches if the packet has the value: `ip saddr != 10.244.0.0/16`, `iifname "cali*"`.
    Compare {
        /// The field.
        selector: Selector,
        /// Matches if the packet does not have it: `!=`.
        negated: bool,
        /// The operand.
        value: Operand,
    },
    /// Matches packets of known connections: `ct state != new`.
    CtStateNotNew,
    /// Matches packets of connections with packets in both directions: `ct state established`.
    CtStateEstablished,
    /// Matches if the connection has had more packets or bytes, of both directions:
    /// `ct packets > 20`. The kernel then counts those of all connections.
    CtOver(ConnectionSize),
    /// Matches if the connection's destination was translated: `ct status dnat`.
    CtStatusDnat,
    /// Matches if the source is an address of this host: `fib saddr type local`.
    FibSaddrLocal,
    /// Matches if the destination is an address of this host: `fib daddr type local`.
    FibDaddrLocal,
    /// Sets bits of the mark: `meta mark set meta mark | 0x00004000`.
    MarkSet(u32),
    /// Flips bits of the mark, which clears them if they are set: `meta mark set meta mark ^ ..`.
    MarkClear(u32),
    /// Matches if any of the bits is set: `meta mark & 0x00004000 != 0x00000000`.
    MarkTest(u32),
    /// Ends the rule.
    Verdict(Verdict),
    /// Rejects the packet with "port unreachable".
    Reject,
    /// Translates the destination to the address and port of the key in a map; the rule ends
    /// without one: `dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map
    /// @endpoints`.
    DnatMap {
        /// Fields of the key.
        key: Vec<Selector>,
        /// Name of the map.
        map: Name,
    },
    /// Replaces the source by the address of the output interface: `masquerade fully-random`.
    Masquerade,
    /// Sets the priority to the value of the key in a map; the rule ends without one: `meta
    /// priority set meta l4proto . meta priority map @sessions`.
    PriorityMap {
        /// Fields of the key.
        key: Vec<Selector>,
        /// Name of the map.
        map: Name,
    },
    /// Sets the priority to 0: `meta priority set none`.
    PriorityClear,
    /// Adds the connection to a flowtable: `flow add @established`. The rule ends if the kernel
    /// cannot forward the connection by one.
    FlowAdd(Name),
    /// Traces every step of the packet: `meta nftrace set 1`.
    Trace,
    /// Matches the packet that begins a TCP connection: `tcp flags & (fin | syn | rst | ack) ==
    /// syn`. A statement before it must match TCP.
    TcpSyn,
    /// Matches a packet whose first SCTP chunk is INIT, the type in byte 12: `@th,96,8 0x1`. A
    /// statement before it must match SCTP.
    SctpInit,
    /// Adds an element, renews its timeout, or deletes it: `update @clients { ip saddr timeout 10m
    /// : meta priority }`.
    Element {
        /// The change.
        operation: DynsetOperation,
        /// Name of the set or map.
        set: Name,
        /// Fields of the key.
        key: Vec<Selector>,
        /// The data of a map element.
        data: Option<Selector>,
        /// Timeout of the element, if it differs from the set's.
        timeout: Option<Duration>,
    },
}

/// Packets or bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSize {
    /// Number of packets.
    Packets(u64),
    /// Number of bytes.
    Bytes(u64),
}

/// Why a statement cannot be sent.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum LowerError {
    /// An address of another family than the table's.
    #[error("an address of another family than the table's")]
    Family,
    /// A field and an operand of different types, or a prefix longer than the address.
    #[error("a field is compared with something that it cannot be")]
    Operand,
    /// An interface name that is empty, longer than 15 bytes or contains a quote.
    #[error("not the name of an interface")]
    InterfaceName,
    /// A key larger than the kernel's registers, 64 bytes.
    #[error("a key of more than 64 bytes")]
    KeyTooLong,
}

impl Statement {
    /// Returns a match of keys in the set.
    pub fn in_set(key: &[Selector], set: impl Into<Name>) -> Self {
        Self::InSet { key: key.to_vec(), set: set.into(), negated: false }
    }

    /// Returns a jump, after which this chain continues.
    pub fn jump(chain: impl Into<Name>) -> Self {
        Self::Verdict(Verdict::Jump(chain.into()))
    }

    /// Returns a goto, after which the chain that jumped to this one continues.
    pub fn goto(chain: impl Into<Name>) -> Self {
        Self::Verdict(Verdict::Goto(chain.into()))
    }

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
            Self::CtStateNotNew => {
                out.push(Expr::Ct { key: NFT_CT_STATE, to: FIRST });
                let value = NF_CT_STATE_BIT_NEW.to_ne_bytes().to_vec();
                out.push(Expr::Cmp { from: FIRST, negated: true, value });
            }
            Self::CtStateEstablished => {
                out.push(Expr::Ct { key: NFT_CT_STATE, to: FIRST });
                lower_any_bit(NF_CT_STATE_BIT_ESTABLISHED, out);
            }
            Self::CtOver(size) => lower_size(*size, out),
            Self::CtStatusDnat => {
                out.push(Expr::Ct { key: NFT_CT_STATUS, to: FIRST });
                lower_any_bit(IPS_DST_NAT, out);
            }
            Self::FibSaddrLocal => lower_fib(NFTA_FIB_F_SADDR, out),
            Self::FibDaddrLocal => lower_fib(NFTA_FIB_F_DADDR, out),
            Self::MarkSet(bits) => lower_mark(!bits, *bits, out),
            Self::MarkClear(bits) => lower_mark(u32::MAX, *bits, out),
            Self::MarkTest(bits) => {
                out.push(Expr::Meta { key: NFT_META_MARK, to: FIRST });
                lower_any_bit(*bits, out);
            }
            Self::Verdict(verdict) => out.push(Expr::Verdict(verdict.clone())),
            Self::Reject => out.push(reject(family)),
            Self::DnatMap { key, map } => {
                load_key(key, family, out)?;
                out.push(lookup(map, Some(FIRST), false));
                out.push(dnat(family));
            }
            Self::Masquerade => {
                out.push(Expr::Masquerade { flags: NF_NAT_RANGE_PROTO_RANDOM_FULLY });
            }
            Self::PriorityMap { key, map } => {
                load_key(key, family, out)?;
                out.push(lookup(map, Some(FIRST), false));
                out.push(PRIORITY_SET);
            }
            Self::PriorityClear => {
                out.push(Expr::Immediate { value: vec![0; 4], to: FIRST });
                out.push(PRIORITY_SET);
            }
            Self::FlowAdd(flowtable) => out.push(Expr::FlowOffload(flowtable.clone())),
            Self::Trace => {
                out.push(Expr::Immediate { value: vec![1], to: FIRST });
                out.push(Expr::MetaSet { key: key::META_NFTRACE, from: FIRST });
            }
            Self::TcpSyn => lower_byte(TCP_FLAGS_OFFSET, TCP_BEGINNING_AND_END, TCP_SYN, out),
            Self::SctpInit => lower_byte(SCTP_CHUNK_OFFSET, u8::MAX, SCTP_INIT, out),
            Self::Element { operation, set, key, data, timeout } => {
                let end = load_key(key, family, out)?;
                let data = data.map(|data| lower_data(data, end, family, out)).transpose()?;
                let timeout = timeout.map(milliseconds);
                let (operation, set) = (*operation, set.clone());
                out.push(Expr::Dynset { operation, set, key: FIRST, data, timeout });
            }
        }
        Ok(())
    }

    /// Returns the statement as printed by `nft list` in a table of `family`.
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
                // After a mask, nft(8) also prints the operator of equality.
                let is_masked = matches!(selector, Selector::PriorityBits(_));
                let equal = if is_masked { "== " } else { "" };
                write!(f, " {}{value}", if *negated { "!= " } else { equal })
            }
            Self::CtStateNotNew => f.write_str("ct state != new"),
            Self::CtStateEstablished => f.write_str("ct state established"),
            Self::CtOver(ConnectionSize::Packets(number)) => write!(f, "ct packets > {number}"),
            Self::CtOver(ConnectionSize::Bytes(number)) => write!(f, "ct bytes > {number}"),
            Self::CtStatusDnat => f.write_str("ct status dnat"),
            Self::FibSaddrLocal => f.write_str("fib saddr type local"),
            Self::FibDaddrLocal => f.write_str("fib daddr type local"),
            Self::MarkSet(bits) => write!(f, "meta mark set meta mark | {bits:#010x}"),
            Self::MarkClear(bits) => write!(f, "meta mark set meta mark ^ {bits:#010x}"),
            Self::MarkTest(bits) => write!(f, "meta mark & {bits:#010x} != 0x00000000"),
            Self::Verdict(verdict) => write!(f, "{verdict}"),
            Self::Reject => f.write_str("reject"),
            Self::DnatMap { key, map } => {
                write!(f, "dnat {family} to ")?;
                write_key(f, key, family)?;
                write!(f, " map @{map}")
            }
            Self::Masquerade => f.write_str("masquerade fully-random"),
            Self::PriorityMap { key, map } => {
                f.write_str("meta priority set ")?;
                write_key(f, key, family)?;
                write!(f, " map @{map}")
            }
            Self::PriorityClear => f.write_str("meta priority set none"),
            Self::FlowAdd(flowtable) => write!(f, "flow add @{flowtable}"),
            Self::Trace => f.write_str("meta nftrace set 1"),
            Self::TcpSyn => f.write_str("tcp flags & (fin | syn | rst | ack) == syn"),
            Self::SctpInit => f.write_str("@th,96,8 0x1"),
            Self::Element { operation, set, key, data, timeout } => {
                write!(f, "{} @{set} {{ ", operation.word())?;
                write_key(f, key, family)?;
                if let Some(timeout) = timeout {
                    write!(f, " timeout {}", Time(*timeout))?;
                }
                if let Some(data) = data {
                    f.write_str(" : ")?;
                    write_key(f, &[*data], family)?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// First register of keys and values.
pub(super) const FIRST: Register = Register::Word(0);

/// Bytes of the headers of TCP and SCTP (RFC 9293, RFC 9260).
const TCP_FLAGS_OFFSET: u32 = 13;
const TCP_SYN: u8 = 0x02;
/// FIN, SYN, RST and ACK.
const TCP_BEGINNING_AND_END: u8 = 0x17;
const SCTP_CHUNK_OFFSET: u32 = 12;
const SCTP_INIT: u8 = 1;

/// Compares bits of one byte of the transport header.
fn lower_byte(offset: u32, mask: u8, value: u8, out: &mut Vec<Expr>) {
    out.push(Expr::Payload { base: NFT_PAYLOAD_TRANSPORT_HEADER, offset, length: 1, to: FIRST });
    out.push(Expr::Bitwise { from: FIRST, to: FIRST, mask: vec![mask], xor: vec![0] });
    out.push(Expr::Cmp { from: FIRST, negated: false, value: vec![value] });
}

fn lookup(set: &Name, to: Option<Register>, negated: bool) -> Expr {
    Expr::Lookup { set: set.clone(), from: FIRST, to, negated }
}

fn lower_any_bit(bits: u32, out: &mut Vec<Expr>) {
    let (mask, zero) = (bits.to_ne_bytes().to_vec(), vec![0; 4]);
    out.push(Expr::Bitwise { from: FIRST, to: FIRST, mask, xor: zero.clone() });
    out.push(Expr::Cmp { from: FIRST, negated: true, value: zero });
}

/// The kernel compares bytes, so the number is brought into network byte order first.
fn lower_size(size: ConnectionSize, out: &mut Vec<Expr>) {
    let (key, number) = match size {
        ConnectionSize::Packets(number) => (NFT_CT_PKTS, number),
        ConnectionSize::Bytes(number) => (NFT_CT_BYTES, number),
    };
    out.push(Expr::Ct { key, to: FIRST });
    out.push(Expr::Byteorder { from: FIRST, to: FIRST, length: 8, size: 8 });
    let value = number.to_be_bytes().to_vec();
    out.push(Expr::Order { from: FIRST, order: Order::Greater, value });
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

const PRIORITY_SET: Expr = Expr::MetaSet { key: NFT_META_PRIORITY, from: FIRST };

/// Loads the data of an element into the first free 16-byte register after the key, which ends at
/// `end`.
fn lower_data(
    data: Selector,
    end: Register,
    family: Family,
    out: &mut Vec<Expr>,
) -> Result<Register, LowerError> {
    let word = match end {
        Register::Word(word) => word.next_multiple_of(4),
        Register::Verdict => 0,
    };
    load_key_at(word, &[data], family, out)?;
    Ok(Register::Word(word))
}

fn dnat(family: Family) -> Expr {
    let port = Some(Register::Word(Selector::Daddr.words(family)));
    Expr::Dnat { family: family.number(), address: FIRST, port }
}
