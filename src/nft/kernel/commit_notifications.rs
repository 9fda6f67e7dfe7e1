//! Receives the kernel's notifications of nftables commits by any program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::nftables::NETLINK_NETFILTER;
use super::other_programs::NFNLGRP_NFTABLES;
use crate::Notification;
use crate::netlink::message::Messages;
use crate::netlink::socket::{ReceiveError, Socket, Wait};

/// Receiver of notifications of commits in this network namespace.
#[derive(Debug)]
pub struct Notifications {
    socket: Socket,
}

impl Notifications {
    /// Joins the multicast group in this thread's network namespace.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`; other errors of `socket(2)` and `setsockopt(2)`.
    pub fn open() -> io::Result<Self> {
        // No socket has the port u32::MAX, so no commit is excluded.
        Ok(Self { socket: Socket::listen(NETLINK_NETFILTER, NFNLGRP_NFTABLES, None)? })
    }

    /// Calls `each` with the notifications of one datagram. Returns false if there is none. Does
    /// not block.
    ///
    /// # Errors
    /// Announcements were lost, or the socket failed.
    pub fn take(&mut self, each: &mut dyn FnMut(Notification<'_>)) -> io::Result<bool> {
        let datagram = match self.socket.receive(Wait::No) {
            Ok(datagram) => datagram,
            Err(ReceiveError::TimedOut) => return Ok(false),
            Err(ReceiveError::Io(error)) => return Err(error),
            Err(error @ (ReceiveError::Overrun | ReceiveError::Truncated { .. })) => {
                return Err(io::Error::other(error));
            }
        };
        // A broken message ends the datagram.
        for message in Messages::new(datagram).map_while(Result::ok) {
            each(Notification::decode(message.kind, message.payload));
        }
        Ok(true)
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
