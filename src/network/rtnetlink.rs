//! Requests to rtnetlink: dumps, and requests that the kernel acknowledges.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use nft::netlink::attr::AttrWriter;
use nft::netlink::message::{self, Header, Meaning, Message, Messages};
use nft::netlink::socket::{Socket, Wait};

/// Length of `struct ifinfomsg`.
pub const IFINFOMSG_LENGTH: usize = 16;

/// A socket of rtnetlink in the network namespace of the opening thread.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: Socket,
    sequence: u32,
}

impl Rtnetlink {
    /// Opens the socket.
    ///
    /// # Errors
    /// Errors of `socket(2)`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::open(NETLINK_ROUTE)?, sequence: 0 })
    }

    /// Sends a change, `RTM_*` with `NLM_F_*`. `fixed` is the structure before the attributes that
    /// `fill` writes.
    ///
    /// # Errors
    /// The kernel's error has its number; the socket failed, or the answer is damaged.
    pub fn change(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut AttrWriter<'_>),
    ) -> io::Result<()> {
        self.request((kind, message::ACK | flags), fixed, fill, |_| {})
    }

    /// Sends a request, `RTM_*` with [`message::ACK`] for one object or [`message::DUMP`] for all.
    /// Calls `each` with every message of the answer.
    ///
    /// # Errors
    /// See [`Rtnetlink::change`].
    pub fn request(
        &mut self,
        (kind, flags): (u16, u16),
        fixed: &[u8],
        fill: impl FnOnce(&mut AttrWriter<'_>),
        mut each: impl FnMut(Message<'_>),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let header = Header { kind, flags: flags | message::REQUEST, sequence: self.sequence };
        let mut request = Vec::new();
        message::append(&mut request, header, fixed, fill).map_err(io::Error::other)?;
        self.socket.send(&request).map_err(io::Error::other)?;
        loop {
            let datagram = self.socket.receive(Wait::Limited).map_err(io::Error::other)?;
            for message in Messages::new(datagram) {
                let message = message.map_err(io::Error::other)?;
                if message.sequence != self.sequence {
                    continue;
                }
                match message.meaning().map_err(io::Error::other)? {
                    Meaning::Object(message) => each(message),
                    Meaning::Done(end) | Meaning::Acknowledgement(end) => {
                        return match end.errno {
                            0 => Ok(()),
                            errno => Err(io::Error::from_raw_os_error(errno)),
                        };
                    }
                    Meaning::Nothing | Meaning::Overrun => {}
                }
            }
        }
    }
}
