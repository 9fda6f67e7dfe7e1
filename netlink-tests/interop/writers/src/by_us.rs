//! nft-netlink: the table is compared, and the difference sent.

use nft_netlink::expression::{Cmp, Immediate, Reg, meta, th};
use nft_netlink::kernel::{Extent, Nftables};
use nft_netlink::{
    AnyElement, AnySet, Chain, Expression, SetContents, TableFamily, Verdict, WholeTable,
};

use crate::{CHAIN, Desired, SET, TABLE};

/// `tcp dport PORT accept`
fn rule(port: u16) -> Vec<Expression> {
    const FIRST: Reg = Reg::of_word(0);
    const TCP: u8 = 6;
    vec![
        meta::l4proto(FIRST),
        Cmp::equal(FIRST, [TCP]),
        th::dport(FIRST),
        Cmp::equal(FIRST, port.to_be_bytes()),
        Immediate::verdict(Verdict::Accept),
    ]
}

fn table(desired: &Desired) -> WholeTable {
    let mut table = WholeTable::new(TableFamily::Ip, TABLE);
    table.chains.push(Chain::new(CHAIN));
    desired.ports.iter().for_each(|port| table.append_rule(CHAIN, rule(*port)));
    let set = AnySet { size: desired.size, ..AnySet::of_types(SET, "ipv4_addr").unwrap() };
    let elements = desired.addresses.iter().map(|it| AnyElement::new(it.octets()));
    table.sets.push(SetContents { set, elements: elements.collect() });
    table
}

/// Makes the table what is desired. Returns the kernel of the program.
pub fn update(desired: &Desired) -> Nftables {
    let mut kernel = Nftables::open().unwrap();
    kernel.update(&table(desired)).unwrap();
    kernel
}

/// Returns the kernel of a program that has made this table and keeps it.
pub fn keeper(installed: &Desired) -> Nftables {
    let mut kernel = Nftables::open().unwrap();
    kernel.update_and_keep(table(installed)).unwrap();
    kernel
}

/// Makes the table what is desired, by a program that keeps it.
pub fn update_kept(keeper: &mut Nftables, desired: &Desired) {
    keeper.update_and_keep(table(desired)).unwrap();
}

/// Returns the numbers of rules and elements in the kernel.
pub fn counts() -> (usize, usize) {
    let table = Nftables::open()
        .unwrap()
        .whole_table(TableFamily::Ip, TABLE, Extent::Whole)
        .unwrap()
        .unwrap();
    (table.rules.len(), table.sets.iter().map(|set| set.elements.len()).sum())
}
