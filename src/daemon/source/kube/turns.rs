//! The turns of lists at one server.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Time for which lists take turns after the server asked for fewer requests.
const TURNS_FOR: Duration = Duration::from_secs(3600);

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
    /// The server asks for fewer requests.
    pub(super) fn take(&self, now: Instant) {
        *self.since.lock() = Some(now);
    }

    fn are_taken(&self) -> bool {
        self.since.lock().is_some_and(|since| since.elapsed() < TURNS_FOR)
    }
}

/// The turn of one watch.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    /// Held from the request of a list until its end.
    held: Option<OwnedSemaphorePermit>,
}

impl Turn {
    pub(super) fn of(turns: &Turns) -> Self {
        Self { turns: turns.clone(), held: None }
    }

    /// Waits until a list may be requested.
    pub(super) async fn begin(&mut self) {
        if self.held.is_none() && self.turns.are_taken() {
            // The semaphore is never closed.
            self.held = Arc::clone(&self.turns.one).acquire_owned().await.ok();
        }
    }

    /// Lets other lists begin: this one is complete or failed.
    pub(super) fn end(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn lists_take_turns_after_the_server_asked_for_fewer_requests() {
        let turns = Turns::default();
        let (mut first, mut second) = (Turn::of(&turns), Turn::of(&turns));
        let begins = |turn: &mut Turn| turn.begin().now_or_never().is_some();
        assert!(begins(&mut first) && begins(&mut second));

        turns.take(Instant::now());
        assert!(begins(&mut first) && begins(&mut first) && !begins(&mut second));
        first.end();
        assert!(begins(&mut second) && !begins(&mut first));
        drop(second);
        assert!(begins(&mut first));
    }

    #[tokio::test(start_paused = true)]
    async fn turns_end_after_an_hour() {
        let turns = Turns::default();
        turns.take(Instant::now());
        tokio::time::advance(TURNS_FOR).await;
        for mut turn in [Turn::of(&turns), Turn::of(&turns)] {
            assert!(turn.begin().now_or_never().is_some());
        }
    }
}
