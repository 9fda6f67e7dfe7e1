//! The table of direct return: `nft` lists it like its blueprint, and reading back gives what was
//! sent.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::direct::ruleset::{DirectElement, DirectSet, base, table, table_comment};
use netlink_tests::direct_table::{DEVICES, elements, index_of, node, settings, transaction};
use netlink_tests::{Host, Net, nft_can_load};
use nft::kernel::{Contents, ElementRead, Kernel, Nftables};
use nft::{Operation, TableFamily, Transaction};

const BLUEPRINT: &str = include_str!("direct_return/blueprint.nft");

fn commit(host: &Host, transaction: &Transaction) {
    host.run(|| Nftables::open().unwrap().commit(transaction).unwrap());
}

/// Commits the table of the blueprint and returns its listing.
fn committed(net: &Net) -> String {
    let elements = elements(index_of(net.node(), DEVICES[1]));
    commit(net.node(), &transaction(&base(&settings()), &elements));
    list(net.node())
}

fn list(host: &Host) -> String {
    host.nft("list ruleset")
}

fn loaded(script: &str) -> String {
    let net = node();
    net.node().nft_script(script);
    list(net.node())
}

#[test]
fn nft_lists_the_table_like_its_blueprint() {
    if !nft_can_load() {
        return;
    }
    assert_eq!(committed(&node()), loaded(BLUEPRINT));
}

#[test]
fn nft_loads_what_it_lists_of_the_table() {
    if !nft_can_load() {
        return;
    }
    let listed = committed(&node());
    assert_eq!(loaded(&listed), listed);
}

/// Rules, sets and elements as we print them make the same table.
#[test]
fn nft_understands_the_transaction_as_a_script() {
    if !nft_can_load() {
        return;
    }
    let net = node();
    let listed = committed(&net);
    let elements = elements(index_of(net.node(), DEVICES[1]));
    assert_eq!(loaded(&transaction(&base(&settings()), &elements).to_string()), listed);
}

/// Later versions of nft print other words for some rules.
#[test]
fn each_rule_is_printed_as_nft_1_0_6_lists_it() {
    let base = base(&settings());
    let chains = base.chains.iter().map(|spec| {
        let rules = spec.rules.iter().map(|rule| rule.text(TableFamily::Netdev).to_string());
        (spec.chain.name.to_string(), rules.collect())
    });
    assert_eq!(chains.collect::<BTreeMap<_, Vec<_>>>(), rules_of_chains(BLUEPRINT));
}

/// The rules of each chain of a listing.
fn rules_of_chains(listing: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut chain = None;
    for line in listing.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("chain ") {
            chain = Some(found.entry(rest.trim_end_matches(" {").to_owned()).or_default());
        } else if line == "}" {
            chain = None;
        } else if let Some(rules) = &mut chain
            && !["comment ", "type "].iter().any(|property| line.starts_with(property))
        {
            rules.push(line.to_owned());
        }
    }
    found
}

/// What the kernel holds, and the elements of each set.
fn read(host: &Host) -> (Contents, BTreeMap<DirectSet, Vec<Option<DirectElement>>>) {
    host.run(|| {
        let mut kernel = Nftables::open().unwrap();
        let contents = kernel.read_table(&table()).unwrap().unwrap();
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for set in DirectSet::ALL {
            let elements = found.entry(set).or_default();
            let mut note = |step: ElementRead<'_>| match step {
                ElementRead::Start => elements.clear(),
                ElementRead::Element(view) => elements.push(DirectElement::read(set, &view)),
            };
            kernel.read_elements(&table(), set.name(), &mut note).unwrap();
        }
        (contents, found)
    })
}

/// Checks that the kernel holds the table with `expected` elements, and that we recognize it.
#[track_caller]
fn check_read_back(host: &Host, expected: &[DirectElement]) {
    let base = base(&settings());
    let (contents, found) = read(host);
    assert_eq!((contents.foreign, &contents.table.comment), (0, &Some(table_comment())));
    let sets = contents.sets.iter().map(|found| found.set.as_ref());
    assert!(sets.eq(base.sets.iter().map(|set| Some(&**set))), "{:?}", contents.sets);
    assert!(contents.chains.iter().eq(base.chains.iter().map(|spec| &spec.chain)));
    for spec in &base.chains {
        let found = contents.rules.iter().filter(|rule| rule.chain == spec.chain.name);
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), spec.rules.len(), "{}", spec.chain.name);
        for (own, found) in spec.rules.iter().zip(found) {
            assert!(own.is_listed_as(found), "{}: {}", own.chain, own.text(TableFamily::Netdev));
        }
    }
    let mut of_sets: BTreeMap<_, Vec<_>> = DirectSet::ALL.map(|set| (set, Vec::new())).into();
    for element in expected {
        of_sets.entry(element.set()).or_default().push(Some(*element));
    }
    assert_eq!(found, of_sets);
}

#[test]
fn the_kernel_holds_the_table_that_was_sent() {
    let net = node();
    let elements = elements(index_of(net.node(), DEVICES[1]));
    commit(net.node(), &transaction(&base(&settings()), &elements));
    check_read_back(net.node(), &elements);
}

#[test]
fn an_element_is_deleted_by_its_key() {
    let net = node();
    let base = base(&settings());
    let elements = elements(index_of(net.node(), DEVICES[1]));
    commit(net.node(), &transaction(&base, &elements));
    let delete = |element: &DirectElement| {
        let set = base.sets.iter().find(|set| set.name == element.set().name());
        let set = Arc::clone(set.unwrap());
        Operation::DeleteElements(table(), set, [element.to_key()].into())
    };
    let operations = elements.iter().map(delete).collect();
    commit(net.node(), &Transaction { operations });
    check_read_back(net.node(), &[]);
}

/// The types of a set tell a mark and the result of a hash apart also after nft has loaded it.
#[test]
fn sets_that_nft_has_loaded_are_recognized() {
    if !nft_can_load() {
        return;
    }
    let net = node();
    net.node().nft_script(BLUEPRINT);
    let (contents, found) = read(net.node());
    let base = base(&settings());
    let sets = contents.sets.iter().map(|found| found.set.as_ref());
    assert!(sets.eq(base.sets.iter().map(|set| Some(&**set))), "{:?}", contents.sets);
    let elements = elements(index_of(net.node(), DEVICES[1]));
    let found = found.into_values().flatten();
    assert!(found.eq(elements.into_iter().map(Some)));
}
