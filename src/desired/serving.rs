//! Which endpoints serve each UDP frontend, before and after a commit.
//!
//! What the tables say is not enough: they name the endpoints for new flows, and a flow that is
//! there already may go on to one that is ending or that a policy no longer chooses.

use std::num::NonZeroU16;
use std::sync::Arc;

use ahash::HashMap;

use super::{Fragment, KeptFragment, Key};
use crate::diff::Keep;
use crate::model::{Protocol, Target};
use crate::nft::Family;

/// Endpoints, each once and sorted.
pub type Targets = Arc<[Target]>;

/// What a commit has changed in who serves one UDP frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingChange {
    /// A frontend or node port of UDP.
    pub key: Key,
    /// Those that served before; `None` if there was no such frontend.
    pub before: Option<Targets>,
    /// Those that serve now; `None` if there is no such frontend any more.
    pub after: Option<Targets>,
}

/// Serving endpoints of all UDP frontends.
#[derive(Debug, Default)]
pub(super) struct Serving {
    /// As of the last commit that concerned the frontend.
    committed: HashMap<Key, Targets>,
    /// Where that is to change.
    wanted: HashMap<Key, Option<Targets>>,
}

impl Serving {
    /// States who is to serve `key`; `None` if it is to be there no more.
    pub(super) fn want(&mut self, key: Key, targets: Option<Targets>) {
        if self.committed.get(&key) == targets.as_ref() {
            self.wanted.remove(&key);
        } else {
            self.wanted.insert(key, targets);
        }
    }

    /// Takes off the changes that are in the kernel.
    pub(super) fn take(&mut self, is_committed: impl Fn(&Key) -> bool) -> Vec<ServingChange> {
        let mut changes = Vec::new();
        for (key, after) in self.wanted.extract_if(|key, _| is_committed(key)) {
            let before = match &after {
                Some(targets) => self.committed.insert(key, Arc::clone(targets)),
                None => self.committed.remove(&key),
            };
            changes.push(ServingChange { key, before, after });
        }
        changes
    }

    /// The node ports as of their last commits.
    pub(super) fn node_ports(&self) -> impl Iterator<Item = (Family, NonZeroU16)> {
        self.committed.keys().filter_map(|key| {
            let Key::NodePort { family, port, .. } = key else { return None };
            Some((*family, *port))
        })
    }

    /// Starts over from what the kernel holds. What it was made to hold here is remembered; of
    /// what others left in it only the endpoints of new flows are known.
    ///
    /// Everything must be stated again, and then [`Serving::sweep`] be called.
    pub(super) fn observe(&mut self, installed: &HashMap<Key, KeptFragment>) {
        self.wanted = HashMap::default();
        for (key, fragment) in installed.iter().filter(|(key, _)| is_udp(key)) {
            self.committed.entry(*key).or_insert_with(|| targets(&Fragment::restore(fragment)));
        }
    }

    /// Removes every frontend that nobody asks for.
    pub(super) fn sweep(&mut self, is_claimed: impl Fn(&Key) -> bool) {
        let unclaimed = self.committed.keys().filter(|key| !is_claimed(key));
        self.wanted.extend(unclaimed.map(|key| (*key, None)));
    }
}

fn is_udp(key: &Key) -> bool {
    let udp = Protocol::Udp;
    matches!(key, Key::Frontend { protocol, .. } | Key::NodePort { protocol, .. } if *protocol == udp)
}

fn targets(fragment: &Fragment) -> Targets {
    let slots = fragment.slots.iter().chain(&fragment.local_slots);
    let mut targets: Vec<_> = slots.flatten().copied().collect();
    targets.sort_unstable();
    targets.dedup();
    targets.into()
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

    fn key(protocol: Protocol) -> Key {
        Key::Frontend { address: [10, 96, 0, 10].into(), protocol, port: NonZeroU16::MIN }
    }

    const ALL: fn(&Key) -> bool = |_| true;
    const NONE: fn(&Key) -> bool = |_| false;

    #[test]
    fn a_change_is_told_once_and_only_when_it_is_in_the_kernel() {
        let key = key(Protocol::Udp);
        let mut serving = Serving::default();
        serving.want(key, endpoints(&[1, 2]));
        assert_eq!(serving.take(NONE), []);
        let appeared = ServingChange { key, before: None, after: endpoints(&[1, 2]) };
        assert_eq!(serving.take(ALL), [appeared]);
        assert_eq!(serving.take(ALL), []);
        serving.want(key, endpoints(&[2]));
        serving.want(key, endpoints(&[1, 2]));
        assert_eq!(serving.take(ALL), []);
        serving.want(key, None);
        assert_eq!(
            serving.take(ALL),
            [ServingChange { key, before: endpoints(&[1, 2]), after: None }]
        );
    }

    /// Case 99: the endpoints that left with a transaction that was refused are not forgotten.
    #[test]
    fn a_change_survives_that_the_kernel_is_read_again() {
        let key = key(Protocol::Udp);
        let mut serving = Serving::default();
        serving.want(key, endpoints(&[1, 2]));
        serving.take(ALL);
        serving.want(key, endpoints(&[2]));
        serving.observe(&HashMap::default());
        assert_eq!(serving.take(ALL), [], "until it is stated again nothing is known");
        serving.want(key, endpoints(&[2]));
        let change = ServingChange { key, before: endpoints(&[1, 2]), after: endpoints(&[2]) };
        assert_eq!(serving.take(ALL), [change]);
    }

    #[test]
    fn what_an_earlier_run_left_in_the_slots_served_before() {
        let (udp, tcp) = (key(Protocol::Udp), key(Protocol::Tcp));
        let local_slots = [Some(target(3)), Some(target(1))].into();
        let slots = [Some(target(1)), None].into();
        let found = Fragment { slots, local_slots, ..Fragment::default() };
        let mut serving = Serving::default();
        serving.observe(&[(udp, found.clone().keep()), (tcp, found.keep())].into_iter().collect());
        serving.sweep(NONE);
        let change = ServingChange { key: udp, before: endpoints(&[1, 3]), after: None };
        assert_eq!(serving.take(ALL), [change]);
    }
}
