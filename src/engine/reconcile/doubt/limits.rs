//! The limits of requests and pauses.

use std::time::Duration;

/// Elements of one lookup, which takes some 0.1 ms.
pub(super) const KEYS: usize = 64;

/// Services walked and rendered for one request.
pub(super) const SERVICES: usize = 16;

/// Elements of a dump that are compared at a time, which takes some 0.1 ms.
pub(super) const AT_A_TIME: usize = 1_024;

/// Most elements of a refused step that are looked up. With more, the tables are read.
pub(super) const MAX_REFUSED: usize = 1_024;

/// Most differences of a comparison of everything, and most orphans of a search. With more, the
/// tables are read: that takes less time.
pub(super) const MAX_DIFFERENCES: usize = 4_096;

/// Minimum time before a difference is looked up again.
pub(super) const SECOND_LOOKUP: Duration = Duration::from_secs(1);

/// Minimum pause between two lookups in the background, so that they take a small part of a
/// processor for any number of services.
pub(super) const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// Pause after a request in the background that was not answered.
pub(super) const AFTER_ERROR: Duration = Duration::from_secs(60);

/// Pause after a comparison of everything, in multiples of its duration. It limits the share of time
/// that the kernel spends on them, however often other programs change something.
const READ_SHARE: u32 = 5;

/// Minimum pause after a comparison of everything.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);

/// Maximum pause after a comparison of everything: until then, some differences are not repaired.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Returns the pause after a comparison or a reading of everything that took `time`.
pub(super) fn pause_after(time: Duration) -> Duration {
    (time * READ_SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Returns the pause before the tables are read after a failure: 50 ms, doubled with each further
/// failure up to about 13 s.
pub(super) fn backoff(failures: u32) -> Duration {
    Duration::from_millis(50) * 2u32.pow(failures.min(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_reading_has_limits() {
        let seconds = [0, 1, 3_600].map(|time| pause_after(Duration::from_secs(time)));
        assert_eq!(seconds, [SHORTEST_PAUSE, Duration::from_secs(5), LONGEST_PAUSE]);
    }
}
