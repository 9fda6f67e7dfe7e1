//! The endpoints that serve each UDP frontend, before and after a commit.
//!
//! The tables name the endpoints of new flows only. An established flow may continue to an endpoint
//! that is terminating or that a policy no longer selects.

use std::num::NonZeroU16;
use std::sync::Arc;

use ahash::HashMap;
use nft::family::Family;

use super::packed_map::sorted;
use crate::model::{Protocol, Target};
use crate::ruleset::Frontend;

/// Endpoints, each once, sorted.
pub type Targets = Arc<[Target]>;

/// A change of the endpoints that serve a UDP frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingChange {
    /// A UDP frontend.
    pub frontend: Frontend,
    /// Endpoints before; `None` if the frontend did not exist.
    pub before: Option<Targets>,
    /// Endpoints now; `None` if the frontend no longer exists.
    pub after: Option<Targets>,
}

/// Serving endpoints of all UDP frontends.
#[derive(Debug, Default)]
pub struct Serving {
    /// The state of the last commit that concerned the frontend.
    committed: HashMap<Frontend, Targets>,
    /// Changes to that state. Of other protocols those frontends alone that are no more.
    desired: HashMap<Frontend, Option<Targets>>,
    /// A frontend or an endpoint of another protocol changed.
    pub(super) have_others_changed: bool,
    /// Port ranges of UDP, or their endpoints, changed.
    pub(super) have_ranges_changed: bool,
}

impl Serving {
    /// Sets the desired endpoints of a frontend; `None` removes the frontend.
    pub(super) fn set_desired(&mut self, frontend: Frontend, targets: Option<Targets>) {
        let is_udp = frontend.protocol() == Protocol::Udp;
        let is_of_ranges = matches!(frontend, Frontend::Ranges { .. });
        self.have_ranges_changed |=
            is_udp && is_of_ranges && self.committed.get(&frontend) != targets.as_ref();
        self.have_others_changed |= !is_udp;
        if is_udp && self.committed.get(&frontend) == targets.as_ref() {
            self.desired.remove(&frontend);
        } else {
            self.desired.insert(frontend, targets);
        }
    }

    /// Drops a pending change.
    pub(super) fn forget(&mut self, frontend: &Frontend) {
        self.desired.remove(frontend);
    }

    /// Takes the changes of a family, which the kernel has applied, by frontend.
    pub fn take(&mut self, family: Family) -> Vec<ServingChange> {
        let mut changes = Vec::new();
        for (frontend, after) in self.desired.extract_if(|it, _| it.family() == family) {
            let before = match &after {
                Some(targets) => self.committed.insert(frontend, Arc::clone(targets)),
                None => self.committed.remove(&frontend),
            };
            changes.push(ServingChange { frontend, before, after });
        }
        changes.sort_unstable_by_key(|change| change.frontend);
        changes
    }

    /// Returns whether a frontend or an endpoint of TCP or SCTP changed since the last call.
    pub fn take_changes_of_others(&mut self) -> bool {
        std::mem::take(&mut self.have_others_changed)
    }

    /// Returns whether port ranges of UDP, or their endpoints, changed since the last call.
    pub fn take_changes_of_ranges(&mut self) -> bool {
        std::mem::take(&mut self.have_ranges_changed)
    }

    /// Returns the endpoints of a frontend after the last commit that concerned it, sorted.
    pub fn targets(&self, frontend: &Frontend) -> Option<&Targets> {
        self.committed.get(frontend)
    }

    /// Returns the node ports after their last commits, sorted.
    pub fn node_ports(&self) -> Vec<(Family, NonZeroU16)> {
        let node_ports = self.committed.keys().filter_map(|frontend| {
            let Frontend::NodePort { family, port, .. } = frontend else { return None };
            Some((*family, *port))
        });
        sorted(node_ports)
    }

    /// Discards pending changes. The state that this process installed stays. Frontends of other
    /// origin get the endpoints in `found`, which are those of new flows only.
    ///
    /// Every frontend must be set again by [`Serving::set_desired`]; then [`Serving::sweep`] must follow.
    pub(super) fn adopt(&mut self, found: impl Iterator<Item = (Frontend, Vec<Target>)>) {
        self.desired = HashMap::default();
        for (frontend, mut targets) in found {
            targets.sort_unstable();
            targets.dedup();
            self.committed.entry(frontend).or_insert_with(|| targets.into());
        }
    }

    /// Removes every frontend that no service has.
    pub(super) fn sweep(&mut self, is_claimed: impl Fn(&Frontend) -> bool) {
        let unclaimed = self.committed.keys().filter(|frontend| !is_claimed(frontend));
        self.desired.extend(unclaimed.map(|frontend| (*frontend, None)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(last: u8) -> Target {
        Target { address: [10, 244, 0, last].into(), port: NonZeroU16::new(53).unwrap() }
    }

    fn endpoints(lasts: &[u8]) -> Option<Targets> {
        Some(lasts.iter().copied().map(target).collect())
    }

    const FRONTEND: Frontend =
        Frontend::NodePort { family: Family::Ip, protocol: Protocol::Udp, port: NonZeroU16::MIN };

    fn change(before: Option<Targets>, after: Option<Targets>) -> [ServingChange; 1] {
        [ServingChange { frontend: FRONTEND, before, after }]
    }

    #[test]
    fn a_change_is_taken_once() {
        let mut serving = Serving::default();
        serving.set_desired(FRONTEND, endpoints(&[1, 2]));
        assert_eq!(serving.take(Family::Ip), change(None, endpoints(&[1, 2])));
        assert_eq!(serving.take(Family::Ip), []);
        serving.set_desired(FRONTEND, endpoints(&[2]));
        serving.set_desired(FRONTEND, endpoints(&[1, 2]));
        assert_eq!(serving.take(Family::Ip), []);
        serving.set_desired(FRONTEND, None);
        assert_eq!(serving.take(Family::Ip), change(endpoints(&[1, 2]), None));
    }

    /// Endpoints that left with a refused transaction stay pending.
    #[test]
    fn a_change_survives_a_read_back() {
        let mut serving = Serving::default();
        serving.set_desired(FRONTEND, endpoints(&[1, 2]));
        serving.take(Family::Ip);
        serving.set_desired(FRONTEND, endpoints(&[2]));
        serving.adopt(std::iter::empty());
        assert_eq!(serving.take(Family::Ip), [], "nothing is known until it is stated again");
        serving.set_desired(FRONTEND, endpoints(&[2]));
        assert_eq!(serving.take(Family::Ip), change(endpoints(&[1, 2]), endpoints(&[2])));
    }

    #[test]
    fn endpoints_found_in_the_kernel_served_before() {
        let mut serving = Serving::default();
        serving.adopt([(FRONTEND, vec![target(3), target(1), target(3)])].into_iter());
        serving.sweep(|_| false);
        assert_eq!(serving.take(Family::Ip), change(endpoints(&[1, 3]), None));
    }
}
