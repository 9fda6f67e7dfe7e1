//! Whether the daemon keeps the kernel up to date, and whether the node wants traffic.
//!
//! ```text
//!  queued: a change waits ──(HEALTH_TIMEOUT without synced)──> unhealthy
//!     ^  \                                                        |
//!     |   `── synced ──> nothing waits: healthy <──── synced ─────'
//! ```
//!
//! Reads no clock. Later changes do not move the time since which the first one waits.

use std::time::{Duration, Instant};

/// How long a change may wait before the daemon counts as unhealthy: twice the 30 s that
/// kube-proxy has for its sync period.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(60);

/// What was last heard of syncs and of the node.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Since when the oldest change waits that is not in the kernel.
    waiting_since: Option<Instant>,
    /// When everything was in the kernel last.
    synced_at: Option<Instant>,
    pub(super) node_eligible: bool,
}

/// The answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// No change waits for too long.
    pub(super) healthy: bool,
    /// The node wants traffic from load balancers.
    pub(super) node_eligible: bool,
    /// How long ago everything was in the kernel; `None` if it never was.
    pub(super) synced_ago: Option<Duration>,
}

impl Health {
    pub(super) fn queued(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    pub(super) fn synced(&mut self, now: Instant) {
        self.waiting_since = None;
        self.synced_at = Some(now);
    }

    pub(super) fn verdict(&self, now: Instant) -> Verdict {
        let ago = |then| now.saturating_duration_since(then);
        Verdict {
            healthy: self.waiting_since.map(ago).is_none_or(|waited| waited < HEALTH_TIMEOUT),
            node_eligible: self.node_eligible,
            synced_ago: self.synced_at.map(ago),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "some instant to count from")]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Told {
        Queued,
        Synced,
    }
    use Told::{Queued, Synced};

    #[test]
    fn a_change_may_wait_less_than_the_timeout() {
        //   told at seconds                                     asked  healthy  synced ago
        for (told, asked, healthy, synced_ago) in [
            (&[][..], 1_000, true, None),
            (&[(0, Queued)], 59, true, None),
            (&[(0, Queued)], 60, false, None),
            (&[(0, Queued), (50, Queued)], 60, false, None),
            (&[(0, Queued), (10, Synced)], 1_000, true, Some(990)),
            (&[(0, Queued), (90, Synced)], 91, true, Some(1)),
            (&[(0, Synced), (10, Queued)], 69, true, Some(69)),
            (&[(0, Synced), (10, Queued)], 70, false, Some(70)),
            (&[(0, Queued), (10, Synced), (11, Queued)], 70, true, Some(60)),
            (&[(0, Queued), (10, Synced), (11, Queued)], 71, false, Some(61)),
            (&[(9, Queued)], 0, true, None),
        ] {
            let start = Instant::now();
            let at = |second| start + Duration::from_secs(second);
            let mut health = Health::default();
            for (second, told) in told {
                match told {
                    Queued => health.queued(at(*second)),
                    Synced => health.synced(at(*second)),
                }
            }
            let verdict = health.verdict(at(asked));
            assert_eq!(verdict.healthy, healthy, "asked at {asked}");
            assert_eq!(verdict.synced_ago, synced_ago.map(Duration::from_secs));
        }
    }

    #[test]
    fn a_node_is_not_eligible_until_it_is_known_to_be() {
        let mut health = Health::default();
        let now = Instant::now();
        assert!(!health.verdict(now).node_eligible);
        health.node_eligible = true;
        assert!(health.verdict(now).node_eligible);
        health.node_eligible = false;
        assert!(!health.verdict(now).node_eligible);
    }
}
