//! The forms in which nft(8) prints values.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::names::*;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A decimal number.
    Number,
    /// A number with at least this number of hexadecimal digits.
    Hex(usize),
    /// A word, or a number where there is none.
    Word(Words),
    /// A word, or a hexadecimal number where there is none.
    WordOrHex(Words, usize),
    /// A word in quotes, or a number where there is none.
    Quoted(Words),
    /// Bits, each with a word.
    Bits(Words),
    /// `1` or `0`.
    Flag,
    Ipv4,
    Ipv6,
    /// The address of an Ethernet interface.
    Ether,
    /// The name of an interface, with a final `*` for all that begin so.
    Name,
    /// The index of an interface.
    Interface,
    /// A packet priority.
    Class,
    /// Seconds, from milliseconds.
    Seconds,
    /// Nanoseconds since 1970.
    Date,
    /// Seconds since midnight, UTC.
    Hour,
    /// A weekday in quotes.
    Day,
    /// One bit, by its place.
    Label,
}

/// A type of keys and data: nft(8)'s number and word, the form of values, whether they are in host
/// byte order, and their length in bytes, 0 if it varies.
pub(crate) type KeyType = (u32, &'static str, Kind, bool, usize);

/// Returns the type of nft(8) with a number.
pub(crate) fn key_type(number: u32) -> Option<&'static KeyType> {
    KEY_TYPES.iter().find(|(known, ..)| *known == number)
}

const HOST: bool = true;
const NETWORK: bool = false;

#[rustfmt::skip]
pub(super) static KEY_TYPES: &[KeyType] = {
    use Kind::*;
    &[
        (2, "nf_proto", Word(FAMILIES), NETWORK, 1), (4, "integer", Number, NETWORK, 0),
        (5, "string", Number, NETWORK, 0), (6, "ll_addr", Ether, NETWORK, 0),
        (7, "ipv4_addr", Ipv4, NETWORK, 4), (8, "ipv6_addr", Ipv6, NETWORK, 16),
        (9, "ether_addr", Ether, NETWORK, 6),
        (10, "ether_type", WordOrHex(ETHER_TYPES, 4), NETWORK, 2),
        (11, "arp_op", Word(ARP_OPERATIONS), NETWORK, 2),
        (12, "inet_proto", Word(PROTOCOLS), NETWORK, 1), (13, "inet_service", Number, NETWORK, 2),
        (14, "icmp_type", Word(ICMP_TYPES), NETWORK, 1),
        (15, "tcp_flag", Bits(TCP_FLAGS), NETWORK, 1),
        (16, "dccp_pkttype", Word(DCCP_TYPES), NETWORK, 1),
        (17, "mh_type", Word(MH_TYPES), NETWORK, 1), (18, "time", Seconds, HOST, 4),
        (19, "mark", Hex(8), HOST, 4), (20, "iface_index", Interface, HOST, 4),
        (21, "iface_type", Word(LINK_TYPES), HOST, 2), (22, "realm", Quoted(REALMS), HOST, 4),
        (23, "classid", Class, HOST, 4), (24, "uid", Number, HOST, 4), (25, "gid", Number, HOST, 4),
        (26, "ct_state", Bits(CT_STATES), HOST, 4), (27, "ct_dir", Word(DIRECTIONS), HOST, 1),
        (28, "ct_status", Bits(CT_STATUSES), HOST, 4),
        (29, "icmpv6_type", Word(ICMPV6_TYPES), NETWORK, 1), (30, "ct_label", Number, NETWORK, 16),
        (31, "pkt_type", Word(PACKET_TYPES), HOST, 1), (32, "icmp_code", Number, NETWORK, 1),
        (33, "icmpv6_code", Number, NETWORK, 1), (34, "icmpx_code", Number, NETWORK, 1),
        (35, "devgroup", Quoted(GROUPS), HOST, 4), (36, "dscp", WordOrHex(DSCP, 2), NETWORK, 1),
        (37, "ecn", Word(ECN), NETWORK, 1), (38, "fib_addrtype", Word(ADDRESS_TYPES), HOST, 4),
        (39, "boolean", Number, NETWORK, 1), (40, "ct_event", Bits(CT_EVENTS), HOST, 4),
        (41, "ifname", Name, NETWORK, 16), (42, "igmp_type", Word(IGMP_TYPES), NETWORK, 1),
        (43, "time", Number, NETWORK, 8), (44, "hour", Number, NETWORK, 4),
        (45, "day", Number, NETWORK, 1), (46, "cgroupsv2", Number, NETWORK, 8),
    ]
};

/// Returns the name of an interface.
pub(crate) type Interfaces<'a> = &'a dyn Fn(u32) -> Option<String>;

impl Kind {
    /// A transport protocol.
    pub(crate) const PROTOCOL: Self = Self::Word(PROTOCOLS);

    /// Returns whether a range of these values can be printed as a prefix.
    pub(super) fn has_prefixes(self) -> bool {
        matches!(self, Self::Ipv4 | Self::Ipv6)
    }

    /// Returns the form of the ends of a range, which have no words.
    pub(super) fn in_range(self) -> Self {
        if let Self::WordOrHex(_, digits) = self {
            return Self::Hex(digits);
        }
        let has_words = matches!(self, Self::Word(_) | Self::Quoted(_) | Self::Day);
        if has_words { Self::Number } else { self }
    }

    /// Returns whether `==` is printed.
    pub(super) fn is_bits(self) -> bool {
        matches!(self, Self::Bits(_))
    }

    /// Returns a value as printed, with its bytes from the highest to the lowest.
    pub(super) fn text(self, value: &[u8], interfaces: Interfaces<'_>) -> String {
        let number = number(value);
        match self {
            Self::Number | Self::Flag => number.to_string(),
            Self::Hex(digits) => format!("{number:#0width$x}", width = digits + 2),
            Self::Word(words) => found(words, number).unwrap_or_else(|| number.to_string()),
            Self::WordOrHex(words, digits) => {
                found(words, number).unwrap_or_else(|| Self::Hex(digits).text(value, interfaces))
            }
            Self::Quoted(words) => match found(words, number) {
                Some(word) => format!("\"{word}\""),
                None => number.to_string(),
            },
            Self::Bits(words) => bits(words, number, ","),
            Self::Ipv4 => match <[u8; 4]>::try_from(value) {
                Ok(octets) => Ipv4Addr::from(octets).to_string(),
                Err(_) => hexadecimal(value),
            },
            Self::Ipv6 => match <[u8; 16]>::try_from(value) {
                Ok(octets) => Ipv6Addr::from(octets).to_string(),
                Err(_) => hexadecimal(value),
            },
            Self::Ether => ether(value),
            Self::Name => name(value),
            Self::Interface => {
                let index = u32::try_from(number).unwrap_or_default();
                interfaces(index).map_or_else(|| index.to_string(), |name| format!("\"{name}\""))
            }
            Self::Class => class(number),
            Self::Seconds => milliseconds(number),
            Self::Date => format!("\"{}\"", date(number)),
            Self::Hour => hour(number),
            Self::Label => number.trailing_zeros().to_string(),
            Self::Day => match found(DAYS, number) {
                Some(day) => format!("\"{day}\""),
                None => number.to_string(),
            },
        }
    }
}

fn found(words: Words, number: u128) -> Option<String> {
    word(words, u64::try_from(number).ok()?).map(str::to_owned)
}

/// Returns the number of these bytes, the highest one first; of more than 16, the lowest ones.
pub(super) fn number(value: &[u8]) -> u128 {
    value.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Returns the words of the bits that are set.
pub(super) fn bits(words: Words, mut number: u128, separator: &str) -> String {
    let mut names = Vec::new();
    for (bit, word) in words {
        if number & u128::from(*bit) != 0 {
            names.push((*word).to_owned());
            number &= !u128::from(*bit);
        }
    }
    if number != 0 || names.is_empty() {
        names.push(format!("{number:#x}"));
    }
    names.join(separator)
}

pub(super) fn hexadecimal(value: &[u8]) -> String {
    let digits = value.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}

fn ether(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Returns the name whose beginning all names of this range share, as `"eth*"`.
pub(super) fn beginning(first: &[u8], last: &[u8]) -> Option<String> {
    let end = first.iter().zip(last).position(|(first, last)| first != last)?;
    let is_whole = first.iter().skip(end).all(|byte| *byte == 0)
        && last.iter().skip(end).all(|byte| *byte == u8::MAX);
    is_whole.then(|| name(first.get(..end).unwrap_or_default()))
}

/// A name that is not terminated is the beginning of names.
fn name(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    let text = String::from_utf8_lossy(value.get(..end.unwrap_or(value.len())).unwrap_or_default());
    match end {
        Some(_) => match text.strip_suffix('*') {
            Some(start) => format!("\"{start}\\*\""),
            None => format!("\"{text}\""),
        },
        None => format!("\"{text}*\""),
    }
}

fn class(number: u128) -> String {
    match number {
        0 => "none".to_owned(),
        0xffff_ffff => "root".to_owned(),
        _ => format!("{:x}:{:x}", number >> 16, number & 0xffff),
    }
}

/// Seconds and milliseconds, without larger units unless they are whole.
fn milliseconds(number: u128) -> String {
    match number % 1000 {
        0 => format!("{}s", number / 1000),
        rest if number < 1000 => format!("{rest}ms"),
        rest => format!("{}s{rest}ms", number / 1000),
    }
}

fn hour(seconds: u128) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match seconds % 60 {
        0 => format!("\"{hours:02}:{minutes:02}\""),
        rest => format!("\"{hours:02}:{minutes:02}:{rest:02}\""),
    }
}

/// The civil date of a number of nanoseconds since 1970 in UTC, after the algorithm of
/// `days_from_civil` with years that begin in March.
fn date(nanoseconds: u128) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{of_month:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: Kind, value: &[u8]) -> String {
        kind.text(value, &|index| (index == 1).then(|| "lo".to_owned()))
    }

    #[test]
    fn values_are_printed_as_in_nft() {
        assert_eq!(text(Kind::Hex(8), &[0, 0, 0x40, 0]), "0x00004000");
        assert_eq!(text(Kind::WordOrHex(DSCP, 2), &[0x2e]), "ef");
        assert_eq!(text(Kind::WordOrHex(DSCP, 2), &[4]), "0x04");
        assert_eq!(text(Kind::Name, b"dummy0\0\0"), "\"dummy0\"");
        assert_eq!(text(Kind::Name, b"dummy"), "\"dummy*\"");
        assert_eq!(text(Kind::Name, b"dum*\0"), "\"dum\\*\"");
        assert_eq!(text(Kind::Interface, &[0, 0, 0, 1]), "\"lo\"");
        assert_eq!(text(Kind::Interface, &[0, 0, 0, 9]), "9");
        assert_eq!(text(Kind::Class, &[0xaa, 0xda, 0, 0]), "aada:0");
        assert_eq!(text(Kind::Bits(TCP_FLAGS), &[0x12]), "syn,ack");
        assert_eq!(text(Kind::Ether, &[0, 15, 84, 12, 17, 4]), "00:0f:54:0c:11:04");
    }

    #[test]
    fn times_are_printed_in_utc() {
        let date = 12_258_434u64 * 1_000_000_000;
        assert_eq!(text(Kind::Date, &date.to_be_bytes()), "\"1970-05-22 21:07:14\"");
        let leap = 951_782_400u64 * 1_000_000_000;
        assert_eq!(text(Kind::Date, &leap.to_be_bytes()), "\"2000-02-29 00:00:00\"");
        assert_eq!(text(Kind::Hour, &61_200u32.to_be_bytes()), "\"17:00\"");
    }
}
