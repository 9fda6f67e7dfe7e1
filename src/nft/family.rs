//! The address families.

use std::net::IpAddr;

/// An address family; the values are those of `AF_*` and `NFPROTO_*`.
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
