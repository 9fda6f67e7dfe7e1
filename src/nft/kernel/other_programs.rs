//! Detects commits of other programs.
//!
//! The kernel sends a notification of every nftables change to a multicast group; it names the
//! table, and the set and key of an element. Changes of other tables are received and skipped.

use std::io;

use super::interface::{ElementKey, OthersChanges};
use crate::abi::{NETLINK_NETFILTER, NFNLGRP_NFTABLES};
use crate::element::decode_elements;
use crate::netlink::message::{Message, Messages};
use crate::netlink::socket::{ReceiveError, Socket, Wait};
use crate::request;
use crate::table::TableRef;
use crate::value::Value;

/// Receiver of notifications about changes by other programs.
#[derive(Debug)]
pub(super) struct Others {
    socket: Socket,
    tables: Vec<TableRef>,
}

/// Most datagrams of one call: more come from a program that never stops.
const MAX_DATAGRAMS: usize = 100_000;

impl Others {
    /// Opens a receiver of all changes of `tables`, except those of the socket with netlink port
    /// `ours`.
    pub(super) fn open(tables: Vec<TableRef>, ours: u32) -> io::Result<Self> {
        let socket = Socket::listen(NETLINK_NETFILTER, NFNLGRP_NFTABLES, Some(ours))?;
        Ok(Self { socket, tables })
    }

    /// Returns the changes of the tables since the last call. Does not block.
    pub(super) fn changes(&mut self) -> OthersChanges {
        let mut changes = OthersChanges::Nothing;
        for _ in 0..MAX_DATAGRAMS {
            match self.socket.receive(Wait::No) {
                Ok(datagram) => add(&mut changes, datagram, &self.tables),
                Err(ReceiveError::TimedOut) => return changes,
                Err(ReceiveError::Overrun | ReceiveError::Truncated { .. }) => changes.add(None),
                Err(ReceiveError::Io(_)) => return OthersChanges::Anything,
            }
        }
        OthersChanges::Anything
    }
}

/// Adds the changes that a datagram reports. One that cannot be decoded may report any.
fn add(changes: &mut OthersChanges, datagram: &[u8], tables: &[TableRef]) {
    for message in Messages::new(datagram) {
        let Ok(Message { kind, payload, .. }) = message else { return changes.add(None) };
        let Some(table) = tables.iter().find(|it| request::concerns(kind, payload, it)) else {
            continue;
        };
        let Some((set, attributes)) = request::changed_set(kind, payload) else {
            return changes.add(None);
        };
        let read = decode_elements(attributes, |element| {
            let key = Value::from_bytes(element.key);
            let place = |key| ElementKey { table: table.clone(), set: set.to_owned(), key };
            changes.add(key.map(place));
        });
        if read.is_err() {
            changes.add(None);
        }
    }
}
