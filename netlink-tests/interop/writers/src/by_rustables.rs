//! rustables: a batch of netlink messages. It neither flushes sets nor inserts rules before others,
//! so it only loads tables.

use rustables::set::SetBuilder;
use rustables::{Batch, Chain, MsgType, Protocol, ProtocolFamily, Rule, Table};

use crate::{CHAIN, Desired, SET, TABLE};

/// Elements of one batch: the socket's send buffer holds no more, so that the whole is no
/// transaction.
const PIECE: usize = 2_000;

/// Makes the table.
pub fn load(desired: &Desired) {
    let table = Table::new(ProtocolFamily::Ipv4).with_name(TABLE);
    let chain = Chain::new(&table).with_name(CHAIN);
    let mut batch = Batch::new();
    batch.add(&table, MsgType::Add);
    batch.add(&chain, MsgType::Add);
    let set = SetBuilder::<std::net::Ipv4Addr>::new(SET, &table).unwrap().finish().0;
    batch.add(&set, MsgType::Add);
    batch.send().unwrap();
    let mut batch = Batch::new();
    for port in &desired.ports {
        Rule::new(&chain).unwrap().dport(*port, Protocol::TCP).accept().add_to_batch(&mut batch);
    }
    if !desired.ports.is_empty() {
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
