//! How often a watch may ask the server: waits after failures, and turns of lists.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::core::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::backoff::Backoff;

/// Longest wait that a server can ask for. With the random one that follows it no answer stops a
/// watch for longer than 60 s.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// Status of an answer that asks for fewer requests (RFC 6585 section 4). The API server's priority
/// and fairness answers so.
const TOO_MANY_REQUESTS: u16 = 429;

/// Status of a watch whose version is too old.
const EXPIRED: u16 = 410;

/// Range of the waits before the list that follows. A server that was restarted may answer so to all
/// nodes at once.
const SPREAD: Duration = Duration::from_secs(1);

/// Longest range of the random waits that follow the wait that the server asks for.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);

/// Time for which lists take turns after an answer with [`TOO_MANY_REQUESTS`].
const TURNS_FOR: Duration = Duration::from_secs(3600);

/// Returns the wait that the server asks for.
fn asked_wait(status: Option<&Status>) -> Duration {
    let details = status.and_then(|status| status.details.as_ref());
    Duration::from_secs(details.map_or(0, |details| details.retry_after_seconds).into())
}

/// Returns the wait that the server asks for, if it is too long.
pub(super) fn excessive_wait(status: Option<&Status>) -> Option<Duration> {
    Some(asked_wait(status)).filter(|asked| *asked > LONGEST_ASKED)
}

/// The turns of the lists of a daemon. Usually all lists are requested at once. After the server
/// asked for fewer requests, one is in flight at a time. Clones share the turns.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    one: Arc<Semaphore>,
    /// Time of the last answer that asked for fewer requests.
    since: Arc<Mutex<Option<Instant>>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { one: Arc::new(Semaphore::new(1)), since: Arc::default() }
    }
}

impl Turns {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        // A value is replaced as a whole.
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_taken(&self) -> bool {
        self.since().is_some_and(|since| since.elapsed() < TURNS_FOR)
    }
}

/// The pace of one watch.
#[derive(Debug)]
pub(super) struct Pace {
    backoff: Backoff,
    /// Waits after [`EXPIRED`]. The server that answers so is no longer away: earlier failures do
    /// not delay the list.
    expired: Backoff,
    turns: Turns,
    /// Held from the request of a list until its end.
    turn: Option<OwnedSemaphorePermit>,
}

impl Pace {
    pub(super) fn new(turns: &Turns) -> Self {
        let (backoff, expired) = Default::default();
        Self { backoff, expired, turns: turns.clone(), turn: None }
    }

    /// Waits until a list may be requested.
    pub(super) async fn begin_list(&mut self) {
        if self.turn.is_none() && self.turns.are_taken() {
            // The semaphore is never closed.
            self.turn = Arc::clone(&self.turns.one).acquire_owned().await.ok();
        }
    }

    /// Lets other lists begin: this one is complete or failed.
    pub(super) fn end_list(&mut self) {
        self.turn = None;
    }

    /// Returns the wait after a failure, in which the server may have answered with `status`.
    pub(super) fn after_failure(&mut self, now: Instant, status: Option<&Status>) -> Duration {
        let code = status.map(|status| status.code);
        if code == Some(TOO_MANY_REQUESTS) {
            *self.turns.since() = Some(now);
        }
        let asked = asked_wait(status).min(LONGEST_ASKED);
        if code == Some(EXPIRED) {
            return self.expired.after_failure(now, asked, SPREAD);
        }
        // The server may send the same time to all nodes.
        self.backoff.after_failure(now, asked, asked.min(LONGEST_SPREAD))
    }

    /// Forgets failures, of a client that is no longer used.
    pub(super) fn forget_failures(&mut self) {
        (self.backoff, self.expired) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::answer::ask_to_wait;
    use super::*;

    fn status(code: u16, retry_after_seconds: u32) -> Status {
        let mut status = Status { code, ..Status::default() };
        ask_to_wait(&mut status, retry_after_seconds);
        status
    }

    #[test]
    fn lists_take_turns_after_the_server_asked_for_fewer_requests() {
        let turns = Turns::default();
        let (mut first, mut second) = (Pace::new(&turns), Pace::new(&turns));
        let begins = |pace: &mut Pace| pace.begin_list().now_or_never().is_some();
        assert!(begins(&mut first) && begins(&mut second));
        first.after_failure(Instant::now(), Some(&status(503, 0)));
        assert!(begins(&mut first) && begins(&mut second));

        first.after_failure(Instant::now(), Some(&status(429, 0)));
        assert!(begins(&mut first) && begins(&mut first) && !begins(&mut second));
        first.end_list();
        assert!(begins(&mut second) && !begins(&mut first));
        drop(second);
        assert!(begins(&mut first));
    }

    #[tokio::test(start_paused = true)]
    async fn turns_end_after_an_hour() {
        let turns = Turns::default();
        let mut paces = [Pace::new(&turns), Pace::new(&turns)];
        paces[0].after_failure(Instant::now(), Some(&status(429, 0)));
        tokio::time::advance(TURNS_FOR).await;
        for pace in &mut paces {
            assert!(pace.begin_list().now_or_never().is_some());
        }
    }

    #[test]
    fn lists_of_many_nodes_whose_watches_expired_together_begin_within_a_second() {
        let wait = |_| {
            let mut pace = Pace::new(&Turns::default());
            pace.after_failure(Instant::now(), Some(&status(410, 0)))
        };
        let waits: Vec<_> = (0..1000).map(wait).collect();
        for quarter in 0..4 {
            let part = SPREAD * quarter / 4..SPREAD * (quarter + 1) / 4;
            let count = waits.iter().filter(|wait| part.contains(*wait)).count();
            assert!(count > 100, "{count} of 1000 in {part:?}");
        }
    }

    #[test]
    fn lists_after_an_outage_are_not_delayed_but_repeated_ones_are() {
        let mut now = Instant::now();
        let mut pace = Pace::new(&Turns::default());
        for _ in 0..20 {
            now += pace.after_failure(now, None);
        }
        assert!(pace.after_failure(now, Some(&status(410, 0))) <= SPREAD);
        let mut wait = || {
            let wait = pace.after_failure(now, Some(&status(410, 0)));
            now += wait;
            wait
        };
        let waits: Vec<_> = (0..100).map(|_| wait()).collect();
        assert!(waits.iter().any(|wait| *wait > SPREAD * 10), "{waits:?}");
    }

    #[test]
    fn the_server_is_asked_again_after_the_time_that_it_gave_but_within_a_minute() {
        for (seconds, least, most) in [(0, 0, 1), (7, 7, 14), (300, 30, 60), (u32::MAX, 30, 60)] {
            let mut pace = Pace::new(&Turns::default());
            let wait = pace.after_failure(Instant::now(), Some(&status(503, seconds))).as_secs();
            assert!((least..=most).contains(&wait), "{wait} s after {seconds} s");
        }
    }
}
