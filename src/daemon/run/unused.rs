//! The release of unused elements, which packets may still look up.

use std::time::Instant;

use engine::{Engine, GRACE, Kept};

/// The unused elements to be released next, and when.
#[derive(Debug, Default)]
pub(super) struct UnusedElements(Option<(Instant, Kept)>);

impl UnusedElements {
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.map(|(due, _)| due)
    }

    /// Releases the unused elements that are due, and then schedules the next ones. Returns whether
    /// any were due.
    pub(super) fn release(&mut self, engine: &mut Engine, now: Instant) -> bool {
        let due = self.0.take_if(|(due, _)| *due <= now);
        if let Some((_, kept)) = due {
            engine.release(kept);
        }
        if self.0.is_none() {
            self.0 = engine.kept_unused_elements().map(|kept| (now + GRACE, kept));
        }
        due.is_some()
    }
}
