//! When the table is read: at the start, after a failure, and when another program may have changed
//! it.

use std::time::{Duration, Instant};

/// The readings of the table.
#[derive(Debug)]
pub(super) struct Readings {
    /// When the next one is due; `None` while what the kernel holds is known.
    due: Option<Instant>,
    /// Failures since the last transaction that was applied; each doubles the pause.
    failures: u32,
}

/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Readings {
    /// Returns readings of which the first is due.
    pub(super) fn new(now: Instant) -> Self {
        Self { due: Some(now), failures: 0 }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Lets the table be read.
    pub(super) fn request(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Lets the table be read after a pause, twice as long after each failure.
    pub(super) fn failed(&mut self, now: Instant) {
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        self.due = Some(now + pause.min(LONGEST_PAUSE));
    }

    /// Records that the table was read.
    pub(super) fn done(&mut self) {
        self.due = None;
    }

    /// Records that a transaction was applied.
    pub(super) fn applied(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // The first time is any time.
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute_until_a_transaction_is_applied() {
        let start = Instant::now();
        let mut readings = Readings::new(start);
        assert_eq!(readings.due(), Some(start));
        readings.done();
        assert_eq!(readings.due(), None);
        let pauses: Vec<_> = (0..8)
            .map(|_| {
                readings.failed(start);
                (readings.due().unwrap() - start).as_millis()
            })
            .collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        readings.applied();
        readings.failed(start);
        assert_eq!(readings.due(), Some(start + FIRST_PAUSE));
        readings.request(start);
        assert_eq!(readings.due(), Some(start));
    }
}
