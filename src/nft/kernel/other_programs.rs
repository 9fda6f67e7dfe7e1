//! Detects commits of other programs.
//!
//! The kernel sends a notification of every nftables change to a multicast group; it names the
//! table, and the set and key of an element. Changes of other tables are received and skipped.

use std::io;

use super::interface::{ElementKey, OthersChanges};
use super::tracer::MAX_DATAGRAMS;
use crate::abi::*;
use crate::element::decode_elements;
use crate::fields::Fields;
use crate::netlink::attr::Attrs;
use crate::netlink::message::Message;
use crate::netlink::socket::{Socket, Wait};
use crate::notification::split;
use crate::table::{TableRef, table_name};
use crate::value::Value;

/// Receiver of notifications about changes by other programs.
#[derive(Debug)]
pub(super) struct Others {
    socket: Socket,
    tables: Vec<TableRef>,
}

impl Others {
    /// Opens a receiver of all changes of `tables`, except those of the socket with netlink port
    /// `ours`.
    pub(super) fn open(tables: Vec<TableRef>, ours: u32) -> io::Result<Self> {
        let socket = Socket::listen(NETLINK_NETFILTER, NFNLGRP_NFTABLES, Some(ours))?;
        Ok(Self { socket, tables })
    }

    /// Returns the changes of the tables since the last call. Does not block.
    pub(super) fn changes(&mut self) -> OthersChanges {
        let (mut changes, tables) = (OthersChanges::Nothing, &self.tables);
        let read = self.socket.take(MAX_DATAGRAMS, Wait::No, &mut |message| {
            match message {
                Ok(message) => add(&mut changes, message, tables),
                Err(_) => changes.add(None),
            }
            Ok(())
        });
        if read.is_ok_and(|is_all| is_all) { changes } else { OthersChanges::Anything }
    }
}

/// Adds the changes that a message reports. One that cannot be decoded may report any.
fn add(changes: &mut OthersChanges, message: Message<'_>, tables: &[TableRef]) {
    let Some((kind, family, attributes)) = split(message.kind, message.payload) else { return };
    let concerns =
        |it: &&TableRef| family == it.family.number() && table_name(attributes) == Ok(&it.name);
    // The generation has a number in the attribute that is the table's name in other messages.
    let table = tables.iter().filter(|_| kind != NFT_MSG_NEWGEN).find(concerns);
    let Some(table) = table else { return };
    let set = Fields::read(Attrs::new(attributes)).and_then(|it| it.str(NFTA_SET_ELEM_LIST_SET));
    let (Ok(set), NFT_MSG_NEWSETELEM | NFT_MSG_DELSETELEM) = (set, kind) else {
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
