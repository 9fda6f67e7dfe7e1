//! The release of leftovers, which packets may still look up.

use std::time::Instant;

use engine::{GRACE, Kept};
use nft::kernel::Kernel;

use super::{Run, now};

/// The leftovers to be released next, and when.
#[derive(Debug, Default)]
pub(super) struct Leftovers(Option<(Instant, Kept)>);

impl Leftovers {
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.map(|(due, _)| due)
    }
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Releases the leftovers that are due, and then schedules the next ones.
    pub(super) fn release_leftovers(&mut self) {
        let now = now();
        if let Some((_, kept)) = self.leftovers.0.take_if(|(due, _)| *due <= now) {
            self.engine.release(kept);
        }
        if self.leftovers.0.is_none() {
            self.leftovers.0 = self.engine.kept_leftovers().map(|kept| (now + GRACE, kept));
        }
    }
}
