//! IP addresses and ranges in every form that the Kubernetes API has accepted.
//!
//! As in Go's former parser, leading zeros are decimal (`192.168.099.022` is 192.168.99.22), and an
//! IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) is IPv4. The results are canonical.

use std::net::{IpAddr, Ipv4Addr};

use engine::routing::ranges::without_leading_zeros;
use ipnet::IpNet;

/// Parses an address. Returns `None` if it is not one. Addresses with zones (`fe80::1%eth0`) are
/// not accepted.
pub(super) fn parse_ip(text: &str) -> Option<IpAddr> {
    let strict = text.parse::<IpAddr>().ok();
    strict.or_else(|| parse_sloppy(text)).map(|address| address.to_canonical())
}

/// Parses an address of a service, an endpoint or a node; the error describes what is wrong.
///
/// The API server also rejects most unusable addresses (`ValidateNonSpecialIP`), but not in a
/// status.
pub(super) fn parse_usable_ip(text: &str) -> Result<IpAddr, String> {
    let address = parse_ip(text).ok_or_else(|| format!("\"{text}\" is not an IP address"))?;
    usable(address)
}

/// Returns the address, unless its meaning depends on the node or the link; the error states why.
pub(super) fn usable(address: IpAddr) -> Result<IpAddr, String> {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let kinds = [
        (address.is_unspecified(), "the unspecified address"),
        (address.is_loopback(), "a loopback address"),
        (address.is_multicast(), "a multicast address"),
        (address == Ipv4Addr::BROADCAST, "the broadcast address"),
        (is_link_local, "a link-local address"),
    ];
    match kinds.into_iter().find(|(is_it, _)| *is_it) {
        Some((_, kind)) => Err(format!("{address} is {kind}, which no service can use")),
        None => Ok(address),
    }
}

/// Parses `address/length` and sets the host bits to zero.
pub(super) fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    // `str::parse` also accepts `+8`.
    let length = length.parse().ok().filter(|_| !length.starts_with('+'))?;
    let plain = address.parse().ok().or_else(|| parse_sloppy(address))?;
    let range = match (plain, plain.to_canonical()) {
        (IpAddr::V6(_), IpAddr::V4(mapped)) if length >= 96 => {
            IpNet::new(mapped.into(), length - 96)
        }
        (IpAddr::V4(_) | IpAddr::V6(_), _) => IpNet::new(plain, length),
    };
    range.ok().map(|range| range.trunc())
}

fn parse_sloppy(text: &str) -> Option<IpAddr> {
    without_leading_zeros(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_of_addresses_are_ignored() {
        let cases = [
            ("10.0.0.1", Some("10.0.0.1")),
            ("192.168.099.022", Some("192.168.99.22")),
            ("0000010.0.0.1", Some("10.0.0.1")),
            ("10.0.0.256", None),
            ("10.0.0.+1", None),
            ("10.0.0", None),
            ("10.0.0.", None),
            ("10.0.0.1.2", None),
            ("::1", Some("::1")),
            ("FD00:0:0:0:0:0:0:00001", Some("fd00::1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("::ffff:010.000.0.1", Some("10.0.0.1")),
            ("fe80::1%eth0", None),
            (":::", None),
            ("é:1", None),
            ("None", None),
            ("", None),
            (" 10.0.0.1", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(parse_ip(text), expected, "{text:?}");
        }
    }

    #[test]
    fn loopback_link_local_multicast_and_unspecified_addresses_are_refused() {
        let special = "127.0.0.1 127.9.9.9 0.0.0.0 169.254.1.1 224.0.0.1 239.1.1.1 255.255.255.255 \
                       ::1 :: fe80::1 febf::1 ff02::1 ::ffff:127.0.0.1";
        for text in special.split_whitespace() {
            let error = parse_usable_ip(text).unwrap_err();
            assert!(error.contains("which no service can use"), "{error}");
        }
        for text in "10.0.0.1 128.0.0.1 169.253.0.1 fec0::1 fd00::1 2001:db8::1".split_whitespace()
        {
            assert_eq!(parse_usable_ip(text), Ok(text.parse().unwrap()));
        }
        assert_eq!(parse_usable_ip("x"), Err("\"x\" is not an IP address".to_owned()));
    }

    #[test]
    fn host_bits_are_cleared_and_invalid_ranges_are_refused() {
        let cases = [
            ("10.96.0.0/16", Some("10.96.0.0/16")),
            ("010.096.1.2/16", Some("10.96.0.0/16")),
            ("1.2.3.4/0", Some("0.0.0.0/0")),
            ("1.2.3.4/32", Some("1.2.3.4/32")),
            ("1.2.3.4/33", None),
            ("fd00::1/64", Some("fd00::/64")),
            ("fd00::1/0", Some("::/0")),
            ("fd00::1/128", Some("fd00::1/128")),
            ("fd00::1/129", None),
            ("::ffff:10.0.0.1/104", Some("10.0.0.0/8")),
            ("::ffff:10.0.0.1/95", Some("::fffe:0:0/95")),
            ("::ffff:10.0.0.1/129", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/", None),
            ("10.0.0.0", None),
            ("/8", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(parse_cidr(text), expected, "{text:?}");
        }
    }
}
