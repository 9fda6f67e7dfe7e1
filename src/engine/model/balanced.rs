//! The state of scheduler `lc`: its services, whose turn it is, and their shares.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use ahash::HashMap;

use super::name::ObjectName;
use super::protocol::Protocol;
use super::scheduler::Scheduler;
use super::shares::{self, EVEN, Share};
use super::target::Target;
use super::weights::Weight;

/// All services with scheduler `lc`, if it is in use.
#[derive(Debug, Default)]
pub(super) struct Balanced {
    pub(super) is_on: bool,
    pub(super) services: BTreeMap<ObjectName, Shares>,
    /// The service that was adjusted last; the next adjustment continues after it.
    pub(super) last: Option<ObjectName>,
    /// Slots that may change now; below 0 after a change that was larger.
    pub(super) allowance: i64,
}

/// The shares of a service's endpoints; those with an even share are not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares(HashMap<(Protocol, Target), Share>);

impl Balanced {
    /// Records the scheduler of a service, or that it is gone.
    pub(super) fn note(&mut self, name: &ObjectName, scheduler: Option<Scheduler>) {
        if !self.is_on {
            return;
        }
        if scheduler != Some(Scheduler::LeastConnections) {
            self.services.remove(name);
        } else if !self.services.contains_key(name) {
            self.services.insert(name.clone(), Shares::default());
        }
    }

    pub(super) fn shares(&self, name: &ObjectName) -> Option<&Shares> {
        self.services.get(name)
    }

    /// Returns the services after the last one that was adjusted, and then the others.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = &ObjectName> {
        let start = self.last.as_ref().map_or(Unbounded, Excluded);
        let after = self.services.range::<ObjectName, _>((start, Unbounded));
        let first = self.services.iter().take(self.services.len() - after.clone().count());
        after.chain(first).map(|(name, _)| name)
    }
}

impl Shares {
    /// Returns whether every endpoint has an even share.
    pub(super) fn are_even(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the share of an endpoint.
    pub(super) fn of(&self, protocol: Protocol, target: &Target) -> Share {
        self.0.get(&(protocol, *target)).copied().unwrap_or(EVEN)
    }

    /// Returns the number of slots of each of these endpoints; `None` if their weights alone
    /// decide.
    pub(super) fn slots(
        &self,
        protocol: Protocol,
        targets: &[Target],
        weights: Option<&[Weight]>,
    ) -> Option<Vec<Weight>> {
        if self.are_even() {
            return None;
        }
        let shares: Vec<_> = targets.iter().map(|target| self.of(protocol, target)).collect();
        let is_even = targets.len() < 2 || shares::are_even(shares.iter().copied());
        (!is_even).then(|| shares::slots(weights, &shares))
    }

    pub(super) fn set(&mut self, key: (Protocol, Target), share: Share) {
        match share {
            EVEN => self.0.remove(&key),
            _ => self.0.insert(key, share),
        };
    }
}
