//! nft-netlink: the table is compared, and the difference sent.

use nft_netlink::expression::{Cmp, Data, Immediate, Meta, Payload, Reg};
use nft_netlink::kernel::Nftables;
use nft_netlink::{
    AnyChain, AnyElement, AnySet, Expression, SetContents, TableFamily, Verdict, WholeTable,
};

use crate::{CHAIN, Desired, SET, TABLE};

fn equals(value: Vec<u8>) -> Expression {
    Cmp { from: Reg(1), operation: 0, value: Data::Value(value) }.into()
}

/// `tcp dport PORT accept`
fn rule(port: u16) -> Vec<Expression> {
    const TCP: u8 = 6;
    const META_L4PROTO: u32 = 16;
    const TRANSPORT_HEADER: u32 = 2;
    let payload = Payload {
        from: None,
        to: Some(Reg(1)),
        base: TRANSPORT_HEADER,
        offset: 2,
        length: 2,
        checksum_type: None,
        checksum_offset: None,
        checksum_flags: None,
    };
    vec![
        Meta { key: META_L4PROTO, to: Some(Reg(1)), from: None }.into(),
        equals(vec![TCP]),
        payload.into(),
        equals(port.to_be_bytes().to_vec()),
        Immediate { to: Reg(0), data: Data::Verdict(Verdict::Accept) }.into(),
    ]
}

fn table(desired: &Desired) -> WholeTable {
    let mut table = WholeTable::new(TableFamily::Ip, TABLE);
    table.chains.push(AnyChain { name: CHAIN.to_owned(), ..AnyChain::default() });
    desired.ports.iter().for_each(|port| table.append_rule(CHAIN, rule(*port)));
    let set = AnySet::of_types(SET, &[7], &[4]);
    let elements = desired.addresses.iter().map(|it| AnyElement::new(it.octets().to_vec()));
    table.sets.push(SetContents { set, elements: elements.collect() });
    table
}

/// Makes the table what is desired.
pub fn update(desired: &Desired) {
    Nftables::open().unwrap().update(&table(desired)).unwrap();
}

/// Makes the table what is desired, by a program that knows what it is.
pub fn update_known(installed: &Desired, desired: &Desired) {
    let (installed, desired) = (table(installed), table(desired));
    let difference = desired.difference_from(Some(&installed)).unwrap();
    Nftables::open().unwrap().apply(&difference).unwrap();
}

/// Returns the numbers of rules and elements in the kernel.
pub fn counts() -> (usize, usize) {
    let table = Nftables::open().unwrap().whole_table(TableFamily::Ip, TABLE).unwrap().unwrap();
    (table.rules.len(), table.sets.iter().map(|set| set.elements.len()).sum())
}
