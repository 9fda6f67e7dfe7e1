//! The decoder of deltaproxy itself.

use nft::TableRef;
use nft::kernel::{ElementRead, Kernel, Nftables};

use super::{Chain, Family, Summary};

/// Reads a table of the calling thread's namespace.
///
/// # Panics
/// Without such a table.
#[must_use]
#[track_caller]
pub fn read(family: Family, table: &str) -> Summary {
    let mut kernel = Nftables::open().expect("a netfilter socket");
    let table = reference(family, table);
    let contents = kernel.read_table(&table).expect("it can be read").expect("the table is there");
    assert_eq!(contents.foreign, 0, "{contents:#?}");
    let mut summary = Summary::default();
    for chain in contents.chains {
        let hook = chain.base.map(|base| (base.hook, base.priority));
        summary.chains.insert(chain.name.into_owned(), Chain { hook, rules: Some(0) });
    }
    for rule in contents.rules.iter() {
        let chain = summary.chains.get_mut(&rule.chain).expect("a rule of a listed chain");
        chain.rules = chain.rules.map(|rules| rules + 1);
    }
    for set in contents.sets.into_iter().filter(|set| !set.anonymous) {
        let mut elements = 0;
        let read = kernel.read_elements(&table, &set.name, &mut |read| match read {
            ElementRead::Start => elements = 0,
            ElementRead::Element(_) => elements += 1,
        });
        read.expect("the set is there");
        summary.sets.insert(set.name, Some(elements));
    }
    summary
}

/// The table of that name.
#[must_use]
pub fn reference(family: Family, table: &str) -> TableRef {
    let family = match family {
        Family::Ip => nft::Family::Ip,
        Family::Ip6 => nft::Family::Ip6,
    };
    TableRef::new(family, table.to_owned())
}
