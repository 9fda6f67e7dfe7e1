//! Membership in a list that is mostly short and may be long.

use std::hash::Hash;

use ahash::HashSet;

/// The items of a list, to be found by value.
pub(super) struct Lookup<'a, T> {
    few: &'a [T],
    many: HashSet<T>,
}

/// So many items are searched one by one.
const FEW: usize = 16;

impl<'a, T: Copy + Eq + Hash> Lookup<'a, T> {
    pub(super) fn new(items: &'a [T]) -> Self {
        let is_few = items.len() <= FEW;
        let many = if is_few { HashSet::default() } else { items.iter().copied().collect() };
        Self { few: if is_few { items } else { &[] }, many }
    }

    pub(super) fn contains(&self, item: &T) -> bool {
        self.few.contains(item) || self.many.contains(item)
    }
}
