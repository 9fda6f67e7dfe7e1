//! Requests to rtnetlink: dumps, and requests that the kernel acknowledges.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink::attr::AttrWriter;
use crate::netlink::message::{self, Header, Meaning, Message, Messages};
use crate::netlink::socket::{Socket, Wait};

/// A socket of rtnetlink in the network namespace of the opening thread.
#[derive(Debug)]
pub(super) struct Rtnetlink {
    socket: Socket,
    sequence: u32,
}

/// A request, apart from its attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// `RTM_*`.
    pub(super) kind: u16,
    /// `NLM_F_*` besides `NLM_F_REQUEST`; one of them makes the kernel end its answer:
    /// [`message::DUMP`] or [`message::ACK`].
    pub(super) flags: u16,
    /// The structure before the attributes.
    pub(super) fixed: &'a [u8],
}

impl Rtnetlink {
    /// Opens the socket.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::open(NETLINK_ROUTE)?, sequence: 0 })
    }

    /// Sends a request with the attributes that `fill` writes. Calls `each` with every object of
    /// the answer.
    pub(super) fn request(
        &mut self,
        Request { kind, flags, fixed }: Request<'_>,
        fill: impl FnOnce(&mut AttrWriter<'_>),
        mut each: impl FnMut(Message<'_>),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let header = Header { kind, flags: flags | message::REQUEST, sequence: self.sequence };
        let mut request = Vec::new();
        message::append(&mut request, header, fixed, fill).map_err(io::Error::other)?;
        self.socket.send(&request)?;
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
