//! Whether the daemon keeps the kernel up to date, and whether the node wants traffic.
//!
//! ```text
//!  queued: a change waits ──(HEALTH_TIMEOUT without synced)──> unhealthy
//!     ^  \                                                        |
//!     |   `── synced ──> nothing waits: healthy <──── synced ─────'
//! ```
//!
//! Each family for itself. Reads no clock. Later changes do not move the time since which the first
//! one waits.

use std::time::{Duration, Instant};

use crate::family::Family;

/// How long a change may wait before the daemon counts as unhealthy: twice the 30 s that
/// kube-proxy has for its sync period.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(60);

/// Syncs of both families, and the node.
#[derive(Debug, Default)]
pub(super) struct Health {
    families: [FamilyHealth; 2],
    /// When the daemon made progress last with a change that takes long.
    progressed_at: Option<Instant>,
    pub(super) node_eligible: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct FamilyHealth {
    /// Since when the oldest change waits that is not in the kernel.
    waiting_since: Option<Instant>,
    /// When everything was in the kernel last.
    synced_at: Option<Instant>,
}

/// The answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// By [`Family::ALL`].
    pub(super) families: [FamilyVerdict; 2],
    /// The daemon works: no change waits for too long, or it makes progress.
    pub(super) alive: bool,
    /// The node wants traffic from load balancers.
    pub(super) node_eligible: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FamilyVerdict {
    /// No change waits for too long.
    pub(super) healthy: bool,
    /// How long ago everything was in the kernel; `None` if it never was.
    pub(super) synced_ago: Option<Duration>,
}

impl Health {
    pub(super) fn queued(&mut self, now: Instant) {
        for family in &mut self.families {
            family.waiting_since.get_or_insert(now);
        }
    }

    pub(super) fn synced(&mut self, family: Family, now: Instant) {
        let synced = FamilyHealth { waiting_since: None, synced_at: Some(now) };
        self.families[family.index()] = synced;
    }

    pub(super) fn failed(&mut self, family: Family, now: Instant) {
        self.families[family.index()].waiting_since.get_or_insert(now);
    }

    pub(super) fn progressed(&mut self, now: Instant) {
        self.progressed_at = Some(now);
    }

    pub(super) fn verdict(&self, now: Instant) -> Verdict {
        let ago = |then| now.saturating_duration_since(then);
        let is_short = |since: Option<Instant>| since.map(ago).is_none_or(|it| it < HEALTH_TIMEOUT);
        let families = self.families.map(|family| FamilyVerdict {
            healthy: is_short(family.waiting_since),
            synced_ago: family.synced_at.map(ago),
        });
        let progresses = self.progressed_at.is_some_and(|at| is_short(Some(at)));
        Verdict {
            families,
            alive: progresses || families.iter().all(|family| family.healthy),
            node_eligible: self.node_eligible,
        }
    }
}

impl Verdict {
    /// Whether no change of either family waits for too long.
    pub(super) fn healthy(&self) -> bool {
        self.families.iter().all(|family| family.healthy)
    }

    /// How long ago everything of both families was in the kernel.
    pub(super) fn synced_ago(&self) -> Option<Duration> {
        let [v4, v6] = self.families.map(|family| family.synced_ago);
        Some(v4?.max(v6?))
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
                    Synced => {
                        Family::ALL.into_iter().for_each(|it| health.synced(it, at(*second)));
                    }
                }
            }
            let verdict = health.verdict(at(asked));
            assert_eq!(verdict.healthy(), healthy, "asked at {asked}");
            assert_eq!(verdict.synced_ago(), synced_ago.map(Duration::from_secs));
        }
    }

    #[test]
    fn a_family_that_fails_is_unhealthy_and_the_other_is_not() {
        let (mut health, start) = (Health::default(), Instant::now());
        health.queued(start);
        health.synced(Family::Ip, start);
        health.failed(Family::Ip6, start + Duration::from_secs(1));
        let verdict = health.verdict(start + HEALTH_TIMEOUT);
        assert_eq!(verdict.families.map(|family| family.healthy), [true, false]);
        assert!(!verdict.healthy());
    }

    #[test]
    fn a_daemon_that_makes_progress_is_alive_and_not_healthy() {
        let (mut health, start) = (Health::default(), Instant::now());
        health.queued(start);
        let late = start + HEALTH_TIMEOUT;
        assert!(!health.verdict(late).alive);
        health.progressed(late);
        let verdict = health.verdict(late);
        assert!(verdict.alive && !verdict.healthy());
        assert!(!health.verdict(late + HEALTH_TIMEOUT).alive);
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
