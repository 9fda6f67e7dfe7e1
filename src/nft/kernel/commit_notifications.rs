//! Receives the kernel's notifications of nftables commits by any program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::tracer::MAX_DATAGRAMS;
use crate::abi::{NETLINK_NETFILTER, NFNLGRP_NFTABLES};
use crate::netlink::socket::{Socket, Wait};
use crate::notification::Notification;
use crate::object_change::ObjectChange;

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

    /// Returns the changes of objects that were notified since the last call. Does not block.
    ///
    /// # Errors
    /// Notifications were lost or cannot be decoded, or the socket failed.
    pub fn take_changes(&mut self) -> io::Result<Vec<ObjectChange>> {
        let mut changes = Vec::new();
        self.socket.take(MAX_DATAGRAMS, Wait::No, &mut |message| {
            let message = message?;
            let change = ObjectChange::decode(message.kind, message.payload);
            changes.extend(change.map_err(io::Error::other)?);
            Ok(())
        })?;
        Ok(changes)
    }

    /// Calls `each` with the notifications of one datagram. Returns false if there is none. Does
    /// not block.
    ///
    /// # Errors
    /// Notifications were lost or are damaged, or the socket failed.
    pub fn take(&mut self, each: &mut dyn FnMut(Notification<'_>)) -> io::Result<bool> {
        let is_all = self.socket.take(1, Wait::No, &mut |message| {
            let message = message?;
            each(Notification::decode(message.kind, message.payload));
            Ok(())
        })?;
        Ok(!is_all)
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
