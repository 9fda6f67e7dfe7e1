//! One try: a new connection, or a datagram, to the ClusterIP from a source port of its own.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use super::endpoint::{ANSWER, Which, read};
use super::ports::Ports;
use super::settings::Protocol;

/// A try without an outcome yet.
#[derive(Debug)]
pub(super) struct Attempt {
    socket: Socket,
    /// Start time, since the start of the run.
    pub(super) begun: Duration,
}

/// Outcome of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TryOutcome {
    /// An endpoint was reached, at this time since the start of the run.
    Reached(Which, Duration),
    /// The try failed.
    Failed(Failure),
}

/// Kind of failure of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A RST, or ICMP port unreachable.
    Refused,
    /// Another ICMP message, no route, or a local rule that drops it.
    Unreachable,
    /// No answer in time.
    Lost,
    /// Anything else, such as an answer of another program.
    Other,
}

/// Result of starting a try.
#[derive(Debug)]
pub(super) enum Begun {
    /// The try has no outcome yet.
    Open(Attempt),
    /// The try failed at once.
    Failed(Failure),
    /// No source port is free.
    NoPort,
}

/// Most source ports that are tried if others are in use.
const MAX_PORTS: usize = 100;

impl Attempt {
    /// Starts a try at this time.
    ///
    /// # Errors
    /// The system failed to create a socket.
    pub(super) fn begin(
        (service, protocol): (SocketAddr, Protocol),
        ports: &mut Ports,
        now: Duration,
    ) -> io::Result<Begun> {
        let kind = match protocol {
            Protocol::Tcp => Type::STREAM,
            Protocol::Udp => Type::DGRAM,
        };
        let socket = Socket::new(Domain::for_address(service), kind.nonblocking(), None)?;
        if protocol == Protocol::Tcp {
            // Closing resets the connection, so neither side keeps it.
            socket.set_linger(Some(Duration::ZERO))?;
        }
        if !bind(&socket, service, || ports.take(now))? {
            return Ok(Begun::NoPort);
        }
        let sent = socket.connect(&service.into()).or_else(unless_in_progress);
        let sent = match protocol {
            Protocol::Tcp => sent,
            Protocol::Udp => sent.and_then(|()| socket.send(b"?").map(drop)),
        };
        Ok(match sent {
            Ok(()) => Begun::Open(Self { socket, begun: now }),
            Err(error) => Begun::Failed(failure(&error)),
        })
    }

    /// Returns the outcome, if any. Does not block.
    pub(super) fn outcome(&self) -> Option<TryOutcome> {
        let mut buffer = [0; ANSWER];
        match (&self.socket).read(&mut buffer) {
            Ok(length) => Some(match buffer.get(..length).and_then(read) {
                Some((which, at)) => TryOutcome::Reached(which, at),
                None => TryOutcome::Failed(Failure::Other),
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(TryOutcome::Failed(failure(&error))),
        }
    }
}

impl AsFd for Attempt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Binds a socket to the next free source port. Returns false if there is none.
fn bind(
    socket: &Socket,
    service: SocketAddr,
    mut next_port: impl FnMut() -> Option<u16>,
) -> io::Result<bool> {
    let any: IpAddr = match service {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    for _ in 0..MAX_PORTS {
        let Some(port) = next_port() else { return Ok(false) };
        match socket.bind(&SocketAddr::new(any, port).into()) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn unless_in_progress(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) { Ok(()) } else { Err(error) }
}

fn failure(error: &io::Error) -> Failure {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => Failure::Refused,
        // EPERM: a rule of hook output dropped the packet.
        Some(Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::EACCES | Errno::EPERM) => {
            Failure::Unreachable
        }
        Some(Errno::ETIMEDOUT) => Failure::Lost,
        _ => Failure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_distinguished_by_their_error_number() {
        let of = |errno: Errno| failure(&io::Error::from(errno));
        assert_eq!(of(Errno::ECONNREFUSED), Failure::Refused);
        assert_eq!(of(Errno::EPERM), Failure::Unreachable);
        assert_eq!(of(Errno::ETIMEDOUT), Failure::Lost);
        assert_eq!(of(Errno::ECONNRESET), Failure::Other);
    }
}
