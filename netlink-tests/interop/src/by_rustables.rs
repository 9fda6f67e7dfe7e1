//! rustables 0.9.
//!
//! It understands tables, chains and the rules of chains without concatenations. What shows beside
//! our tables:
//!
//! - The priority of a base chain is unsigned: -100 is read as 4,294,967,196.
//! - A base chain with policy drop is read as one that accepts, so policies are not compared.
//! - Dumps are of all families, and lists are filtered by the table's name alone. The family of an
//!   object shows in its `Debug` text and nowhere else.
//! - The kernel lists the rules of a chain in one table only, so with two tables of one name those of
//!   the second, `ip6`, cannot be read.
//! - A register of 32 bits is an error that ends the listing of its chain, so chains with
//!   concatenations have no rules here.
//! - Elements cannot be listed, because that dump needs a family.

use std::collections::BTreeMap;
use std::fmt::Debug;

use rustables::query::list_objects_with_data;
use rustables::{
    Chain as Object, ProtocolFamily, Set, Table, list_chains_for_table, list_rules_for_chain,
    list_tables,
};

use super::{Chain, Family, Summary};

/// `NFT_MSG_GETSET`.
const GET_SET: u16 = 10;

/// `NFT_SET_ANONYMOUS`.
const ANONYMOUS: u32 = 1;

/// Reads a table of the calling thread's namespace.
///
/// # Panics
/// Without such a table.
#[must_use]
#[track_caller]
pub fn read(family: Family, table: &str) -> Summary {
    let table = find(family, table).expect("the table is there");
    let chains = list_chains_for_table(&table).expect("chains can be listed");
    let of_family = chains.iter().filter(|chain| is_of(family, chain));
    let chains = of_family.map(|chain| summary(family, chain)).collect();
    Summary { chains, sets: sets(family, &table) }
}

/// The table of that name.
///
/// # Panics
/// If the kernel refuses to list.
#[must_use]
#[track_caller]
pub fn find(family: Family, name: &str) -> Option<Table> {
    let tables = list_tables().expect("tables can be listed");
    tables
        .into_iter()
        .find(|table| is_of(family, table) && table.get_name().is_some_and(|it| it == name))
}

/// The family as rustables writes it.
#[must_use]
pub fn number(family: Family) -> ProtocolFamily {
    match family {
        Family::Ip => ProtocolFamily::Ipv4,
        Family::Ip6 => ProtocolFamily::Ipv6,
    }
}

fn is_of(family: Family, object: &impl Debug) -> bool {
    let text = format!("{object:?}");
    // Expressions may have a family too; the object's own is its last field.
    text.rsplit("family: ")
        .next()
        .is_some_and(|it| it.starts_with(&format!("{:?}", number(family))))
}

fn summary(family: Family, chain: &Object) -> (String, Chain) {
    let hook = chain.get_hook().map(|hook| {
        let priority = hook.get_priority().expect("a base chain has a priority");
        (*hook.get_class().expect("a base chain has a hook"), priority.cast_signed())
    });
    let listed = list_rules_for_chain(chain).ok();
    let rules = listed.filter(|rules| rules.iter().all(|rule| is_of(family, rule)));
    let name = chain.get_name().expect("a chain has a name").clone();
    (name, Chain { hook, rules: rules.map(|rules| rules.len()) })
}

fn sets(family: Family, table: &Table) -> BTreeMap<String, Option<usize>> {
    let mut sets = Vec::new();
    let keep = |set: Set, sets: &mut Vec<Set>| {
        sets.push(set);
        Ok(())
    };
    list_objects_with_data(GET_SET, &keep, None, &mut sets).expect("sets can be listed");
    let in_table = |set: &Set| {
        let is_anonymous = set.get_flags().is_some_and(|flags| flags & ANONYMOUS != 0);
        set.get_table() == table.get_name() && is_of(family, set) && !is_anonymous
    };
    let of_table = sets.iter().filter(|set| in_table(set));
    of_table.map(|set| (set.get_name().expect("a set has a name").clone(), None)).collect()
}
