//! rustables: a batch of netlink messages. It neither flushes sets nor inserts rules before others,
//! so it only loads tables.

use rustables::set::SetBuilder;
use rustables::{Batch, Chain, MsgType, Protocol, ProtocolFamily, Rule, Table};

use crate::{CHAIN, Desired, SET, TABLE};

/// Rules and elements of one batch. Its socket's send buffer does not hold a thousand rules, so that
/// the whole is no transaction.
const RULES: usize = 250;
const PIECE: usize = 2_000;

/// Makes the table.
pub fn load(desired: &Desired) {
    let table = Table::new(ProtocolFamily::Ipv4).with_name(TABLE);
    let chain = Chain::new(&table).with_name(CHAIN);
    let mut batch = Batch::new();
    batch.add(&table, MsgType::Add);
    batch.add(&chain, MsgType::Add);
    let set = SetBuilder::<std::net::Ipv4Addr>::new(SET, &table).unwrap().finish().0;
    let mut set = set.with_id(1u32);
    set.family = ProtocolFamily::Ipv4;
    batch.add(&set, MsgType::Add);
    batch.send().unwrap();
    for piece in desired.ports.chunks(RULES) {
        let mut batch = Batch::new();
        for port in piece {
            let rule = Rule::new(&chain).unwrap().dport(*port, Protocol::TCP).accept();
            rule.add_to_batch(&mut batch);
        }
        batch.send().unwrap();
    }
    for piece in desired.addresses.chunks(PIECE) {
        let mut elements = SetBuilder::new(SET, &table).unwrap();
        piece.iter().for_each(|address| elements.add(address));
        let mut batch = Batch::new();
        batch.add(&elements.finish().1, MsgType::Add);
        batch.send().unwrap();
    }
}
