//! What other programs commit.
//!
//! The kernel announces every change of nftables to a multicast group, and names its table. So
//! commits that are not about ours cost no more than receiving that.

use std::io;

use super::nftables::NETLINK_NETFILTER;
use crate::netlink::message::Messages;
use crate::netlink::socket::{ReceiveError, Socket, Wait};
use crate::nft::{TableRef, request};

/// Receives the announcements about changes by others.
#[derive(Debug)]
pub(super) struct Others {
    socket: Socket,
    tables: Vec<TableRef>,
}

/// `NFNLGRP_NFTABLES` of `<linux/netfilter/nfnetlink.h>`.
pub(super) const NFNLGRP_NFTABLES: u32 = 7;

/// Datagrams that are received in one call: more come from a program that never stops.
const MAX_DATAGRAMS: usize = 100_000;

impl Others {
    /// Receives what all but the socket with netlink port `ours` change in `tables`.
    pub(super) fn open(tables: Vec<TableRef>, ours: u32) -> io::Result<Self> {
        let socket = Socket::listen(NETLINK_NETFILTER, NFNLGRP_NFTABLES, ours)?;
        Ok(Self { socket, tables })
    }

    /// Whether one of the tables may have changed since the last call. Does not wait.
    pub(super) fn have_changed_a_table(&mut self) -> bool {
        let mut has_changed = false;
        for _ in 0..MAX_DATAGRAMS {
            match self.socket.receive(Wait::No) {
                Ok(datagram) => has_changed |= is_about_one(datagram, &self.tables),
                Err(ReceiveError::TimedOut) => return has_changed,
                Err(ReceiveError::Overrun | ReceiveError::Truncated { .. }) => has_changed = true,
                Err(ReceiveError::Io(_)) => return true,
            }
        }
        true
    }
}

/// Whether a datagram is about one of the tables, or cannot be understood.
fn is_about_one(datagram: &[u8], tables: &[TableRef]) -> bool {
    Messages::new(datagram).any(|message| {
        message.is_err()
            || message.is_ok_and(|message| {
                let (kind, payload) = (message.kind, message.payload);
                tables.iter().any(|table| request::is_about(kind, payload, table))
            })
    })
}
