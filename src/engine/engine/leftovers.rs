//! Leftovers: elements that no route refers to any more, and that packets may still look up.
//!
//! A packet looks up one set after the other, and each look-up reads the newest commit. So an
//! element is deleted later than the last route to it: in the next transaction, or after [`GRACE`]
//! where every look-up of a packet must succeed.

use std::time::Duration;

use super::Engine;
use crate::diff::Kept;

/// Maximum time of a packet in the tables. The look-ups take microseconds, but the host may pause a
/// virtual processor meanwhile.
pub const GRACE: Duration = Duration::from_millis(250);

impl Engine {
    /// Keeps leftovers from now on until [`Engine::release`].
    pub fn keep_leftovers(&mut self) {
        self.diff.keep_leftovers();
    }

    /// Returns the leftovers that are kept, for release after [`GRACE`]. `None` if there are none,
    /// or if the outcome of a transaction is not known yet.
    pub fn kept_leftovers(&mut self) -> Option<Kept> {
        let all_applied = self.in_flight.is_empty() && self.prepared.is_empty();
        all_applied.then(|| self.diff.kept()).flatten()
    }

    /// Deletes leftovers with the next transactions.
    pub fn release(&mut self, kept: Kept) {
        self.diff.release(kept);
    }

    /// Returns whether elements are to be deleted, now or later.
    pub(super) fn has_leftovers(&self) -> bool {
        self.diff.has_leftovers()
    }
}
