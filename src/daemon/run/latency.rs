//! The latency from events to the kernel.

use std::time::{Duration, Instant};

use engine::ChangeSize;

/// The arrivals that may not be in the kernel, and the time spent on them.
///
/// An arrival is measured once, after the commit that contains it.
#[derive(Debug, Default)]
pub(super) struct Latency {
    /// The time and size of arrivals that may not be in the kernel.
    pending: Vec<(Instant, ChangeSize)>,
    /// Time spent on comparison since the last transaction.
    compared: Duration,
    committed_at: Option<Instant>,
}

/// Maximum number of waiting arrivals whose latency is measured.
const MAX_PENDING: usize = 1_024;

impl Latency {
    /// Adds to the time spent on comparison.
    pub(super) fn compared(&mut self, took: Duration) {
        self.compared += took;
    }

    /// Returns the time spent on comparison since the last call.
    pub(super) fn take_compared(&mut self) -> Duration {
        std::mem::take(&mut self.compared)
    }

    /// Records an arrival.
    pub(super) fn arrived(&mut self, received: Instant, size: ChangeSize) {
        if self.pending.len() < MAX_PENDING {
            self.pending.push((received, size));
        }
    }

    /// Drops the waiting arrivals after everything was compared and nothing differed.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Records a commit.
    pub(super) fn committed(&mut self, now: Instant) {
        self.committed_at = Some(now);
    }

    /// Removes the arrivals of small changes, and returns their latencies. All of them must be in
    /// the kernel at `now`.
    pub(super) fn take_small(&mut self, now: Instant) -> impl Iterator<Item = Duration> {
        let small = self.pending.extract_if(.., |(_, size)| *size == ChangeSize::Small);
        small.map(move |(received, _)| now.saturating_duration_since(received))
    }

    /// Removes the remaining arrivals, and returns their latencies up to the last commit. Arrivals
    /// after it needed no commit. The kernel must hold the desired state.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Duration> {
        let committed_at = self.committed_at;
        let received = self.pending.drain(..).map(|(received, _)| received);
        received.filter_map(move |received| {
            committed_at.filter(|at| *at > received).map(|at| at - received)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::wait::now;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn small_changes_are_measured_at_their_commit_and_large_ones_at_the_last() {
        let start = now();
        let mut latency = Latency::default();
        latency.arrived(start, ChangeSize::Large);
        latency.arrived(start + ms(10), ChangeSize::Small);
        assert_eq!(latency.take_small(start + ms(15)).collect::<Vec<_>>(), [ms(5)]);
        latency.committed(start + ms(15));
        assert_eq!(latency.take_small(start + ms(30)).count(), 0);
        latency.committed(start + ms(30));
        // This one needed no commit.
        latency.arrived(start + ms(40), ChangeSize::Large);
        assert_eq!(latency.take_all().collect::<Vec<_>>(), [ms(30)]);
        assert_eq!(latency.take_all().count(), 0);
    }

    #[test]
    fn arrivals_that_changed_nothing_are_not_measured() {
        let start = now();
        let mut latency = Latency::default();
        latency.arrived(start, ChangeSize::Small);
        latency.forget_pending();
        latency.committed(start + ms(1));
        assert_eq!(latency.take_small(start + ms(1)).count() + latency.take_all().count(), 0);
    }

    #[test]
    fn the_number_of_measured_arrivals_is_limited() {
        let start = now();
        let mut latency = Latency::default();
        for _ in 0..=MAX_PENDING {
            latency.arrived(start, ChangeSize::Small);
        }
        assert_eq!(latency.take_small(start).count(), MAX_PENDING);
    }

    #[test]
    fn the_time_spent_on_comparison_adds_up_until_a_transaction() {
        let mut latency = Latency::default();
        latency.compared(ms(2));
        latency.compared(ms(3));
        assert_eq!([latency.take_compared(), latency.take_compared()], [ms(5), ms(0)]);
    }
}
