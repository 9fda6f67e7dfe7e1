//! Keywords of nft(8) for operands of comparisons.

use super::key;

/// Returns a protocol, by name where nft(8) has one.
pub(super) fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "ipv6-icmp".to_owned(),
        132 => "sctp".to_owned(),
        number => number.to_string(),
    }
}

/// Returns the names of the bits that are set.
pub(super) fn bits(number: u32, names: &[(u32, &str)]) -> String {
    let names: Vec<_> =
        names.iter().filter(|(bit, _)| number & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { format!("{number:#x}") } else { names.join(",") }
}

pub(super) const CT_STATES: &[(u32, &str)] = &[
    (key::CT_STATE_INVALID, "invalid"),
    (0x2, "established"),
    (0x4, "related"),
    (key::CT_STATE_NEW, "new"),
    (key::CT_STATE_UNTRACKED, "untracked"),
];

pub(super) const CT_STATUSES: &[(u32, &str)] = &[
    (0x1, "expected"),
    (0x2, "seen-reply"),
    (0x4, "assured"),
    (0x8, "confirmed"),
    (key::CT_STATUS_SNAT, "snat"),
    (key::CT_STATUS_DNAT, "dnat"),
    (0x200, "dying"),
];

pub(super) const ADDRESS_TYPES: &[(u32, &str)] = &[
    (0, "unspec"),
    (key::ROUTE_UNICAST, "unicast"),
    (key::ROUTE_LOCAL, "local"),
    (key::ROUTE_BROADCAST, "broadcast"),
    (4, "anycast"),
    (key::ROUTE_MULTICAST, "multicast"),
    (6, "blackhole"),
    (7, "unreachable"),
    (8, "prohibit"),
];
