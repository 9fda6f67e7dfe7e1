//! The fields of protocol headers, extension headers and options.

use super::kind::Kind::{self, *};
use super::names::*;

/// A field: name, offset and length in bits, form.
pub(super) type HeaderField = (&'static str, u32, u32, Kind);

/// A header with its fields.
#[derive(Debug)]
pub(super) struct ProtocolHeader {
    /// The keyword of nft(8).
    pub(super) name: &'static str,
    pub(super) fields: &'static [HeaderField],
}

/// Names are unique within a space, and only headers of one space are compared.
impl PartialEq for ProtocolHeader {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

pub(super) const ETHER: ProtocolHeader = header("ether", &[
    ("daddr", 0, 48, Ether), ("saddr", 48, 48, Ether), ("type", 96, 16, WordOrHex(ETHER_TYPES, 4)),
]);

/// Follows an Ethernet header of 112 bits. Offsets count from the start of that header.
pub(super) const VLAN: ProtocolHeader = header("vlan", &[
    ("pcp", 112, 3, Number), ("dei", 115, 1, Number), ("id", 116, 12, Number),
    ("type", 128, 16, WordOrHex(ETHER_TYPES, 4)),
]);

pub(super) const ARP: ProtocolHeader = header("arp", &[
    ("htype", 0, 16, Number), ("ptype", 16, 16, WordOrHex(ETHER_TYPES, 4)), ("hlen", 32, 8, Number),
    ("plen", 40, 8, Number), ("operation", 48, 16, Word(ARP_OPERATIONS)),
    ("saddr ether", 64, 48, Ether), ("saddr ip", 112, 32, Ipv4), ("daddr ether", 144, 48, Ether),
    ("daddr ip", 192, 32, Ipv4),
]);

pub(super) const IP: ProtocolHeader = header("ip", &[
    ("version", 0, 4, Number), ("hdrlength", 4, 4, Number), ("dscp", 8, 6, WordOrHex(DSCP, 2)),
    ("ecn", 14, 2, Word(ECN)), ("length", 16, 16, Number), ("id", 32, 16, Number),
    ("frag-off", 48, 16, Number), ("ttl", 64, 8, Number), ("protocol", 72, 8, Kind::PROTOCOL),
    ("checksum", 80, 16, Number), ("saddr", 96, 32, Ipv4), ("daddr", 128, 32, Ipv4),
]);

pub(super) const IP6: ProtocolHeader = header("ip6", &[
    ("version", 0, 4, Number), ("dscp", 4, 6, WordOrHex(DSCP, 2)), ("ecn", 10, 2, Word(ECN)),
    ("flowlabel", 12, 20, Number), ("length", 32, 16, Number), ("nexthdr", 48, 8, Kind::PROTOCOL),
    ("hoplimit", 56, 8, Number), ("saddr", 64, 128, Ipv6), ("daddr", 192, 128, Ipv6),
]);

pub(super) const TRANSPORT: ProtocolHeader =
    header("th", &[("sport", 0, 16, Number), ("dport", 16, 16, Number)]);

pub(super) const TCP: ProtocolHeader = header("tcp", &[
    ("sport", 0, 16, Number), ("dport", 16, 16, Number), ("sequence", 32, 32, Number),
    ("ackseq", 64, 32, Number), ("doff", 96, 4, Number), ("reserved", 100, 4, Number),
    ("flags", 104, 8, Bits(TCP_FLAGS)), ("window", 112, 16, Number), ("checksum", 128, 16, Number),
    ("urgptr", 144, 16, Number),
]);

const UDP: ProtocolHeader = header("udp", &[
    ("sport", 0, 16, Number), ("dport", 16, 16, Number), ("length", 32, 16, Number),
    ("checksum", 48, 16, Number),
]);

const UDPLITE: ProtocolHeader = header("udplite", &[
    ("sport", 0, 16, Number), ("dport", 16, 16, Number), ("csumcov", 32, 16, Number),
    ("checksum", 48, 16, Number),
]);

const SCTP: ProtocolHeader = header("sctp", &[
    ("sport", 0, 16, Number), ("dport", 16, 16, Number), ("vtag", 32, 32, Number),
    ("checksum", 64, 32, Number),
]);

const DCCP: ProtocolHeader = header("dccp", &[
    ("sport", 0, 16, Number), ("dport", 16, 16, Number), ("type", 67, 4, Word(DCCP_TYPES)),
]);

const AH: ProtocolHeader = header("ah", &[
    ("nexthdr", 0, 8, Kind::PROTOCOL), ("hdrlength", 8, 8, Number), ("reserved", 16, 16, Number),
    ("spi", 32, 32, Number), ("sequence", 64, 32, Number),
]);

const ESP: ProtocolHeader =
    header("esp", &[("spi", 0, 32, Number), ("sequence", 32, 32, Number)]);

const COMP: ProtocolHeader = header("comp", &[
    ("nexthdr", 0, 8, Kind::PROTOCOL), ("flags", 8, 8, Hex(1)), ("cpi", 16, 16, Number),
]);

/// Fields at the same offset belong to different types; `candidates` in `load_fields.rs` selects by
/// the type.
const ICMP: ProtocolHeader = header("icmp", &[
    ("type", 0, 8, Word(ICMP_TYPES)), ("code", 8, 8, Word(ICMP_CODES)), ("checksum", 16, 16, Number),
    ("id", 32, 16, Number), ("sequence", 48, 16, Number), ("gateway", 32, 32, Number),
    ("mtu", 48, 16, Number),
]);

/// As in [`ICMP`], fields at the same offset belong to different types.
const ICMPV6: ProtocolHeader = header("icmpv6", &[
    ("type", 0, 8, Word(ICMPV6_TYPES)), ("code", 8, 8, Word(ICMPV6_CODES)),
    ("checksum", 16, 16, Number), ("parameter-problem", 32, 32, Number), ("mtu", 32, 32, Number),
    ("id", 32, 16, Number), ("sequence", 48, 16, Number), ("max-delay", 32, 16, Number),
]);

const IGMP: ProtocolHeader = header("igmp", &[
    ("type", 0, 8, Word(IGMP_TYPES)), ("mrt", 8, 8, Number), ("checksum", 16, 16, Number),
    ("group", 32, 32, Number),
]);

/// Returns the transport header of a protocol.
pub(super) fn transport(protocol: u128) -> Option<&'static ProtocolHeader> {
    Some(match protocol {
        1 => &ICMP,
        2 => &IGMP,
        6 => &TCP,
        17 => &UDP,
        33 => &DCCP,
        50 => &ESP,
        51 => &AH,
        58 => &ICMPV6,
        108 => &COMP,
        132 => &SCTP,
        136 => &UDPLITE,
        _ => return None,
    })
}

/// Returns the network header of an Ethernet type.
pub(super) fn network(ether_type: u128) -> Option<&'static ProtocolHeader> {
    Some(match ether_type {
        0x0800 => &IP,
        0x0806 => &ARP,
        0x86dd => &IP6,
        _ => return None,
    })
}

/// Returns the extension header of IPv6 with this number.
pub(super) fn extension(kind: u8) -> Option<&'static ProtocolHeader> {
    Some(match kind {
        0 => &HOP_BY_HOP,
        43 => &ROUTING,
        44 => &FRAGMENT,
        60 => &DESTINATION,
        135 => &MOBILITY,
        _ => return None,
    })
}

const HOP_BY_HOP: ProtocolHeader =
    header("hbh", &[("nexthdr", 0, 8, Kind::PROTOCOL), ("hdrlength", 8, 8, Number)]);

const DESTINATION: ProtocolHeader =
    header("dst", &[("nexthdr", 0, 8, Kind::PROTOCOL), ("hdrlength", 8, 8, Number)]);

const ROUTING: ProtocolHeader = header("rt", &[
    ("nexthdr", 0, 8, Kind::PROTOCOL), ("hdrlength", 8, 8, Number), ("type", 16, 8, Number),
    ("seg-left", 24, 8, Number),
]);

/// The segment routing header, a use of the routing header.
pub(super) static SEGMENTS: [ProtocolHeader; 1] = [header("srh", &[
    ("last-entry", 32, 8, Number), ("flags", 40, 8, Number), ("tag", 48, 16, Number),
    ("sid[1]", 64, 128, Ipv6), ("sid[2]", 192, 128, Ipv6),
])];

const FRAGMENT: ProtocolHeader = header("frag", &[
    ("nexthdr", 0, 8, Kind::PROTOCOL), ("reserved", 8, 8, Number), ("frag-off", 16, 13, Number),
    ("reserved2", 29, 2, Number), ("more-fragments", 31, 1, Number), ("id", 32, 32, Number),
]);

const MOBILITY: ProtocolHeader = header("mh", &[
    ("nexthdr", 0, 8, Kind::PROTOCOL), ("hdrlength", 8, 8, Number), ("type", 16, 8, Word(MH_TYPES)),
    ("reserved", 24, 8, Number), ("checksum", 32, 16, Number),
]);

/// Headers by their numbers.
type Numbered = [(u8, ProtocolHeader)];

/// Returns the header with this number.
pub(super) fn find(headers: &'static Numbered, kind: u8) -> Option<&'static ProtocolHeader> {
    headers.iter().find(|(number, _)| *number == kind).map(|(_, header)| header)
}

const fn header(name: &'static str, fields: &'static [HeaderField]) -> ProtocolHeader {
    ProtocolHeader { name, fields }
}

const KIND: HeaderField = ("kind", 0, 8, Number);
const LENGTH: HeaderField = ("length", 8, 8, Number);

pub(super) static TCP_OPTIONS: &Numbered = &[
    (0, header("eol", &[KIND])),
    (1, header("nop", &[KIND])),
    (2, header("maxseg", &[KIND, LENGTH, ("size", 16, 16, Number)])),
    (3, header("window", &[KIND, LENGTH, ("count", 16, 8, Number)])),
    (4, header("sack-perm", &[KIND, LENGTH])),
    (5, header("sack", &[KIND, LENGTH, ("left", 16, 32, Number), ("right", 48, 32, Number)])),
    (8, header("timestamp", &[KIND, LENGTH, ("tsval", 16, 32, Number), ("tsecr", 48, 32, Number)])),
    (19, header("md5sig", &[KIND, LENGTH])),
    (30, header("mptcp", &[KIND, LENGTH, ("subtype", 16, 4, Number)])),
    (34, header("fastopen", &[KIND, LENGTH])),
];

/// Further blocks of option `sack`.
pub(super) static SACKS: [ProtocolHeader; 3] = [
    header("sack1", &[("left", 80, 32, Number), ("right", 112, 32, Number)]),
    header("sack2", &[("left", 144, 32, Number), ("right", 176, 32, Number)]),
    header("sack3", &[("left", 208, 32, Number), ("right", 240, 32, Number)]),
];

const TYPE: HeaderField = ("type", 0, 8, Number);
const SOURCE_ROUTE: &[HeaderField] =
    &[TYPE, LENGTH, ("ptr", 16, 8, Number), ("addr", 24, 32, Number)];

pub(super) static IP_OPTIONS: &Numbered = &[
    (7, header("rr", SOURCE_ROUTE)),
    (131, header("lsrr", SOURCE_ROUTE)),
    (137, header("ssrr", SOURCE_ROUTE)),
    (148, header("ra", &[TYPE, LENGTH, ("value", 16, 16, Number)])),
];

const FLAGS: HeaderField = ("flags", 8, 8, Number);
const CHUNK_LENGTH: HeaderField = ("length", 16, 16, Number);
const BARE: &[HeaderField] = &[TYPE, FLAGS, CHUNK_LENGTH];
const INIT: &[HeaderField] = &[
    TYPE, FLAGS, CHUNK_LENGTH, ("init-tag", 32, 32, Number), ("a-rwnd", 64, 32, Number),
    ("num-outbound-streams", 96, 16, Number), ("num-inbound-streams", 112, 16, Number),
    ("initial-tsn", 128, 32, Number),
];
const LOWEST_TSN: &[HeaderField] = &[TYPE, FLAGS, CHUNK_LENGTH, ("lowest-tsn", 32, 32, Number)];

pub(super) static SCTP_CHUNKS: &Numbered = &[
    (0, header("data", &[
        TYPE, FLAGS, CHUNK_LENGTH, ("tsn", 32, 32, Number), ("stream", 64, 16, Number),
        ("ssn", 80, 16, Number), ("ppid", 96, 32, Number),
    ])),
    (1, header("init", INIT)),
    (2, header("init-ack", INIT)),
    (3, header("sack", &[
        TYPE, FLAGS, CHUNK_LENGTH, ("cum-tsn-ack", 32, 32, Number), ("a-rwnd", 64, 32, Number),
        ("num-gap-ack-blocks", 96, 16, Number), ("num-dup-tsns", 112, 16, Number),
    ])),
    (4, header("heartbeat", BARE)),
    (5, header("heartbeat-ack", BARE)),
    (6, header("abort", BARE)),
    (7, header("shutdown", &[TYPE, FLAGS, CHUNK_LENGTH, ("cum-tsn-ack", 32, 32, Number)])),
    (8, header("shutdown-ack", BARE)),
    (9, header("error", BARE)),
    (10, header("cookie-echo", BARE)),
    (11, header("cookie-ack", BARE)),
    (12, header("ecne", LOWEST_TSN)),
    (13, header("cwr", LOWEST_TSN)),
    (14, header("shutdown-complete", BARE)),
];
