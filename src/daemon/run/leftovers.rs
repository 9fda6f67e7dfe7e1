//! The release of leftovers, which packets may still look up.

use std::time::Instant;

use engine::{Engine, GRACE, Kept};

/// The leftovers to be released next, and when.
#[derive(Debug, Default)]
pub(super) struct Leftovers(Option<(Instant, Kept)>);

impl Leftovers {
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.map(|(due, _)| due)
    }

    /// Releases the leftovers that are due, and then schedules the next ones.
    pub(super) fn release(&mut self, engine: &mut Engine, now: Instant) {
        if let Some((_, kept)) = self.0.take_if(|(due, _)| *due <= now) {
            engine.release(kept);
        }
        if self.0.is_none() {
            self.0 = engine.kept_leftovers().map(|kept| (now + GRACE, kept));
        }
    }
}
