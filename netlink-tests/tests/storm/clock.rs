//! The one clock of a storm.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the one clock of the storm")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn nanoseconds(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap()
    }
}
