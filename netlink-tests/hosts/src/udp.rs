//! UDP probes: one datagram and one answer, or a flow for several.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::answer::Answer;
use crate::deadline::{SILENCE, stretched};
use crate::namespace::Namespace;
use crate::tcp::bind;

/// A UDP socket that talks to one peer, always from the same port.
#[derive(Debug)]
pub struct Flow {
    socket: UdpSocket,
    connected: Result<(), Answer>,
}

impl Flow {
    /// Opens a flow from `namespace`, from `source` if one is chosen, that waits for each answer
    /// for `limit`. Sends nothing.
    pub(crate) fn open(
        (namespace, limit): (&Namespace, Duration),
        source: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Self {
        let socket = namespace
            .run(|| Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP)));
        let socket = socket.expect("a UDP socket");
        hear_all_errors(&socket, to);
        bind(&socket, source);
        let connected = socket.connect(&to.into()).map_err(|error| Answer::from_error(&error));
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(stretched(limit))).expect("it is not zero");
        Self { socket, connected }
    }

    /// Sends a datagram and waits for the answer.
    pub fn ask(&mut self) -> Answer {
        self.ask_with(b"hello\n")
    }

    /// The same with a datagram of this number of bytes.
    pub fn ask_at_length(&mut self, bytes: usize) -> Answer {
        self.ask_with(&vec![0; bytes])
    }

    /// Sets the TTL or hop limit of what is sent from now on.
    ///
    /// # Panics
    /// When it is 0.
    pub fn set_ttl(&self, ttl: u8) {
        let socket = SockRef::from(&self.socket);
        let is_ipv4 = self.local_addr().is_ipv4();
        let set = if is_ipv4 {
            socket.set_ttl_v4(u32::from(ttl))
        } else {
            socket.set_unicast_hops_v6(u32::from(ttl))
        };
        set.expect("it is not 0");
    }

    fn ask_with(&mut self, datagram: &[u8]) -> Answer {
        if let Err(answer) = &self.connected {
            return answer.clone();
        }
        if let Err(error) = self.socket.send(datagram) {
            let answer = Answer::from_error(&error);
            // Dropped in our own output hook. A reject is reported by `recv`.
            if answer != Answer::Silent {
                return answer;
            }
        }
        let mut bytes = [0; 256];
        match self.socket.recv(&mut bytes) {
            Ok(len) => Answer::parse(&bytes[..len]),
            Err(error) => Answer::from_error(&error),
        }
    }

    /// As [`Self::ask`], but waits for [`SILENCE`] at most: for tests that expect silence now and
    /// an answer later.
    ///
    /// # Panics
    /// Never.
    pub fn ask_hastily(&mut self) -> Answer {
        let usual = self.socket.read_timeout().expect("an open socket");
        self.wait_for(Some(stretched(SILENCE)));
        let answer = self.ask();
        self.wait_for(usual);
        answer
    }

    fn wait_for(&self, limit: Option<Duration>) {
        self.socket.set_read_timeout(limit).expect("it is not zero");
    }

    /// The probe's own address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket")
    }
}

/// Makes every ICMP error an error of `socket`, not only those that the kernel takes for final.
pub(crate) fn hear_all_errors(socket: &Socket, to: SocketAddr) {
    let set = if to.is_ipv4() {
        setsockopt(socket, sockopt::Ipv4RecvErr, &true)
    } else {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true)
    };
    set.expect("Linux 2.2 or later");
}
