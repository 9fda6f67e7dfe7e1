//! Waits after failures, and whether a failure is said again. Reads no clock and does not wait.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Longest first wait. client-go waits 800 ms, but a broken connection should be retried sooner,
/// because routes change in far less than a second.
const FIRST: Duration = Duration::from_millis(100);

/// Least limit of the second wait. Its mean is client-go's shortest wait: the retries of many nodes
/// do not fill the first second of an outage.
const SECOND: Duration = Duration::from_millis(1600);

/// Longest wait, as in client-go.
const LONGEST: Duration = Duration::from_secs(30);

/// Time without a failure after which the waits start again from the shortest.
const STABLE: Duration = Duration::from_secs(20);

/// Random waits from zero up to a limit ("full jitter"): the retries of many nodes that lost the same
/// server are spread evenly, however long it is away. The limit is twice the time since the first
/// failure, so that no retry comes later after an outage than twice its length.
#[derive(Debug, Default)]
pub struct Backoff {
    /// Time of the first failure, and the end of the last wait; `None` before the first failure.
    outage: Option<(Instant, Instant)>,
}

impl Backoff {
    /// Returns the wait after a failure at `now`, for which the server asked to wait at least
    /// `asked`. Its random part is from a range of at least `spread`.
    pub fn after_failure(
        &mut self,
        now: Instant,
        (asked, spread): (Duration, Duration),
        random: f64,
    ) -> Duration {
        self.outage.take_if(|(_, end)| now.saturating_duration_since(*end) >= STABLE);
        let limit = self.outage.map_or(FIRST, |(first, _)| {
            (now.saturating_duration_since(first) * 2).clamp(SECOND, LONGEST)
        });
        // All nodes may get the same answer, so the random part is added.
        let wait = asked + limit.max(spread).mul_f64(random);
        let first = self.outage.map_or(now, |(first, _)| first);
        self.outage = Some((first, now + wait));
        wait
    }
}

/// Returns a random number from 0 to 1, so that many nodes do not do the same at the same time. Each
/// [`RandomState`] has other keys; they keep no secret.
pub fn random() -> f64 {
    let hash = RandomState::new().hash_one(());
    f64::from((hash >> 32) as u32) / f64::from(u32::MAX)
}

/// Wait from which an unchanged failure of a watch is said again: longer than the first two.
const RARE: Duration = Duration::from_secs(2);

/// The failure that was last said; `None` after it is over.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_none()
    }

    /// Ends the failure. Returns whether there was one.
    pub(super) fn end(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Returns whether to say a failure: if it differs from the last one, or is that of a watch that
    /// is retried so rarely.
    pub(super) fn is_said(&mut self, text: String, retry_in: Option<Duration>) -> bool {
        let is_rare = retry_in.is_some_and(|wait| wait >= RARE);
        let is_new = self.0.as_ref() != Some(&text);
        self.0 = Some(text);
        is_new || is_rare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_failure(backoff: &mut Backoff, now: Instant) -> Duration {
        backoff.after_failure(now, (Duration::ZERO, Duration::ZERO), random())
    }

    #[test]
    fn an_unchanged_failure_is_said_again_only_for_a_watch_with_rare_retries() {
        let mut trouble = Trouble::default();
        let mut said = |text: &str, retry_in| trouble.is_said(text.to_owned(), retry_in);
        assert!(said("refused", Some(RARE / 2)) && !said("refused", Some(RARE / 2)));
        assert!(said("refused", Some(RARE)) && said("refused", Some(RARE)));
        assert!(!said("refused", None) && said("reset", None));
        assert!(trouble.end() && !trouble.end() && trouble.is_over());
    }

    /// Returns whether the waits of a thousand nodes are spread evenly up to the limit.
    fn are_spread(waits: &[Duration], limit: Duration) -> bool {
        let counts = (0..10).map(|tenth| {
            let part = limit * tenth / 10..limit * (tenth + 1) / 10;
            waits.iter().filter(|wait| part.contains(*wait)).count()
        });
        waits.iter().all(|wait| *wait <= limit) && counts.into_iter().all(|it| it >= 40)
    }

    #[test]
    fn waits_are_random_up_to_twice_the_time_since_the_first_failure() {
        let begin = Instant::now();
        let mut nodes: Vec<_> = (0..1000).map(|_| Backoff::default()).collect();
        for (milliseconds, limit) in
            [(0, 100), (1, 1600), (800, 1600), (2400, 4800), (12_000, 24_000), (20_000, 30_000)]
        {
            let now = begin + Duration::from_millis(milliseconds);
            let waits: Vec<_> = nodes.iter_mut().map(|it| after_failure(it, now)).collect();
            assert!(are_spread(&waits, Duration::from_millis(limit)), "{limit}: {waits:?}");
        }
    }

    #[test]
    fn the_first_second_of_an_outage_has_two_retries_and_none_is_late_after_it() {
        const OUTAGE: Duration = Duration::from_secs(10);
        let (mut early, nodes) = (0, 1000);
        for _ in 0..nodes {
            let (mut backoff, begin) = (Backoff::default(), Instant::now());
            let mut elapsed = Duration::ZERO;
            while elapsed < OUTAGE {
                elapsed += after_failure(&mut backoff, begin + elapsed);
                early += u32::from(elapsed < Duration::from_secs(1));
            }
            assert!(elapsed <= OUTAGE * 3, "{elapsed:?}");
        }
        assert!(early < nodes * 5 / 2, "{early} retries of {nodes} nodes");
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
        let wait =
            |spread| Backoff::default().after_failure(Instant::now(), (asked, spread), random());
        let waits: Vec<_> = (0..1000).map(|_| wait(Duration::ZERO)).collect();
        assert!(waits.iter().all(|wait| (asked..=asked + FIRST).contains(wait)), "{waits:?}");
        let waits: Vec<_> = (0..1000).map(|_| wait(asked)).collect();
        assert!(waits.iter().all(|wait| (asked..=asked * 2).contains(wait)), "{waits:?}");
        let late = waits.iter().filter(|wait| **wait > asked + asked / 2).count();
        assert!((400..600).contains(&late), "{late} of 1000");
    }
}
