//! Durations of waits after failures. Reads no clock and does not wait.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// Shortest first wait. client-go waits 800 ms, but a broken connection should be retried sooner,
/// because routes change in far less than a second.
const FIRST: Duration = Duration::from_millis(50);

/// Longest wait, without its random part, which is at most as long.
const LONGEST: Duration = Duration::from_secs(15);

/// Time without a failure after which the waits start again from the shortest.
const STABLE: Duration = Duration::from_secs(20);

/// Waits from [`FIRST`] on, doubled each time.
const WAITS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times()
    .with_jitter();

/// Doubling waits with a random part, so that many nodes do not retry at the same time.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Remaining waits, and the end of the last one; `None` before the first failure.
    waits: Option<(ExponentialBackoff, Instant)>,
}

impl Backoff {
    /// Returns the wait after a failure at `now`: one to two times a value that doubles each time.
    pub(super) fn after_failure(&mut self, now: Instant) -> Duration {
        self.waits.take_if(|(_, end)| now.saturating_duration_since(*end) >= STABLE);
        let (waits, end) = self.waits.get_or_insert_with(|| (WAITS.build(), now));
        // `WAITS` is endless.
        let wait = waits.next().unwrap_or(LONGEST);
        *end = now + wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_a_tenth_of_a_second_to_half_a_minute() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let mut expected = FIRST;
        for _ in 0..20 {
            let wait = backoff.after_failure(now);
            assert!(wait >= expected && wait <= expected * 2, "{wait:?} is not near {expected:?}");
            expected = (expected * 2).min(LONGEST);
            now += wait;
        }
        assert_eq!(expected, LONGEST);
    }

    #[test]
    fn a_failure_after_a_stable_time_is_retried_soon() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            backoff.after_failure(now);
        }
        assert!(backoff.after_failure(now + LONGEST * 2 + STABLE) <= FIRST * 2);
    }

    #[test]
    fn short_successes_between_failures_do_not_shorten_the_waits() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            now += backoff.after_failure(now) + STABLE / 2;
        }
        assert!(backoff.after_failure(now) >= LONGEST);
    }
}
