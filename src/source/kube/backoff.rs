//! How long to wait after a failure. Reads no clock and does not wait itself.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// The longest first wait: routes change in far less than a second, so a broken connection is
/// tried again at once and not after client-go's 800 ms.
const FIRST: Duration = Duration::from_millis(100);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(30);

/// After this long without a failure the next one is a new one.
const STABLE: Duration = Duration::from_secs(20);

/// Doubling waits with a random part, so that a thousand nodes do not return in step.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Duration,
    quiet_from: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { wait: FIRST, quiet_from: None }
    }
}

impl Backoff {
    /// The wait after a failure at `now`: from half to all of a value that doubles each time.
    pub(super) fn after_failure(&mut self, now: Instant) -> Duration {
        if self.quiet_from.is_some_and(|since| now.saturating_duration_since(since) >= STABLE) {
            self.wait = FIRST;
        }
        let wait = self.wait.mul_f64(0.5 + random_half());
        self.quiet_from = Some(now + wait);
        self.wait = (self.wait * 2).min(LONGEST);
        wait
    }
}

/// A random number from 0 to 0.5.
fn random_half() -> f64 {
    let [first, second, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    f64::from(u16::from_ne_bytes([first, second])) / f64::from(u16::MAX) / 2.0
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
            assert!(wait >= expected / 2 && wait <= expected, "{wait:?} is not near {expected:?}");
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
        assert!(backoff.after_failure(now + LONGEST + STABLE) <= FIRST);
    }

    #[test]
    fn quick_successes_in_between_do_not_make_retries_quick() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            now += backoff.after_failure(now) + STABLE / 2;
        }
        assert!(backoff.after_failure(now) >= LONGEST / 2);
    }
}
