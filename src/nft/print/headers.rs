//! The fields of protocol headers, extension headers and options.

use super::kind::Kind::{self, *};
use super::names::*;

/// A field: name, offset and length in bits, form.
pub(super) type Field = (&'static str, u32, u32, Kind);

/// A header with its fields.
#[derive(Debug)]
pub(super) struct Header {
    /// The keyword of nft(8).
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

/// Names are unique within a space, and only headers of one space are compared.
impl PartialEq for Header {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

const PROTOCOL: Kind = Word(PROTOCOLS);

pub(super) const ETHER: Header = Header {
    name: "ether",
    fields: &[
        ("daddr", 0, 48, Ether),
        ("saddr", 48, 48, Ether),
        ("type", 96, 16, WordOrHex(ETHER_TYPES, 4)),
    ],
};

/// Follows an Ethernet header of 112 bits. Offsets count from the start of that header.
pub(super) const VLAN: Header = Header {
    name: "vlan",
    fields: &[
        ("pcp", 112, 3, Number),
        ("dei", 115, 1, Number),
        ("id", 116, 12, Number),
        ("type", 128, 16, WordOrHex(ETHER_TYPES, 4)),
    ],
};

pub(super) const ARP: Header = Header {
    name: "arp",
    fields: &[
        ("htype", 0, 16, Number),
        ("ptype", 16, 16, WordOrHex(ETHER_TYPES, 4)),
        ("hlen", 32, 8, Number),
        ("plen", 40, 8, Number),
        ("operation", 48, 16, Word(ARP_OPERATIONS)),
        ("saddr ether", 64, 48, Ether),
        ("saddr ip", 112, 32, Ipv4),
        ("daddr ether", 144, 48, Ether),
        ("daddr ip", 192, 32, Ipv4),
    ],
};

pub(super) const IP: Header = Header {
    name: "ip",
    fields: &[
        ("version", 0, 4, Number),
        ("hdrlength", 4, 4, Number),
        ("dscp", 8, 6, WordOrHex(DSCP, 2)),
        ("ecn", 14, 2, Word(ECN)),
        ("length", 16, 16, Number),
        ("id", 32, 16, Number),
        ("frag-off", 48, 16, Number),
        ("ttl", 64, 8, Number),
        ("protocol", 72, 8, PROTOCOL),
        ("checksum", 80, 16, Number),
        ("saddr", 96, 32, Ipv4),
        ("daddr", 128, 32, Ipv4),
    ],
};

pub(super) const IP6: Header = Header {
    name: "ip6",
    fields: &[
        ("version", 0, 4, Number),
        ("dscp", 4, 6, WordOrHex(DSCP, 2)),
        ("ecn", 10, 2, Word(ECN)),
        ("flowlabel", 12, 20, Number),
        ("length", 32, 16, Number),
        ("nexthdr", 48, 8, PROTOCOL),
        ("hoplimit", 56, 8, Number),
        ("saddr", 64, 128, Ipv6),
        ("daddr", 192, 128, Ipv6),
    ],
};

pub(super) const TRANSPORT: Header =
    Header { name: "th", fields: &[("sport", 0, 16, Number), ("dport", 16, 16, Number)] };

pub(super) const TCP: Header = Header {
    name: "tcp",
    fields: &[
        ("sport", 0, 16, Number),
        ("dport", 16, 16, Number),
        ("sequence", 32, 32, Number),
        ("ackseq", 64, 32, Number),
        ("doff", 96, 4, Number),
        ("reserved", 100, 4, Number),
        ("flags", 104, 8, Bits(TCP_FLAGS)),
        ("window", 112, 16, Number),
        ("checksum", 128, 16, Number),
        ("urgptr", 144, 16, Number),
    ],
};

const UDP: Header = Header {
    name: "udp",
    fields: &[
        ("sport", 0, 16, Number),
        ("dport", 16, 16, Number),
        ("length", 32, 16, Number),
        ("checksum", 48, 16, Number),
    ],
};

const UDPLITE: Header = Header {
    name: "udplite",
    fields: &[
        ("sport", 0, 16, Number),
        ("dport", 16, 16, Number),
        ("csumcov", 32, 16, Number),
        ("checksum", 48, 16, Number),
    ],
};

const SCTP: Header = Header {
    name: "sctp",
    fields: &[
        ("sport", 0, 16, Number),
        ("dport", 16, 16, Number),
        ("vtag", 32, 32, Number),
        ("checksum", 64, 32, Number),
    ],
};

const DCCP: Header = Header {
    name: "dccp",
    fields: &[
        ("sport", 0, 16, Number),
        ("dport", 16, 16, Number),
        ("type", 67, 4, Word(DCCP_TYPES)),
    ],
};

const AH: Header = Header {
    name: "ah",
    fields: &[
        ("nexthdr", 0, 8, PROTOCOL),
        ("hdrlength", 8, 8, Number),
        ("reserved", 16, 16, Number),
        ("spi", 32, 32, Number),
        ("sequence", 64, 32, Number),
    ],
};

const ESP: Header =
    Header { name: "esp", fields: &[("spi", 0, 32, Number), ("sequence", 32, 32, Number)] };

const COMP: Header = Header {
    name: "comp",
    fields: &[("nexthdr", 0, 8, PROTOCOL), ("flags", 8, 8, Hex(1)), ("cpi", 16, 16, Number)],
};

/// Fields at the same offset belong to different types; `candidates` in `side.rs` selects by the
/// type.
const ICMP: Header = Header {
    name: "icmp",
    fields: &[
        ("type", 0, 8, Word(ICMP_TYPES)),
        ("code", 8, 8, Word(ICMP_CODES)),
        ("checksum", 16, 16, Number),
        ("id", 32, 16, Number),
        ("sequence", 48, 16, Number),
        ("gateway", 32, 32, Number),
        ("mtu", 48, 16, Number),
    ],
};

/// As in [`ICMP`], fields at the same offset belong to different types.
const ICMPV6: Header = Header {
    name: "icmpv6",
    fields: &[
        ("type", 0, 8, Word(ICMPV6_TYPES)),
        ("code", 8, 8, Word(ICMPV6_CODES)),
        ("checksum", 16, 16, Number),
        ("parameter-problem", 32, 32, Number),
        ("mtu", 32, 32, Number),
        ("id", 32, 16, Number),
        ("sequence", 48, 16, Number),
        ("max-delay", 32, 16, Number),
    ],
};

const IGMP: Header = Header {
    name: "igmp",
    fields: &[
        ("type", 0, 8, Word(IGMP_TYPES)),
        ("mrt", 8, 8, Number),
        ("checksum", 16, 16, Number),
        ("group", 32, 32, Number),
    ],
};

/// Returns the transport header of a protocol.
pub(super) fn transport(protocol: u128) -> Option<&'static Header> {
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
pub(super) fn network(ether_type: u128) -> Option<&'static Header> {
    Some(match ether_type {
        0x0800 => &IP,
        0x0806 => &ARP,
        0x86dd => &IP6,
        _ => return None,
    })
}

/// Returns the extension header of IPv6 with this number.
pub(super) fn extension(kind: u8) -> Option<&'static Header> {
    Some(match kind {
        0 => &HOP_BY_HOP,
        43 => &ROUTING,
        44 => &FRAGMENT,
        60 => &DESTINATION,
        135 => &MOBILITY,
        _ => return None,
    })
}

const HOP_BY_HOP: Header =
    Header { name: "hbh", fields: &[("nexthdr", 0, 8, PROTOCOL), ("hdrlength", 8, 8, Number)] };

const DESTINATION: Header =
    Header { name: "dst", fields: &[("nexthdr", 0, 8, PROTOCOL), ("hdrlength", 8, 8, Number)] };

const ROUTING: Header = Header {
    name: "rt",
    fields: &[
        ("nexthdr", 0, 8, PROTOCOL),
        ("hdrlength", 8, 8, Number),
        ("type", 16, 8, Number),
        ("seg-left", 24, 8, Number),
    ],
};

/// The segment routing header, a use of the routing header.
pub(super) static SEGMENTS: [Header; 1] = [Header {
    name: "srh",
    fields: &[
        ("last-entry", 32, 8, Number),
        ("flags", 40, 8, Number),
        ("tag", 48, 16, Number),
        ("sid[1]", 64, 128, Ipv6),
        ("sid[2]", 192, 128, Ipv6),
    ],
}];

const FRAGMENT: Header = Header {
    name: "frag",
    fields: &[
        ("nexthdr", 0, 8, PROTOCOL),
        ("reserved", 8, 8, Number),
        ("frag-off", 16, 13, Number),
        ("reserved2", 29, 2, Number),
        ("more-fragments", 31, 1, Number),
        ("id", 32, 32, Number),
    ],
};

const MOBILITY: Header = Header {
    name: "mh",
    fields: &[
        ("nexthdr", 0, 8, PROTOCOL),
        ("hdrlength", 8, 8, Number),
        ("type", 16, 8, Word(MH_TYPES)),
        ("reserved", 24, 8, Number),
        ("checksum", 32, 16, Number),
    ],
};

/// Returns the option of TCP with this number.
pub(super) fn tcp_option(kind: u8) -> Option<&'static Header> {
    Some(match kind {
        0 => &Header { name: "eol", fields: &[KIND] },
        1 => &Header { name: "nop", fields: &[KIND] },
        2 => &Header { name: "maxseg", fields: &[KIND, LENGTH, ("size", 16, 16, Number)] },
        3 => &Header { name: "window", fields: &[KIND, LENGTH, ("count", 16, 8, Number)] },
        4 => &Header { name: "sack-perm", fields: &[KIND, LENGTH] },
        5 => &SACK,
        8 => &TIMESTAMP,
        19 => &Header { name: "md5sig", fields: &[KIND, LENGTH] },
        30 => &Header { name: "mptcp", fields: &[KIND, LENGTH, ("subtype", 16, 4, Number)] },
        34 => &Header { name: "fastopen", fields: &[KIND, LENGTH] },
        _ => return None,
    })
}

const KIND: Field = ("kind", 0, 8, Number);
const LENGTH: Field = ("length", 8, 8, Number);

const SACK: Header = Header {
    name: "sack",
    fields: &[KIND, LENGTH, ("left", 16, 32, Number), ("right", 48, 32, Number)],
};

/// Further blocks of the option.
pub(super) static SACKS: [Header; 3] = [
    Header { name: "sack1", fields: &[("left", 80, 32, Number), ("right", 112, 32, Number)] },
    Header { name: "sack2", fields: &[("left", 144, 32, Number), ("right", 176, 32, Number)] },
    Header { name: "sack3", fields: &[("left", 208, 32, Number), ("right", 240, 32, Number)] },
];

const TIMESTAMP: Header = Header {
    name: "timestamp",
    fields: &[KIND, LENGTH, ("tsval", 16, 32, Number), ("tsecr", 48, 32, Number)],
};

/// Returns the option of IPv4 with this number.
pub(super) fn ip_option(kind: u8) -> Option<&'static Header> {
    const SOURCE_ROUTE: &[Field] = &[
        ("type", 0, 8, Number),
        ("length", 8, 8, Number),
        ("ptr", 16, 8, Number),
        ("addr", 24, 32, Number),
    ];
    Some(match kind {
        7 => &Header { name: "rr", fields: SOURCE_ROUTE },
        131 => &Header { name: "lsrr", fields: SOURCE_ROUTE },
        137 => &Header { name: "ssrr", fields: SOURCE_ROUTE },
        148 => &Header {
            name: "ra",
            fields: &[("type", 0, 8, Number), ("length", 8, 8, Number), ("value", 16, 16, Number)],
        },
        _ => return None,
    })
}

/// Returns the chunk of SCTP with this number.
pub(super) fn sctp_chunk(kind: u8) -> Option<&'static Header> {
    const TYPE: Field = ("type", 0, 8, Number);
    const FLAGS: Field = ("flags", 8, 8, Number);
    const CHUNK_LENGTH: Field = ("length", 16, 16, Number);
    const INIT: &[Field] = &[
        TYPE,
        FLAGS,
        CHUNK_LENGTH,
        ("init-tag", 32, 32, Number),
        ("a-rwnd", 64, 32, Number),
        ("num-outbound-streams", 96, 16, Number),
        ("num-inbound-streams", 112, 16, Number),
        ("initial-tsn", 128, 32, Number),
    ];
    Some(match kind {
        0 => &Header {
            name: "data",
            fields: &[
                TYPE,
                FLAGS,
                CHUNK_LENGTH,
                ("tsn", 32, 32, Number),
                ("stream", 64, 16, Number),
                ("ssn", 80, 16, Number),
                ("ppid", 96, 32, Number),
            ],
        },
        1 => &Header { name: "init", fields: INIT },
        2 => &Header { name: "init-ack", fields: INIT },
        3 => &Header {
            name: "sack",
            fields: &[
                TYPE,
                FLAGS,
                CHUNK_LENGTH,
                ("cum-tsn-ack", 32, 32, Number),
                ("a-rwnd", 64, 32, Number),
                ("num-gap-ack-blocks", 96, 16, Number),
                ("num-dup-tsns", 112, 16, Number),
            ],
        },
        4 => &Header { name: "heartbeat", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        5 => &Header { name: "heartbeat-ack", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        6 => &Header { name: "abort", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        7 => &Header {
            name: "shutdown",
            fields: &[TYPE, FLAGS, CHUNK_LENGTH, ("cum-tsn-ack", 32, 32, Number)],
        },
        8 => &Header { name: "shutdown-ack", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        9 => &Header { name: "error", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        10 => &Header { name: "cookie-echo", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        11 => &Header { name: "cookie-ack", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        12 => &Header {
            name: "ecne",
            fields: &[TYPE, FLAGS, CHUNK_LENGTH, ("lowest-tsn", 32, 32, Number)],
        },
        13 => &Header {
            name: "cwr",
            fields: &[TYPE, FLAGS, CHUNK_LENGTH, ("lowest-tsn", 32, 32, Number)],
        },
        14 => &Header { name: "shutdown-complete", fields: &[TYPE, FLAGS, CHUNK_LENGTH] },
        _ => return None,
    })
}
