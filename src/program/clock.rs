//! Clocks, and the pause between reads of the kernel that others request.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Shortest time between two reads.
const SHORTEST: Duration = Duration::from_secs(2);

/// Pause after a read, in multiples of its duration.
const PAUSE: u32 = 10;

/// Returns the present time.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time since 1970.
pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// End and duration of a read, if there was one. Reads take at most a tenth of the time, whatever the
/// number of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastRead(Option<(Instant, Duration)>);

impl LastRead {
    /// Returns a read that began at `start` and ends now.
    pub(super) fn since(start: Instant) -> Self {
        Self(Some((now(), start.elapsed())))
    }

    /// Returns whether its result is used again.
    pub(super) fn is_fresh(self) -> bool {
        self.0.is_some_and(|(at, took)| at.elapsed() < SHORTEST.max(took * PAUSE))
    }
}
