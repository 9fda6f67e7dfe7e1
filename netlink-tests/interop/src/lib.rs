//! deltaproxy's tables as other libraries read them.
//!
//! Each module is a reader and gives a [`Summary`]. They share no code, so what all agree on is what
//! the kernel holds. A reader leaves out what it does not understand, and its module says why.
//!
//! This crate links rustables and is therefore under GPL-3.0-or-later. It is a test, outside of the
//! workspace and of every package.

#![allow(clippy::expect_used)] // A broken expectation is a failed test.

use std::collections::BTreeMap;

pub mod by_bindings;
pub mod by_netfilter;
pub mod by_nft;
pub mod by_rustables;
pub mod by_us;

pub use netlink_tests::reader::Family;

/// The name of our tables.
pub const TABLE: &str = "kube-proxy";

/// A table, without anonymous sets: nft shows them inside of rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Chains by name.
    pub chains: BTreeMap<String, Chain>,
    /// Sets and maps by name; how many elements each has, or `None` if the reader cannot count them.
    pub sets: BTreeMap<String, Option<usize>>,
}

/// A chain.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Hook number and priority, on a base chain.
    pub hook: Option<(u32, i32)>,
    /// How many rules it has, or `None` if the reader cannot read them.
    pub rules: Option<usize>,
}

impl Summary {
    /// Fails unless `other` says the same, in all that both understand.
    ///
    /// # Panics
    /// With what is different.
    #[track_caller]
    pub fn check(&self, other: &Self) {
        assert!(self.chains.keys().eq(other.chains.keys()), "chains: {self:#?}\n{other:#?}");
        assert!(self.sets.keys().eq(other.sets.keys()), "sets: {self:#?}\n{other:#?}");
        for (name, chain) in &self.chains {
            let there = &other.chains[name];
            assert_eq!(chain.hook, there.hook, "chain {name}");
            assert!(agree(chain.rules, there.rules), "rules of {name}: {chain:?}, {there:?}");
        }
        for (name, elements) in &self.sets {
            let there = other.sets[name];
            assert!(agree(*elements, there), "elements of {name}: {elements:?}, {there:?}");
        }
    }

    /// How many chains and sets the reader could look into.
    #[must_use]
    pub fn understood(&self) -> (usize, usize) {
        let chains = self.chains.values().filter(|chain| chain.rules.is_some());
        (chains.count(), self.sets.values().flatten().count())
    }
}

fn agree(here: Option<usize>, there: Option<usize>) -> bool {
    here.zip(there).is_none_or(|(here, there)| here == there)
}
