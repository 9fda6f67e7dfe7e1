//! netlink-bindings, which is generated from the kernel's specifications: the reader of the other
//! tests.

use netlink_tests::reader::{self, Family};

use super::{Chain, Summary};

/// `NFT_SET_ANONYMOUS`.
const ANONYMOUS: u32 = 1;

/// Reads a table of the calling thread's namespace.
///
/// # Panics
/// Without such a table.
#[must_use]
#[track_caller]
pub fn read(family: Family, table: &str) -> Summary {
    let table = reader::read(family, table).expect("the table is there");
    let chains = table
        .chains
        .into_iter()
        .map(|(name, chain)| (name, Chain { hook: chain.hook, rules: Some(chain.rules.len()) }));
    let sets = table.sets.into_iter().filter(|(_, set)| set.flags & ANONYMOUS == 0);
    Summary {
        chains: chains.collect(),
        sets: sets.map(|(name, set)| (name, Some(set.elements.len()))).collect(),
    }
}
