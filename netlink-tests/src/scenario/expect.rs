//! The expected outcome of a row and the probes that check it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Family {
    Ipv4,
    Ipv6,
}

/// The probes of a row.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Protocols.
    pub protocols: &'static [Protocol],
    /// Families.
    pub families: &'static [Family],
}

impl Protocol {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its name in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// Its name in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

impl Scope {
    /// Every protocol in both families.
    pub const ALL: Self = Self { protocols: &Protocol::ALL, families: &Family::ALL };
    /// IPv4 alone.
    pub const IPV4: Self = Self { families: &[Family::Ipv4], ..Self::ALL };
    /// IPv6 alone.
    pub const IPV6: Self = Self { families: &[Family::Ipv6], ..Self::ALL };
    /// TCP alone.
    pub const TCP: Self = Self { protocols: &[Protocol::Tcp], ..Self::ALL };
    /// UDP alone.
    pub const UDP: Self = Self { protocols: &[Protocol::Udp], ..Self::ALL };
    /// SCTP alone.
    pub const SCTP: Self = Self { protocols: &[Protocol::Sctp], ..Self::ALL };
}

/// The expected outcome for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Each of these servers answers some of the connections, and no other server does.
    Answers {
        /// The servers' names.
        servers: BTreeSet<String>,
        /// The servers see the node's address instead of the client's.
        masqueraded: bool,
    },
    /// Every connection is refused at once.
    Refused,
    /// Silence.
    Silent,
    /// The packets come to a host that does not serve them. For SCTP that is silence or "protocol
    /// unreachable", because the kernel may lack it.
    Closed,
}

/// These servers (names between spaces) answer and see the client's own address.
#[must_use]
pub fn keeps_source(servers: &str) -> Expect {
    answers(servers, false)
}

/// These servers (names between spaces) answer and see the node's address.
#[must_use]
pub fn masquerades(servers: &str) -> Expect {
    answers(servers, true)
}

fn answers(servers: &str, masqueraded: bool) -> Expect {
    Expect::Answers {
        servers: servers.split_whitespace().map(str::to_owned).collect(),
        masqueraded,
    }
}

/// An address and port as written in rows, or its IPv6 twin.
#[track_caller]
pub(crate) fn destination(to: &str, family: Family) -> SocketAddr {
    let to: SocketAddrV4 = to.parse().unwrap_or_else(|_| panic!("not an IPv4 address: {to}"));
    SocketAddr::new(family.of(*to.ip()), to.port())
}
