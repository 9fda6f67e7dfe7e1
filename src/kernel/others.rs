//! Detects commits of other programs.
//!
//! The kernel sends a notification of every nftables change to a multicast group; it names the
//! table. A commit to a table of another program costs only its receipt.

use std::io;

use super::nftables::NETLINK_NETFILTER;
use crate::netlink::message::Messages;
use crate::netlink::socket::{ReceiveError, Socket, Wait};
use crate::nft::{TableRef, request};

/// Receiver of notifications about changes by other programs.
#[derive(Debug)]
pub(super) struct Others {
    socket: Socket,
    tables: Vec<TableRef>,
}

/// `NFNLGRP_NFTABLES` of `<linux/netfilter/nfnetlink.h>`.
pub(super) const NFNLGRP_NFTABLES: u32 = 7;

/// Most datagrams of one call: more come from a program that never stops.
const MAX_DATAGRAMS: usize = 100_000;

impl Others {
    /// Opens a receiver of all changes of `tables`, except those of the socket with netlink port
    /// `ours`.
    pub(super) fn open(tables: Vec<TableRef>, ours: u32) -> io::Result<Self> {
        let socket = Socket::listen(NETLINK_NETFILTER, NFNLGRP_NFTABLES, ours)?;
        Ok(Self { socket, tables })
    }

    /// Returns true if one of the tables may have changed since the last call. Does not block.
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

/// Returns true if a datagram is about one of the tables or cannot be decoded.
fn is_about_one(datagram: &[u8], tables: &[TableRef]) -> bool {
    Messages::new(datagram).any(|message| {
        message.is_err()
            || message.is_ok_and(|message| {
                let (kind, payload) = (message.kind, message.payload);
                tables.iter().any(|table| request::is_about(kind, payload, table))
            })
    })
}
