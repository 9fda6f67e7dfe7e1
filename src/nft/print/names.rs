//! Words of nft(8) for numbers.

/// Numbers with their words, the preferred word first.
pub(crate) type Words = &'static [(u64, &'static str)];

pub(super) const ETHER_TYPES: Words =
    &[(0x0800, "ip"), (0x0806, "arp"), (0x86dd, "ip6"), (0x8100, "8021q"), (0x88a8, "8021ad")];

pub(super) const FAMILIES: Words = &[(2, "ipv4"), (10, "ipv6")];

/// Those of `/etc/protocols` of Debian.
pub(super) const PROTOCOLS: Words = &[
    (0, "ip"), (1, "icmp"), (2, "igmp"), (3, "ggp"), (4, "ipencap"), (5, "st"), (6, "tcp"),
    (8, "egp"), (9, "igp"), (12, "pup"), (17, "udp"), (20, "hmp"), (22, "xns-idp"), (27, "rdp"),
    (29, "iso-tp4"), (33, "dccp"), (36, "xtp"), (37, "ddp"), (38, "idpr-cmtp"), (41, "ipv6"),
    (43, "ipv6-route"), (44, "ipv6-frag"), (45, "idrp"), (46, "rsvp"), (47, "gre"), (50, "esp"),
    (51, "ah"), (57, "skip"), (58, "ipv6-icmp"), (59, "ipv6-nonxt"), (60, "ipv6-opts"),
    (73, "rspf"), (81, "vmtp"), (88, "eigrp"), (89, "ospf"), (93, "ax.25"), (94, "ipip"),
    (97, "etherip"), (98, "encap"), (103, "pim"), (108, "ipcomp"), (112, "vrrp"), (115, "l2tp"),
    (124, "isis"), (132, "sctp"), (133, "fc"), (135, "mobility-header"), (136, "udplite"),
    (137, "mpls-in-ip"), (138, "manet"), (139, "hip"), (140, "shim6"), (141, "wesp"), (142, "rohc"),
    (143, "ethernet"),
];

pub(super) const ICMP_TYPES: Words = &[
    (0, "echo-reply"), (3, "destination-unreachable"), (4, "source-quench"), (5, "redirect"),
    (8, "echo-request"), (9, "router-advertisement"), (10, "router-solicitation"),
    (11, "time-exceeded"), (12, "parameter-problem"), (13, "timestamp-request"),
    (14, "timestamp-reply"), (15, "info-request"), (16, "info-reply"), (17, "address-mask-request"),
    (18, "address-mask-reply"),
];

pub(super) const ICMP_CODES: Words = &[
    (0, "net-unreachable"), (1, "host-unreachable"), (2, "prot-unreachable"),
    (3, "port-unreachable"), (4, "frag-needed"), (9, "net-prohibited"), (10, "host-prohibited"),
    (13, "admin-prohibited"),
];

pub(super) const ICMPV6_TYPES: Words = &[
    (1, "destination-unreachable"), (2, "packet-too-big"), (3, "time-exceeded"),
    (4, "parameter-problem"), (128, "echo-request"), (129, "echo-reply"),
    (130, "mld-listener-query"), (131, "mld-listener-report"), (132, "mld-listener-done"),
    (133, "nd-router-solicit"), (134, "nd-router-advert"), (135, "nd-neighbor-solicit"),
    (136, "nd-neighbor-advert"), (137, "nd-redirect"), (138, "router-renumbering"),
    (141, "ind-neighbor-solicit"), (142, "ind-neighbor-advert"), (143, "mld2-listener-report"),
];

pub(super) const ICMPV6_CODES: Words = &[
    (0, "no-route"), (1, "admin-prohibited"), (3, "addr-unreachable"), (4, "port-unreachable"),
    (5, "policy-fail"), (6, "reject-route"),
];

pub(super) const ICMPX_CODES: Words =
    &[(0, "no-route"), (1, "port-unreachable"), (2, "host-unreachable"), (3, "admin-prohibited")];

pub(super) const DSCP: Words = &[
    (0x00, "cs0"), (0x08, "cs1"), (0x10, "cs2"), (0x18, "cs3"), (0x20, "cs4"), (0x28, "cs5"),
    (0x30, "cs6"), (0x38, "cs7"), (0x01, "lephb"), (0x0a, "af11"), (0x0c, "af12"), (0x0e, "af13"),
    (0x12, "af21"), (0x14, "af22"), (0x16, "af23"), (0x1a, "af31"), (0x1c, "af32"), (0x1e, "af33"),
    (0x22, "af41"), (0x24, "af42"), (0x26, "af43"), (0x2c, "va"), (0x2e, "ef"),
];

pub(super) const ECN: Words = &[(0, "not-ect"), (1, "ect1"), (2, "ect0"), (3, "ce")];

pub(super) const TCP_FLAGS: Words = &[
    (0x01, "fin"), (0x02, "syn"), (0x04, "rst"), (0x08, "psh"), (0x10, "ack"), (0x20, "urg"),
    (0x40, "ecn"), (0x80, "cwr"),
];

pub(super) const CT_STATES: Words = &[
    (0x01, "invalid"), (0x02, "established"), (0x04, "related"), (0x08, "new"), (0x40, "untracked"),
];

pub(super) const CT_STATUSES: Words = &[
    (0x001, "expected"), (0x002, "seen-reply"), (0x004, "assured"), (0x008, "confirmed"),
    (0x010, "snat"), (0x020, "dnat"), (0x200, "dying"),
];

pub(super) const CT_EVENTS: Words = &[
    (0x001, "new"), (0x002, "related"), (0x004, "destroy"), (0x008, "reply"), (0x010, "assured"),
    (0x020, "protoinfo"), (0x040, "helper"), (0x080, "mark"), (0x100, "seqadj"), (0x200, "secmark"),
    (0x400, "label"),
];

pub(super) const DIRECTIONS: Words = &[(0, "original"), (1, "reply")];

pub(super) const DCCP_TYPES: Words = &[
    (0, "request"), (1, "response"), (2, "data"), (3, "ack"), (4, "dataack"), (5, "closereq"),
    (6, "close"), (7, "reset"), (8, "sync"), (9, "syncack"),
];

pub(super) const MH_TYPES: Words = &[
    (0, "binding-refresh-request"), (1, "home-test-init"), (2, "careof-test-init"),
    (3, "home-test"), (4, "careof-test"), (5, "binding-update"), (6, "binding-acknowledgement"),
    (7, "binding-error"), (8, "fast-binding-update"), (9, "fast-binding-acknowledgement"),
    (10, "fast-binding-advertisement"), (11, "experimental-mobility-header"),
    (12, "home-agent-switch-message"),
];

pub(super) const IGMP_TYPES: Words = &[
    (0x11, "membership-query"), (0x12, "membership-report-v1"), (0x16, "membership-report-v2"),
    (0x22, "membership-report-v3"), (0x17, "leave-group"),
];

pub(super) const ARP_OPERATIONS: Words = &[
    (1, "request"), (2, "reply"), (3, "rrequest"), (4, "rreply"), (8, "inrequest"), (9, "inreply"),
    (10, "nak"),
];

pub(super) const ADDRESS_TYPES: Words = &[
    (0, "unspec"), (1, "unicast"), (2, "local"), (3, "broadcast"), (4, "anycast"), (5, "multicast"),
    (6, "blackhole"), (7, "unreachable"), (8, "prohibit"),
];

pub(super) const DAYS: Words = &[
    (0, "Sunday"), (1, "Monday"), (2, "Tuesday"), (3, "Wednesday"), (4, "Thursday"), (5, "Friday"),
    (6, "Saturday"),
];

pub(super) const PACKET_TYPES: Words =
    &[(0, "host"), (1, "broadcast"), (2, "multicast"), (3, "other")];

/// Link types, `ARPHRD_*`.
pub(super) const LINK_TYPES: Words = &[
    (1, "ether"), (0x200, "ppp"), (0x300, "ipip"), (0x301, "ipip6"), (0x304, "loopback"),
    (0x308, "sit"), (0x30a, "ipgre"),
];

pub(super) const BOOLEANS: Words = &[(1, "exists"), (0, "missing")];

/// Groups of interfaces and realms as on Debian.
pub(super) const GROUPS: Words = &[(0, "default")];
pub(super) const REALMS: Words = &[(0, "cosmos")];

pub(super) const LOG_LEVELS: Words = &[
    (0, "emerg"), (1, "alert"), (2, "crit"), (3, "err"), (4, "warn"), (5, "notice"), (6, "info"),
    (7, "debug"), (8, "audit"),
];

/// Returns the word of a number.
pub(super) fn word(words: Words, number: u64) -> Option<&'static str> {
    words.iter().find(|(known, _)| *known == number).map(|(_, word)| *word)
}
