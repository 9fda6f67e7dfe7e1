//! Contents of registers: what an expression loads, before it is printed.

use super::kind::Kind::{self, *};
use super::names::*;
use super::types::FieldType;
use crate::expression::{Ct, Exthdr, Fib, Hash, Meta, Numgen, Osf, Rt, Socket, Xfrm};
use crate::family::TableFamily;

/// The place of loaded bits in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Link,
    Network,
    Transport,
    /// The data after the transport header.
    Inner,
    Extension(u8),
    TcpOption(u8),
    IpOption(u8),
    SctpChunk(u8),
}

/// Bits of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bitrange {
    pub(super) space: Space,
    /// Offset in bits.
    pub(super) offset: u32,
    /// Length in bits.
    pub(super) length: u32,
}

/// What a comparison with a constant says about the protocols of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    None,
    LinkType,
    EtherType,
    Family,
    Transport,
}

/// The contents of registers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Term {
    Payload(Bitrange),
    Key {
        text: String,
        kind: Kind,
        role: Role,
    },
    Value(Vec<u8>),
    /// `(of & mask) ^ xor`.
    Masked {
        of: Box<Load>,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    Shifted {
        of: Box<Load>,
        operator: &'static str,
        by: u128,
    },
    Concatenation(Vec<Load>),
    /// Data of a map, with the type of each field.
    Mapped {
        text: String,
        kinds: Vec<FieldType>,
    },
}

/// A term in registers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) term: Term,
    /// Numbers are in host byte order.
    pub(super) host: bool,
    /// Length in bytes.
    pub(super) length: usize,
}

impl Load {
    pub(super) fn key(text: impl Into<String>, kind: Kind, host: bool, length: usize) -> Self {
        Self { term: Term::Key { text: text.into(), kind, role: Role::None }, host, length }
    }

    /// Returns the number of terms; long texts count as several.
    pub(super) fn size(&self) -> usize {
        const TEXT: usize = 32;
        match &self.term {
            Term::Payload(_) => 1,
            Term::Key { text, .. } | Term::Mapped { text, .. } => 1 + text.len() / TEXT,
            Term::Value(value) => 1 + value.len() / TEXT,
            Term::Masked { of, mask, xor } => 1 + (mask.len() + xor.len()) / TEXT + of.size(),
            Term::Shifted { of, .. } => 1 + of.size(),
            Term::Concatenation(parts) => 1 + parts.iter().map(Self::size).sum::<usize>(),
        }
    }

    fn with_role(mut self, new: Role) -> Self {
        if let Term::Key { role, .. } = &mut self.term {
            *role = new;
        }
        self
    }
}

/// Metadata: word of nft(8), form, whether it is in host byte order, length.
type Metadata = (&'static str, Kind, bool, usize);

const META: &[(u32, Metadata)] = &[
    (0, ("meta length", Number, true, 4)),
    (1, ("meta protocol", WordOrHex(ETHER_TYPES, 4), false, 2)),
    (2, ("meta priority", Class, true, 4)),
    (3, ("meta mark", Hex(8), true, 4)),
    (4, ("iif", Interface, true, 4)),
    (5, ("oif", Interface, true, 4)),
    (6, ("iifname", Name, false, 16)),
    (7, ("oifname", Name, false, 16)),
    (8, ("meta iiftype", Word(LINK_TYPES), true, 2)),
    (9, ("meta oiftype", Word(LINK_TYPES), true, 2)),
    (10, ("meta skuid", Number, true, 4)),
    (11, ("meta skgid", Number, true, 4)),
    (12, ("meta nftrace", Flag, true, 1)),
    (13, ("meta rtclassid", Quoted(REALMS), true, 4)),
    (14, ("meta secmark", Number, true, 4)),
    (15, ("meta nfproto", Word(FAMILIES), true, 1)),
    (16, ("meta l4proto", Word(PROTOCOLS), true, 1)),
    (17, ("meta ibrname", Name, false, 16)),
    (18, ("meta obrname", Name, false, 16)),
    (19, ("meta pkttype", Word(PACKET_TYPES), true, 1)),
    (20, ("meta cpu", Number, true, 4)),
    (21, ("iifgroup", Quoted(GROUPS), true, 4)),
    (22, ("oifgroup", Quoted(GROUPS), true, 4)),
    (23, ("meta cgroup", Number, true, 4)),
    (24, ("meta random", Number, false, 4)),
    (25, ("meta ipsec", Word(BOOLEANS), true, 1)),
    (26, ("meta iifkind", Name, false, 16)),
    (27, ("meta oifkind", Name, false, 16)),
    (28, ("meta ibrpvid", Number, true, 2)),
    (29, ("meta ibrvproto", WordOrHex(ETHER_TYPES, 4), false, 2)),
    (30, ("meta time", Date, true, 8)),
    (31, ("meta day", Day, true, 1)),
    (32, ("meta hour", Hour, true, 4)),
    (33, ("meta sdif", Interface, true, 4)),
    (34, ("meta sdifname", Name, false, 16)),
    (35, ("meta broute", Number, true, 1)),
];

pub(super) fn meta(meta: &Meta) -> Option<Load> {
    let (_, (text, kind, host, length)) = *META.iter().find(|(key, _)| *key == meta.key)?;
    let role = match meta.key {
        1 => Role::EtherType,
        8 => Role::LinkType,
        15 => Role::Family,
        16 => Role::Transport,
        _ => Role::None,
    };
    Some(Load::key(text, kind, host, length).with_role(role))
}

/// Metadata of connections, in which `%` is replaced by the direction.
const CT: &[(u32, Metadata)] = &[
    (0, ("ct state", Bits(CT_STATES), true, 4)),
    (1, ("ct direction", Word(DIRECTIONS), true, 1)),
    (2, ("ct status", Bits(CT_STATUSES), true, 4)),
    (3, ("ct mark", Hex(8), true, 4)),
    (4, ("ct secmark", Number, true, 4)),
    (5, ("ct expiration", Seconds, true, 4)),
    (6, ("ct helper", Name, false, 16)),
    (7, ("ct l3proto", Word(FAMILIES), true, 1)),
    (8, ("ct% ip saddr", Ipv4, false, 4)),
    (9, ("ct% ip daddr", Ipv4, false, 4)),
    (10, ("ct protocol", Word(PROTOCOLS), false, 1)),
    (11, ("ct% proto-src", Number, false, 2)),
    (12, ("ct% proto-dst", Number, false, 2)),
    (13, ("ct label", Label, true, 16)),
    (14, ("ct% packets", Number, true, 8)),
    (15, ("ct% bytes", Number, true, 8)),
    (16, ("ct% avgpkt", Number, true, 8)),
    (17, ("ct% zone", Number, true, 2)),
    (18, ("ct event", Bits(CT_EVENTS), true, 4)),
    (19, ("ct% ip saddr", Ipv4, false, 4)),
    (20, ("ct% ip daddr", Ipv4, false, 4)),
    (21, ("ct% ip6 saddr", Ipv6, false, 16)),
    (22, ("ct% ip6 daddr", Ipv6, false, 16)),
    (23, ("ct id", Number, false, 4)),
];

pub(super) fn ct(ct: &Ct, family: TableFamily) -> Option<Load> {
    // `NFT_CT_SRC` and `NFT_CT_DST` are addresses of the table's family.
    let key = match (ct.key, family) {
        (8, TableFamily::Ip6) => 21,
        (9, TableFamily::Ip6) => 22,
        (key, _) => key,
    };
    let (_, (text, kind, host, length)) = *CT.iter().find(|(known, _)| *known == key)?;
    let direction = match ct.direction {
        Some(0) => " original",
        Some(_) => " reply",
        None => "",
    };
    Some(Load::key(text.replace('%', direction), kind, host, length))
}

pub(super) fn rt(rt: &Rt) -> Option<Load> {
    Some(match rt.key {
        0 => Load::key("rt classid", Quoted(REALMS), true, 4),
        1 => Load::key("rt ip nexthop", Ipv4, false, 4),
        2 => Load::key("rt ip6 nexthop", Ipv6, false, 16),
        3 => Load::key("rt mtu", Number, true, 2),
        4 => Load::key("rt ipsec", Word(BOOLEANS), true, 1),
        _ => return None,
    })
}

pub(super) fn socket(socket: &Socket) -> Option<Load> {
    Some(match (socket.key, socket.level) {
        (0, _) => Load::key("socket transparent", Flag, true, 1),
        (1, _) => Load::key("socket mark", Hex(8), true, 4),
        (2, _) => Load::key("socket wildcard", Flag, true, 1),
        (3, Some(level)) => Load::key(format!("socket cgroupv2 level {level}"), Number, true, 8),
        _ => return None,
    })
}

pub(super) fn fib(fib: &Fib) -> Option<Load> {
    const FLAGS: &[(u32, &str)] =
        &[(1, "saddr"), (2, "daddr"), (4, "mark"), (8, "iif"), (16, "oif")];
    const PRESENT: u32 = 32;
    let flags: Vec<_> = FLAGS.iter().filter(|(bit, _)| fib.flags & bit != 0).collect();
    let flags = flags.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(" . ");
    let (word, kind, host, length) = match fib.result {
        1 => ("oif", Interface, true, 4),
        2 => ("oifname", Name, false, 16),
        3 => ("type", Word(ADDRESS_TYPES), true, 4),
        _ => return None,
    };
    let text = format!("fib {flags} {word}");
    Some(if fib.flags & PRESENT != 0 {
        Load::key(text, Word(BOOLEANS), true, 1)
    } else {
        Load::key(text, kind, host, length)
    })
}

pub(super) fn numgen(numgen: &Numgen) -> Load {
    let kind = if numgen.kind == 0 { "inc" } else { "random" };
    let text = format!("numgen {kind} mod {}{}", numgen.modulus, offset(numgen.offset));
    Load::key(text, Number, true, 4)
}

pub(super) fn hash(hash: &Hash, of: &str) -> Load {
    let offset = offset(hash.offset.unwrap_or_default());
    let text = match hash.kind {
        0 => {
            let seed = match hash.seed {
                Some(seed) if seed != 0 => format!(" seed {seed:#x}"),
                Some(_) | None => String::new(),
            };
            format!("jhash {of} mod {}{seed}{offset}", hash.modulus)
        }
        _ => format!("symhash mod {}{offset}", hash.modulus),
    };
    Load::key(text, Number, true, 4)
}

fn offset(offset: u32) -> String {
    if offset == 0 { String::new() } else { format!(" offset {offset}") }
}

pub(super) fn osf(osf: &Osf) -> Load {
    let ttl = match osf.ttl {
        1 => "ttl loose ",
        2 => "ttl skip ",
        _ => "",
    };
    let word = if osf.flags & 1 == 0 { "name" } else { "version" };
    Load::key(format!("osf {ttl}{word}"), Name, false, 16)
}

pub(super) fn xfrm(xfrm: &Xfrm) -> Option<Load> {
    let (word, kind, host, length) = match xfrm.key {
        1 => ("ip daddr", Ipv4, false, 4),
        2 => ("ip6 daddr", Ipv6, false, 16),
        3 => ("ip saddr", Ipv4, false, 4),
        4 => ("ip6 saddr", Ipv6, false, 16),
        5 => ("reqid", Number, true, 4),
        6 => ("spi", Number, false, 4),
        _ => return None,
    };
    let direction = if xfrm.direction == 0 { "in" } else { "out" };
    let number = match xfrm.number {
        0 => String::new(),
        number => format!("spnum {number} "),
    };
    Some(Load::key(format!("ipsec {direction} {number}{word}"), kind, host, length))
}

/// Returns the place of an extension header or option.
pub(super) fn space(exthdr: &Exthdr) -> Option<Space> {
    Some(match exthdr.operation.unwrap_or_default() {
        0 => Space::Extension(exthdr.kind),
        1 => Space::TcpOption(exthdr.kind),
        2 => Space::IpOption(exthdr.kind),
        3 => Space::SctpChunk(exthdr.kind),
        _ => return None,
    })
}
