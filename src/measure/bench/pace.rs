//! The rate of events.

use std::time::{Duration, Instant};

use crate::figures::{interval, now};

/// Limits the rate of events: each waits until it is due.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    due: Instant,
}

impl Pace {
    /// Creates a pace of `rate` events per second; 0 does not wait.
    pub(super) fn new(rate: u32) -> Self {
        Self { interval: interval(rate), due: now() }
    }

    /// Waits until the next event is due.
    pub(super) fn wait(&mut self) {
        std::thread::sleep(self.due.saturating_duration_since(now()));
        self.due = now().max(self.due) + self.interval;
    }
}
