//! Receives trace events of packets with `meta nftrace set 1`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::abi::{NETLINK_NETFILTER, NFNLGRP_NFTRACE};
use crate::netlink::socket::{Socket, Wait};
use crate::trace::TraceEvent;

/// Receiver of trace events, including those of packets that other programs trace.
#[derive(Debug)]
pub struct Tracer {
    socket: Socket,
}

/// Most datagrams of one call: more come from a program that never stops.
pub(super) const MAX_DATAGRAMS: usize = 100_000;

impl Tracer {
    /// Joins the multicast group in this thread's network namespace.
    ///
    /// # Errors
    /// EPERM without `CAP_NET_ADMIN`; other errors of `socket(2)` and `setsockopt(2)`.
    pub fn open() -> io::Result<Self> {
        // Trace events come from port 0; no socket has the port u32::MAX, so none is excluded.
        Ok(Self { socket: Socket::listen(NETLINK_NETFILTER, NFNLGRP_NFTRACE, None)? })
    }

    /// Returns the trace events received since the last call. Does not block.
    ///
    /// # Errors
    /// Events were lost or cannot be decoded.
    pub fn take(&mut self) -> io::Result<Vec<TraceEvent>> {
        let mut events = Vec::new();
        self.socket.take(MAX_DATAGRAMS, Wait::No, &mut |message| {
            let message = message?;
            let event = TraceEvent::decode(message.kind, message.payload);
            events.extend(event.map_err(io::Error::other)?);
            Ok(())
        })?;
        Ok(events)
    }
}

impl AsFd for Tracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
