//! Transport protocols.

use std::fmt;

/// A transport protocol that services can use; the values are IANA protocol numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// Transmission Control Protocol.
    Tcp = 6,
    /// User Datagram Protocol.
    Udp = 17,
    /// Stream Control Transmission Protocol.
    Sctp = 132,
}

impl Protocol {
    /// All protocols of service ports, the most used first.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Returns its place in [`Protocol::ALL`].
    pub(super) fn index(self) -> usize {
        match self {
            Self::Tcp => 0,
            Self::Udp => 1,
            Self::Sctp => 2,
        }
    }

    /// Returns the IANA protocol number, as in the IP header.
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}
