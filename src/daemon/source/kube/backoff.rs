//! Durations of waits after failures. Reads no clock and does not wait.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::random::random;

/// Longest first wait. client-go waits 800 ms, but a broken connection should be retried sooner,
/// because routes change in far less than a second.
const FIRST: Duration = Duration::from_millis(100);

/// Longest wait, as in client-go.
const LONGEST: Duration = Duration::from_secs(30);

/// Time without a failure after which the waits start again from the shortest.
const STABLE: Duration = Duration::from_secs(20);

/// Limits of the waits: from [`FIRST`] on, doubled each time.
const LIMITS: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(FIRST).with_max_delay(LONGEST).without_max_times();

/// Random waits up to a doubling limit ("full jitter"): the retries of many nodes that lost the same
/// server are spread evenly, however long it is away.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Remaining limits, and the end of the last wait; `None` before the first failure.
    limits: Option<(ExponentialBackoff, Instant)>,
}

impl Backoff {
    /// Returns the wait after a failure at `now`, for which the server asked to wait at least
    /// `asked`. Its random part is from a range of at least `spread`.
    pub(super) fn after_failure(
        &mut self,
        now: Instant,
        asked: Duration,
        spread: Duration,
    ) -> Duration {
        self.limits.take_if(|(_, end)| now.saturating_duration_since(*end) >= STABLE);
        let (limits, end) = self.limits.get_or_insert_with(|| (LIMITS.build(), now));
        // `LIMITS` is endless.
        let limit = limits.next().unwrap_or(LONGEST);
        // All nodes may get the same answer, so the random part is added.
        let wait = asked + limit.max(spread).mul_f64(random());
        *end = now + wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_failure(backoff: &mut Backoff, now: Instant) -> Duration {
        backoff.after_failure(now, Duration::ZERO, Duration::ZERO)
    }

    #[test]
    fn the_limits_of_waits_double_from_a_tenth_of_a_second_to_half_a_minute() {
        let now = Instant::now();
        let mut nodes: Vec<_> = (0..1000).map(|_| (Backoff::default(), now)).collect();
        let mut limit = FIRST;
        for _ in 0..20 {
            let wait = |(backoff, now): &mut (Backoff, Instant)| {
                let wait = after_failure(backoff, *now);
                *now += wait;
                wait
            };
            let waits: Vec<_> = nodes.iter_mut().map(wait).collect();
            assert!(waits.iter().all(|wait| *wait <= limit), "more than {limit:?}");
            // Evenly spread: a tenth of the time has about a hundred of a thousand retries.
            for tenth in 0..10 {
                let part = limit * tenth / 10..limit * (tenth + 1) / 10;
                let count = waits.iter().filter(|wait| part.contains(*wait)).count();
                assert!((40..200).contains(&count), "{count} of 1000 in {part:?}");
            }
            limit = (limit * 2).min(LONGEST);
        }
        assert_eq!(limit, LONGEST);
    }

    #[test]
    fn a_failure_after_a_stable_time_is_retried_soon() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            after_failure(&mut backoff, now);
        }
        let later = now + LONGEST + STABLE;
        assert!(after_failure(&mut backoff, later) <= FIRST);
    }

    #[test]
    fn short_successes_between_failures_do_not_shorten_the_waits() {
        let longest = |_| {
            let (mut backoff, mut now) = (Backoff::default(), Instant::now());
            for _ in 0..10 {
                now += after_failure(&mut backoff, now) + STABLE / 2;
            }
            after_failure(&mut backoff, now)
        };
        // One of 100 waits is below a tenth of the limit with certainty, but not all of them.
        assert!((0..100).map(longest).max() >= Some(LONGEST / 2));
    }

    #[test]
    fn the_wait_that_the_server_asks_for_is_added_and_spread() {
        let asked = Duration::from_secs(7);
        let wait = |spread| Backoff::default().after_failure(Instant::now(), asked, spread);
        let waits: Vec<_> = (0..1000).map(|_| wait(Duration::ZERO)).collect();
        assert!(waits.iter().all(|wait| (asked..=asked + FIRST).contains(wait)), "{waits:?}");
        let waits: Vec<_> = (0..1000).map(|_| wait(asked)).collect();
        assert!(waits.iter().all(|wait| (asked..=asked * 2).contains(wait)), "{waits:?}");
        let late = waits.iter().filter(|wait| **wait > asked + asked / 2).count();
        assert!((400..600).contains(&late), "{late} of 1000");
    }
}
