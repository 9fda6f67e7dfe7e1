//! Receives what the kernel reports of packets with `meta nftrace set 1`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::nftables::NETLINK_NETFILTER;
use crate::netlink::message::Messages;
use crate::netlink::socket::{ReceiveError, Socket, Wait};
use crate::nft::TraceEvent;

/// Listens to the steps of traced packets, also those that other programs trace.
#[derive(Debug)]
pub struct Tracer {
    socket: Socket,
}

/// `NFNLGRP_NFTRACE` of `<linux/netfilter/nfnetlink.h>`.
const NFNLGRP_NFTRACE: u32 = 9;

/// Datagrams that are received in one call: more come from a program that never stops.
const MAX_DATAGRAMS: usize = 100_000;

impl Tracer {
    /// Begins to listen in this thread's network namespace.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`; what else `socket(2)` and `setsockopt(2)` report.
    pub fn open() -> io::Result<Self> {
        // Reports come from the kernel's own port 0; no socket has this one.
        Ok(Self { socket: Socket::listen(NETLINK_NETFILTER, NFNLGRP_NFTRACE, u32::MAX)? })
    }

    /// The steps received since the last call. Does not wait.
    ///
    /// # Errors
    /// Steps were lost, or make no sense.
    pub fn take(&mut self) -> io::Result<Vec<TraceEvent>> {
        let mut events = Vec::new();
        for _ in 0..MAX_DATAGRAMS {
            let datagram = match self.socket.receive(Wait::No) {
                Ok(datagram) => datagram,
                Err(ReceiveError::TimedOut) => break,
                Err(ReceiveError::Io(error)) => return Err(error),
                Err(error @ (ReceiveError::Overrun | ReceiveError::Truncated { .. })) => {
                    return Err(io::Error::other(error));
                }
            };
            for message in Messages::new(datagram) {
                let message = message.map_err(io::Error::other)?;
                let event = TraceEvent::decode(message.kind, message.payload);
                events.extend(event.map_err(io::Error::other)?);
            }
        }
        Ok(events)
    }
}

impl AsFd for Tracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
