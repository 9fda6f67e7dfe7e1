//! Deduplication of strings and lists that many objects repeat.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use ahash::AHashSet;

/// One shared copy of each value in use.
///
/// Unused values are dropped when the number of values has doubled since the last sweep. The number
/// therefore stays within twice the values in use.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    known: AHashSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { known: AHashSet::default(), sweep_at: FIRST_SWEEP }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// Returns the shared copy of `value`, which may be borrowed, owned or shared already.
    pub fn share(&mut self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        if let Some(known) = self.known.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = FIRST_SWEEP.max(self.known.len() * 2);
        }
        let shared = value.into();
        self.known.insert(Arc::clone(&shared));
        shared
    }
}

/// Number of values below which a sweep is not worth its time.
const FIRST_SWEEP: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_memory_and_unused_ones_are_dropped() {
        let mut interner = Interner::<str>::default();
        let held = interner.share("http");
        assert!(Arc::ptr_eq(&held, &interner.share("http")));
        for i in 0..10 * FIRST_SWEEP {
            interner.share(i.to_string().as_str());
        }
        assert!(interner.known.len() <= 2 * FIRST_SWEEP, "{}", interner.known.len());
        assert!(Arc::ptr_eq(&held, &interner.share("http")));
    }
}
