//! What packets under way may still look up: elements to which no route leads any more.
//!
//! A packet looks up one set after the other, and each look-up sees the newest commit. So an element
//! is deleted later than the last route to it: in the next transaction, or after [`GRACE`] where
//! packets must never find a gap.

use std::time::Duration;

use super::Engine;
use crate::diff::Kept;

/// How long a packet takes through the tables at most. It takes microseconds, but a virtual
/// processor can be paused meanwhile.
pub const GRACE: Duration = Duration::from_millis(250);

impl Engine {
    /// From now on leftovers stay until [`Engine::release`].
    pub fn keep_leftovers(&mut self) {
        self.diff.keep_leftovers();
    }

    /// The leftovers that are kept, to be released after [`GRACE`]. `None` if there are none, or the
    /// outcome of a transaction is not known yet.
    pub fn kept_leftovers(&mut self) -> Option<Kept> {
        let all_applied = self.in_flight.is_empty() && self.to_give.is_empty();
        all_applied.then(|| self.diff.kept()).flatten()
    }

    /// Has leftovers deleted with the next transactions.
    pub fn release(&mut self, kept: Kept) {
        self.diff.release(kept);
    }

    /// Whether elements are to be deleted, now or later.
    pub(super) fn has_leftovers(&self) -> bool {
        self.diff.has_leftovers()
    }
}
