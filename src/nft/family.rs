//! The families of addresses and of tables.

use std::fmt;
use std::net::IpAddr;

/// The family of an IP address; the values are those of `AF_*` and `NFPROTO_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    Ip = 2,
    /// IPv6.
    Ip6 = 10,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ip, Self::Ip6];

    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ip,
            IpAddr::V6(_) => Self::Ip6,
        }
    }

    /// Its place in [`Family::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Self::Ip => 0,
            Self::Ip6 => 1,
        }
    }

    /// `nfgen_family` of messages about this family's objects.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The name in the Kubernetes API, `IPv4` or `IPv6`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ip => "IPv4",
            Self::Ip6 => "IPv6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        })
    }
}

/// The family of a table of any program; the values are those of `NFPROTO_*`.
///
/// ```
/// use nft_netlink::{Family, TableFamily};
///
/// assert_eq!(TableFamily::from(Family::Ip6), TableFamily::Ip6);
/// assert_eq!(TableFamily::of(1), Some(TableFamily::Inet));
/// assert_eq!(TableFamily::Netdev.to_string(), "netdev");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TableFamily {
    /// IPv4.
    Ip = 2,
    /// IPv6.
    Ip6 = 10,
    /// IPv4 and IPv6.
    Inet = 1,
    /// ARP.
    Arp = 3,
    /// Frames of bridges.
    Bridge = 7,
    /// Frames at the ingress and egress of devices.
    Netdev = 5,
}

impl TableFamily {
    /// All, in the order of nft(8).
    pub const ALL: [Self; 6] =
        [Self::Ip, Self::Ip6, Self::Inet, Self::Arp, Self::Bridge, Self::Netdev];

    /// Returns the family with a number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.number() == number)
    }

    /// The family of the addresses in this family's packets; `None` if there are several or none.
    pub const fn of_addresses(self) -> Option<Family> {
        match self {
            Self::Ip => Some(Family::Ip),
            Self::Ip6 => Some(Family::Ip6),
            Self::Inet | Self::Arp | Self::Bridge | Self::Netdev => None,
        }
    }

    /// `nfgen_family` of messages about this family's objects.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The keyword of nft(8).
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
            Self::Arp => "arp",
            Self::Bridge => "bridge",
            Self::Netdev => "netdev",
        }
    }

    /// The word of nft(8) for a hook of this family's base chains.
    pub const fn hook(self, number: u32) -> &'static str {
        match (self, number) {
            (Self::Arp, 0) => "input",
            (Self::Arp, 1) => "output",
            (Self::Netdev, 0) => "ingress",
            (Self::Netdev, 1) => "egress",
            (_, 0) => "prerouting",
            (_, 1) => "input",
            (_, 2) => "forward",
            (_, 3) => "output",
            (_, 4) => "postrouting",
            (_, 5) => "ingress",
            (_, _) => "[hook]",
        }
    }
}

impl From<Family> for TableFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::Ip => Self::Ip,
            Family::Ip6 => Self::Ip6,
        }
    }
}

impl fmt::Display for TableFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.keyword())
    }
}
