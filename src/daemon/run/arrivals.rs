//! The arrivals: events that the source sent, and the wait for ServiceCIDRs.

use std::time::{Duration, Instant};

use engine::model::{Arrival, Event, Resource};
use tokio::sync::mpsc;

/// The source's channel. Objects of all kinds are listed before the first commit, but a commit waits
/// for ServiceCIDRs alone at most [`SERVICE_CIDRS_LIMIT`].
#[derive(Debug)]
pub(super) struct Arrivals {
    receiver: mpsc::Receiver<Arrival>,
    /// End of the wait for ServiceCIDRs; `Some` while only they are unlisted.
    service_cidrs_due: Option<Instant>,
}

/// Maximum delay of the first commit while only ServiceCIDRs are unlisted: servers may forbid them
/// or never answer.
const SERVICE_CIDRS_LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of arrivals before a commit, so that a source that never pauses does not
/// prevent commits.
const MAX_ARRIVALS: usize = 1_000;

impl Arrivals {
    pub(super) fn new(receiver: mpsc::Receiver<Arrival>) -> Self {
        Self { receiver, service_cidrs_due: None }
    }

    /// Waits for an arrival; returns `None` once the source has ended.
    pub(super) async fn next(&mut self) -> Option<Arrival> {
        self.receiver.recv().await
    }

    /// Returns the arrivals that wait in the channel.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = Arrival> {
        std::iter::from_fn(|| self.receiver.try_recv().ok()).take(MAX_ARRIVALS)
    }

    /// Returns whether no arrival waits.
    pub(super) fn is_empty(&self) -> bool {
        self.receiver.is_empty()
    }

    /// Returns the number of arrivals that wait.
    pub(super) fn len(&self) -> usize {
        self.receiver.len()
    }

    /// Returns when ServiceCIDRs count as listed.
    pub(super) fn service_cidrs_due(&self) -> Option<Instant> {
        self.service_cidrs_due
    }

    /// Starts the wait for ServiceCIDRs if only they are `unlisted`, and ends it otherwise.
    pub(super) fn limit_service_cidrs(
        &mut self,
        unlisted: impl Iterator<Item = Resource>,
        now: Instant,
    ) {
        let due = self.service_cidrs_due.unwrap_or(now + SERVICE_CIDRS_LIMIT);
        self.service_cidrs_due = unlisted.eq([Resource::ServiceCidrs]).then_some(due);
    }

    /// Returns the arrival that lists no ServiceCIDRs, after the wait for them.
    pub(super) fn without_service_cidrs(now: Instant) -> Arrival {
        let limit = SERVICE_CIDRS_LIMIT.as_secs();
        tracing::warn!("ServiceCIDRs are not listed after {limit} s: going on without them");
        Arrival::new(vec![Event::Listed(Resource::ServiceCidrs)], now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::wait::now;

    const CIDRS: &[Resource] = &[Resource::ServiceCidrs];

    #[test]
    fn the_wait_for_service_cidrs_begins_when_only_they_are_unlisted() {
        let start = now();
        let others = &[Resource::Services, Resource::ServiceCidrs][..];
        // Seconds after the start, the kinds unlisted then, and the end of the wait.
        let table = [
            (0, Resource::ALL.as_slice(), None),
            (1, others, None),
            (2, CIDRS, Some(12)),
            (5, CIDRS, Some(12)),
            (6, others, None),
            (7, CIDRS, Some(17)),
            (8, &[], None),
        ];
        let (_sender, receiver) = mpsc::channel(1);
        let mut arrivals = Arrivals::new(receiver);
        for (at, unlisted, due) in table {
            let now = start + Duration::from_secs(at);
            arrivals.limit_service_cidrs(unlisted.iter().copied(), now);
            let due = due.map(|due| start + Duration::from_secs(due));
            assert_eq!(arrivals.service_cidrs_due(), due, "after {at} s");
        }
    }

    #[test]
    fn a_source_that_never_pauses_does_not_prevent_commits() {
        let (sender, receiver) = mpsc::channel(MAX_ARRIVALS + 1);
        for _ in 0..=MAX_ARRIVALS {
            sender.try_send(Arrival::new(Vec::new(), now())).unwrap();
        }
        let mut arrivals = Arrivals::new(receiver);
        assert_eq!(arrivals.waiting().count(), MAX_ARRIVALS);
        assert!(!arrivals.is_empty());
    }
}
