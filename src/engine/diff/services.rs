//! The holdings of all services, by name and in the order of names.

use std::collections::BTreeSet;
use std::ops::Bound;

use ahash::HashMap;

use super::holdings::PackedHoldings;
use crate::model::ObjectName;

/// A hash map for lookups, which each update makes, and the same names sorted.
///
/// The order of a hash map differs from process to process. Walks over all services use the sorted
/// names, so that the same objects lead to the same transactions.
#[derive(Debug, Default)]
pub(super) struct Services {
    holdings: HashMap<ObjectName, PackedHoldings>,
    names: BTreeSet<ObjectName>,
}

impl Services {
    pub(super) fn get(&self, name: &ObjectName) -> Option<&PackedHoldings> {
        self.holdings.get(name)
    }

    pub(super) fn insert(&mut self, name: &ObjectName, holdings: PackedHoldings) {
        if self.holdings.insert(name.clone(), holdings).is_none() {
            self.names.insert(name.clone());
        }
    }

    pub(super) fn remove(&mut self, name: &ObjectName) {
        if self.holdings.remove(name).is_some() {
            self.names.remove(name);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.holdings.len()
    }

    /// Returns the holdings of all services, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PackedHoldings> {
        self.holdings.values()
    }

    /// Returns all names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.names.iter()
    }

    /// Returns the names after `last`, sorted; without `last`, all names.
    pub(super) fn names_after(
        &self,
        last: Option<&ObjectName>,
    ) -> impl Iterator<Item = &ObjectName> {
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.range::<ObjectName, _>((start, Bound::Unbounded))
    }

    /// Returns the services whose holdings `has` accepts. Searches all services.
    pub(super) fn with(&self, has: impl Fn(&PackedHoldings) -> bool) -> BTreeSet<&ObjectName> {
        self.holdings.iter().filter(|(_, holdings)| has(holdings)).map(|(name, _)| name).collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.holdings.is_empty() && self.names.is_empty()
    }
}
