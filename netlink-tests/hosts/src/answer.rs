//! The outcome of a probe: the server that answered and the source it saw, or the failure.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

/// The outcome of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A server of this name answered, and saw the probe come from this address and port.
    From {
        /// The name that the server was given.
        server: String,
        /// The probe's source as the server saw it.
        seen: SocketAddr,
    },
    /// An ICMP echo reply came.
    Echoed,
    /// A TCP reset, or ICMP "port unreachable".
    Refused,
    /// Nothing came within [`crate::PATIENCE`], or [`crate::SILENCE`] from a hasty host.
    Silent,
    /// Another ICMP error, or no route.
    Unreachable(Errno),
}

impl Answer {
    /// The server that answered.
    ///
    /// # Panics
    /// When none did.
    #[must_use]
    #[track_caller]
    pub fn server(&self) -> &str {
        self.parts().0
    }

    /// The probe's source address as the server saw it.
    ///
    /// # Panics
    /// When no server answered.
    #[must_use]
    #[track_caller]
    pub fn source(&self) -> IpAddr {
        self.parts().1.ip()
    }

    /// The probe's source port as the server saw it.
    ///
    /// # Panics
    /// When no server answered.
    #[must_use]
    #[track_caller]
    pub fn source_port(&self) -> u16 {
        self.parts().1.port()
    }

    #[track_caller]
    fn parts(&self) -> (&str, SocketAddr) {
        match self {
            Self::From { server, seen } => (server, *seen),
            Self::Echoed | Self::Refused | Self::Silent | Self::Unreachable(_) => {
                panic!("no server answered: {self:?}")
            }
        }
    }

    /// The text that `server` sends to `peer`.
    pub(crate) fn text(server: &str, peer: SocketAddr) -> String {
        let ip = peer.ip().to_canonical();
        format!("{server} {}\n", SocketAddr::new(ip, peer.port()))
    }

    /// Parses the result of [`Self::text`]; any other text counts as silence.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let parse = || {
            let (server, seen) = str::from_utf8(text).ok()?.trim_end().rsplit_once(' ')?;
            Some(Self::From { server: server.to_owned(), seen: seen.parse().ok()? })
        };
        parse().unwrap_or(Self::Silent)
    }

    /// The outcome that a socket error means.
    ///
    /// # Panics
    /// On an error that no packet can cause: a mistake of the test.
    #[track_caller]
    pub(crate) fn from_error(error: &io::Error) -> Self {
        if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) {
            return Self::Silent;
        }
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ECONNREFUSED | Errno::ECONNRESET) => Self::Refused,
            // The packet was dropped in our own output hook.
            Some(Errno::EPERM) => Self::Silent,
            Some(
                errno @ (Errno::EHOSTUNREACH
                | Errno::ENETUNREACH
                | Errno::EACCES
                | Errno::EINVAL
                | Errno::ENOPROTOOPT
                | Errno::EPROTO),
            ) => Self::Unreachable(errno),
            _ => panic!("the probe itself failed: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_peer_of_a_dual_stack_socket_gets_its_ipv4_address() {
        let text = Answer::text("a", "[::ffff:10.0.0.1]:99".parse().unwrap());
        assert_eq!(text, "a 10.0.0.1:99\n");
        assert_eq!(Answer::parse(text.as_bytes()).source_port(), 99);
    }

    #[test]
    fn a_server_name_may_hold_spaces() {
        let text = Answer::text("pod a", "[fd00::1]:99".parse().unwrap());
        assert_eq!(Answer::parse(text.as_bytes()).server(), "pod a");
    }
}
