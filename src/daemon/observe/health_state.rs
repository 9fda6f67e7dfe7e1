//! Health of the daemon: whether the kernel is up to date, and whether the node accepts traffic.
//!
//! ```text
//!  queued: a change waits ──(HEALTH_TIMEOUT without synced)──> unhealthy
//!     ^  \                                                        |
//!     |   `── synced ──> nothing waits: healthy <──── synced ─────'
//! ```
//!
//! Each family has its own state. Reads no clock. Later changes do not reset the time since which
//! the first one waits.
//!
//! The daemon is ready once every family that can be programmed was synced; it stays ready, unless
//! the cluster has no Node object of its name: then the name is wrong, and every endpoint counts as
//! remote. Until the first sync it is alive as long as the API server sends something at least every [`START_LIMIT`]. After
//! that, an unreachable API server is no reason for a restart.

use std::time::{Duration, Instant};

use nft::family::Family;

/// Longest time that a change may wait before the daemon is unhealthy: twice the 30 s of
/// kube-proxy's sync period.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest silence of the API server before the first sync. The kubelet's longest back-off between
/// restarts of a container is also 5 minutes. A shorter limit would restart the daemon more often
/// than that, and an upgrade of the server takes less time.
const START_LIMIT: Duration = Duration::from_mins(5);

/// Syncs of both families, and the node.
#[derive(Debug, Default)]
pub(super) struct Health {
    families: [FamilyHealth; 2],
    /// Time of the last progress with a change that takes long.
    progressed_at: Option<Instant>,
    /// Time when the API server last sent something, or when the daemon began to wait for it;
    /// `None` without an API server.
    source_at: Option<Instant>,
    /// The first sync is done.
    is_ready: bool,
    /// Everything was listed, but never the Node object of this node.
    pub(super) lacks_node: bool,
    pub(super) node_eligible: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct FamilyHealth {
    /// Time since which the oldest uncommitted change waits.
    waiting_since: Option<Instant>,
    /// Time when everything was last in the kernel.
    synced_at: Option<Instant>,
    /// The kernel refuses the table, or another program owns it.
    is_blocked: bool,
}

/// Answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Indexed like [`Family::ALL`].
    pub(super) families: [FamilyVerdict; 2],
    /// The daemon works: its start makes progress, and no change waits for too long unless it makes
    /// progress.
    pub(super) alive: bool,
    /// Every family that can be programmed was synced once, and this node has a Node object.
    pub(super) ready: bool,
    /// This node never had a Node object, although it needs one.
    pub(super) lacks_node: bool,
    /// The node accepts traffic from load balancers.
    pub(super) node_eligible: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FamilyVerdict {
    /// No change waits for too long.
    pub(super) healthy: bool,
    /// Time since everything was in the kernel; `None` if it never was.
    pub(super) synced_ago: Option<Duration>,
}

impl Health {
    pub(super) fn queued(&mut self, now: Instant) {
        for family in &mut self.families {
            family.waiting_since.get_or_insert(now);
        }
    }

    pub(super) fn synced(&mut self, family: Family, now: Instant) {
        let synced = FamilyHealth { waiting_since: None, synced_at: Some(now), is_blocked: false };
        self.families[family.index()] = synced;
        self.note_ready();
    }

    pub(super) fn failed(&mut self, family: Family, is_blocked: bool, now: Instant) {
        let health = &mut self.families[family.index()];
        health.waiting_since.get_or_insert(now);
        health.is_blocked = is_blocked;
        self.note_ready();
    }

    /// Returns whether every family that can be programmed was synced once.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn note_ready(&mut self) {
        let was_synced = |family: &FamilyHealth| family.synced_at.is_some();
        self.is_ready |= self.families.iter().any(was_synced)
            && self.families.iter().all(|family| was_synced(family) || family.is_blocked);
    }

    /// Records that the API server sent something, or that the daemon began to wait for it.
    pub(super) fn source_heard(&mut self, now: Instant) {
        self.source_at = Some(now);
    }

    pub(super) fn progressed(&mut self, now: Instant) {
        self.progressed_at = Some(now);
    }

    pub(super) fn verdict(&self, now: Instant) -> Verdict {
        let ago = |then| now.saturating_duration_since(then);
        let healthy = |since: Option<Instant>| since.map(ago).is_none_or(|it| it < HEALTH_TIMEOUT);
        let families = self.families.map(|family| FamilyVerdict {
            healthy: healthy(family.waiting_since),
            synced_ago: family.synced_at.map(ago),
        });
        let is_silent = self.source_at.map(ago).is_some_and(|it| it >= START_LIMIT);
        let progresses = self.progressed_at.is_some_and(|at| healthy(Some(at)));
        Verdict {
            families,
            alive: (self.is_ready || !is_silent)
                && (progresses || families.iter().all(|family| family.healthy)),
            ready: self.is_ready && !self.lacks_node,
            lacks_node: self.lacks_node,
            node_eligible: self.node_eligible,
        }
    }
}

impl Verdict {
    /// Returns whether no change of either family waits for too long.
    pub(super) fn healthy(&self) -> bool {
        self.families.iter().all(|family| family.healthy)
    }

    /// Returns the time since everything of both families was in the kernel.
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
        health.failed(Family::Ip6, false, start + Duration::from_secs(1));
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
    fn a_daemon_is_ready_when_every_family_that_can_be_programmed_is_synced() {
        #[derive(Clone, Copy)]
        enum Step {
            Done,
            Failed,
            Blocked,
        }
        use Step::{Blocked, Done, Failed};
        let [v4, v6] = Family::ALL;
        for (syncs, ready) in [
            (&[][..], false),
            (&[(v4, Done)], false),
            (&[(v4, Done), (v6, Failed)], false),
            (&[(v4, Blocked), (v6, Blocked)], false),
            (&[(v4, Done), (v6, Done)], true),
            (&[(v4, Done), (v6, Blocked)], true),
            (&[(v4, Blocked), (v6, Done)], true),
            (&[(v6, Blocked), (v6, Failed), (v4, Done)], false),
            (&[(v4, Done), (v6, Done), (v4, Failed), (v6, Blocked)], true),
        ] {
            let (mut health, now) = (Health::default(), Instant::now());
            for (family, sync) in syncs {
                match sync {
                    Done => health.synced(*family, now),
                    Failed => health.failed(*family, false, now),
                    Blocked => health.failed(*family, true, now),
                }
            }
            assert_eq!(health.verdict(now).ready, ready);
        }
    }

    #[test]
    fn a_start_without_an_api_server_is_not_alive_and_an_established_daemon_is() {
        let (mut health, start) = (Health::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(health.verdict(at(10_000)).alive, "no API server to wait for");
        health.source_heard(start);
        assert!(health.verdict(at(299)).alive);
        assert!(!health.verdict(at(300)).alive);
        health.source_heard(at(300));
        assert!(health.verdict(at(599)).alive);
        assert!(!health.verdict(at(600)).alive);
        Family::ALL.into_iter().for_each(|family| health.synced(family, at(600)));
        assert!(health.verdict(at(100_000)).alive);
    }

    #[test]
    fn a_daemon_without_a_node_object_is_alive_and_not_ready() {
        let (mut health, now) = (Health { lacks_node: true, ..Health::default() }, Instant::now());
        health.source_heard(now);
        Family::ALL.into_iter().for_each(|family| health.synced(family, now));
        let verdict = health.verdict(now + START_LIMIT);
        assert!(!verdict.ready && verdict.alive);
        health.lacks_node = false;
        assert!(health.verdict(now).ready);
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
