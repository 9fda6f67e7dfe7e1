//! How long to wait after a failure. Reads no clock and does not wait itself.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// The shortest first wait: routes change in far less than a second, so a broken connection is
/// tried again at once and not after client-go's 800 ms.
const FIRST: Duration = Duration::from_millis(50);

/// The longest wait before its random part is added, which may be as long.
const LONGEST: Duration = Duration::from_secs(15);

/// After this long without a failure the next one is a new one.
const STABLE: Duration = Duration::from_secs(20);

/// From [`FIRST`] on, each twice the one before it.
const WAITS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times()
    .with_jitter();

/// Doubling waits with a random part, so that a thousand nodes do not return in step.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// What is left of the waits, and the end of the last one; `None` before the first failure.
    waits: Option<(ExponentialBackoff, Instant)>,
}

impl Backoff {
    /// The wait after a failure at `now`: once to twice a value that doubles each time.
    pub(super) fn after_failure(&mut self, now: Instant) -> Duration {
        self.waits.take_if(|(_, end)| now.saturating_duration_since(*end) >= STABLE);
        let (waits, end) = self.waits.get_or_insert_with(|| (WAITS.build(), now));
        // `WAITS` has no end.
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
    fn a_failure_after_a_quiet_time_is_retried_quickly() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            backoff.after_failure(now);
        }
        assert!(backoff.after_failure(now + LONGEST * 2 + STABLE) <= FIRST * 2);
    }

    #[test]
    fn quick_successes_in_between_do_not_make_retries_quick() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            now += backoff.after_failure(now) + STABLE / 2;
        }
        assert!(backoff.after_failure(now) >= LONGEST);
    }
}
