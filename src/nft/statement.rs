//! Statements: a rule's parts as nft(8) writes them.

use std::net::IpAddr;
use std::time::Duration;

use super::{Name, Verdict};

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

/// A field of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// Source address: `ip saddr`.
    Saddr,
    /// Destination address: `ip daddr`.
    Daddr,
    /// Transport protocol: `meta l4proto`.
    L4Proto,
    /// Source port: `th sport`.
    Sport,
    /// Destination port: `th dport`.
    Dport,
    /// Name of the interface it came in by: `iifname`.
    Iifname,
    /// Name of the interface it leaves by: `oifname`.
    Oifname,
}

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An address of the table's family.
    Address(IpAddr),
    /// A network: its address, host bits zero, and its prefix length.
    Network(IpAddr, u8),
    /// A transport protocol by its IANA number.
    Protocol(u8),
    /// A port.
    Port(u16),
    /// An interface name, at most 15 bytes.
    Interface(Name),
    /// Every interface whose name starts so: `"cali*"`.
    InterfacePrefix(Name),
}
