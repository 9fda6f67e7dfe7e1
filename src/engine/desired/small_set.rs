//! A set optimized for few items.

use std::hash::Hash;

use ahash::HashSet;
use smallvec::SmallVec;

/// Items, searched by value.
#[derive(Debug)]
pub struct SmallSet<T> {
    few: SmallVec<[T; INLINE]>,
    /// Further items. A hash table takes random numbers, so most sets have none.
    many: Option<HashSet<T>>,
}

/// Number of items stored in the set itself, which is moved with them.
const INLINE: usize = 4;

/// Number of items up to which a linear search is used.
const FEW: usize = 16;

impl<T: Copy + Eq + Hash> SmallSet<T> {
    /// Returns whether the item is in the set.
    pub fn contains(&self, item: &T) -> bool {
        self.few.contains(item) || self.many.as_ref().is_some_and(|many| many.contains(item))
    }

    /// Adds an item; returns whether it is new.
    pub fn insert(&mut self, item: T) -> bool {
        if self.few.contains(&item) {
            return false;
        }
        if self.few.len() == FEW {
            return self.many.get_or_insert_default().insert(item);
        }
        self.few.push(item);
        true
    }
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self { few: SmallVec::new(), many: None }
    }
}

impl<T: Copy + Eq + Hash> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut lookup = Self::default();
        items.into_iter().for_each(|item| _ = lookup.insert(item));
        lookup
    }
}
