//! Which service a frontend belongs to, when several claim it.
//!
//! The oldest wins, then the first by name, so the winner does not depend on the order of events.

use super::frontends::Frontends;
use crate::model::{Cluster, ObjectName, ObjectRef, Problem};
use crate::ruleset::Frontend;

/// Age and name of a claimant; the lowest wins.
pub(super) type Precedence = (i64, ObjectName);

/// What a service gets when it claims a frontend.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The frontend is its own.
    Held,
    /// The frontend is its own, and was this service's before, which is to be updated.
    TakenFrom(ObjectName),
    /// The frontend is this service's or will be; the claimant waits from now on.
    HeldBy(ObjectName),
    /// The frontend was its own and is to be this service's, which is to be updated: the claimant
    /// has become the younger.
    YieldedTo(ObjectName),
    /// The frontend is another service's, as it was before.
    StillHeld,
}

/// What remains of a frontend that a service gives back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// No service claims it.
    Free,
    /// It belongs to another service.
    InUse,
    /// This service waits for it and is to be updated.
    Awaited(ObjectName),
}

/// The precedence of a service: the least one gets a contested frontend.
pub fn precedence(cluster: &Cluster, name: &ObjectName) -> Precedence {
    (cluster.created(name).unwrap_or(i64::MAX), name.clone())
}

/// The report of a conflict, once, when a service begins to wait.
pub(super) fn conflict(
    outcome: &Outcome,
    name: &ObjectName,
    frontend: &Frontend,
) -> Option<Problem> {
    let (loser, winner) = match outcome {
        Outcome::Held | Outcome::StillHeld => return None,
        Outcome::TakenFrom(former) => (former, name),
        Outcome::HeldBy(winner) | Outcome::YieldedTo(winner) => (name, winner),
    };
    Some(Problem {
        object: ObjectRef::service(loser),
        field: String::new(),
        message: format!("{frontend} belongs to Service {winner}, which is older or first by name"),
    })
}

impl Frontends {
    /// `service` claims a frontend.
    pub(super) fn claim(
        &mut self,
        frontend: Frontend,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Outcome {
        let Some(first) = self.first_before(&frontend, service, precedence) else {
            return self.take(frontend, service);
        };
        let is_new = self.wait(frontend, service.clone());
        if self.holder(&frontend) == Some(service) {
            // Until that service has been updated no service has the frontend.
            self.set_holder(frontend, None);
            return Outcome::YieldedTo(first);
        }
        match is_new {
            true => Outcome::HeldBy(first),
            false => Outcome::StillHeld,
        }
    }

    /// `service` no longer claims a frontend.
    pub(super) fn release(
        &mut self,
        frontend: &Frontend,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Released {
        self.forget_waiting(frontend, service);
        // Without a holder the frontend has just been given back, and was offered to this service.
        if self.holder(frontend).is_some_and(|holder| holder != service) {
            return Released::InUse;
        }
        self.set_holder(*frontend, None);
        self.first_waiting(frontend, precedence).map_or(Released::Free, Released::Awaited)
    }

    fn first_waiting(
        &self,
        frontend: &Frontend,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<ObjectName> {
        self.waiting.get(frontend)?.iter().min_by_key(|name| precedence(name)).cloned()
    }

    /// The first of all that have the frontend or wait for it, if it comes before `service`.
    ///
    /// It may not be the holder: one that has become younger holds what it has until it is
    /// updated, and then yields to the first.
    fn first_before(
        &self,
        frontend: &Frontend,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<ObjectName> {
        let waiting = self.waiting.get(frontend).into_iter().flatten();
        let others = self.holder(frontend).into_iter().chain(waiting);
        let first = others.filter(|name| *name != service).min_by_key(|name| precedence(name))?;
        (precedence(first) < precedence(service)).then(|| first.clone())
    }

    fn take(&mut self, frontend: Frontend, service: &ObjectName) -> Outcome {
        self.forget_waiting(&frontend, service);
        if self.holder(&frontend) == Some(service) {
            return Outcome::Held;
        }
        match self.set_holder(frontend, Some(service.clone())) {
            None => Outcome::Held,
            Some(former) => {
                self.wait(frontend, former.clone());
                Outcome::TakenFrom(former)
            }
        }
    }

    /// Returns whether `service` has not waited before.
    fn wait(&mut self, frontend: Frontend, service: ObjectName) -> bool {
        let names = self.waiting.entry(frontend).or_default();
        let is_new = !names.contains(&service);
        if is_new {
            names.push(service);
        }
        is_new
    }

    fn forget_waiting(&mut self, frontend: &Frontend, service: &ObjectName) {
        if let Some(names) = self.waiting.get_mut(frontend) {
            names.retain(|name| name != service);
            if names.is_empty() {
                self.waiting.remove(frontend);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU16;

    use proptest::prelude::*;

    use super::*;
    use crate::family::Family;
    use crate::model::Protocol;

    const FRONTEND: Frontend =
        Frontend::NodePort { family: Family::Ip, protocol: Protocol::Tcp, port: NonZeroU16::MIN };

    fn name(number: u8) -> ObjectName {
        ObjectName::namespaced("default", &number.to_string())
    }

    /// Claims the frontend for a service and for those that are to be updated then; returns how many
    /// claimed it.
    fn update(
        claims: &mut Frontends,
        ages: &BTreeMap<ObjectName, i64>,
        service: ObjectName,
    ) -> usize {
        let precedence =
            |name: &ObjectName| (ages.get(name).copied().unwrap_or(i64::MAX), name.clone());
        let (mut waiting, mut updated) = (vec![service], 0);
        while let Some(service) = waiting.pop() {
            updated += 1;
            if ages.contains_key(&service) {
                let outcome = claims.claim(FRONTEND, &service, precedence);
                if let Outcome::TakenFrom(other) | Outcome::YieldedTo(other) = outcome {
                    waiting.push(other);
                }
            } else if let Released::Awaited(other) = claims.release(&FRONTEND, &service, precedence)
            {
                waiting.push(other);
            }
        }
        updated
    }

    proptest! {
        #[test]
        fn the_first_of_all_claimants_holds_the_frontend(
            changes in proptest::collection::vec(
                proptest::collection::vec((0u8..5, proptest::option::of(0i64..4)), 1..4),
                1..12,
            ),
        ) {
            let (mut claims, mut ages) = (Frontends::default(), BTreeMap::new());
            // Of changes that come together all are known before the first is updated.
            for together in changes {
                for (number, age) in &together {
                    match age {
                        Some(age) => ages.insert(name(*number), *age),
                        None => ages.remove(&name(*number)),
                    };
                }
                for (number, _) in &together {
                    let updated = update(&mut claims, &ages, name(*number));
                    prop_assert!(updated <= 12, "{updated} were updated");
                }
                let first = ages.iter().min_by_key(|(name, age)| (**age, (*name).clone()));
                prop_assert_eq!(claims.holder(&FRONTEND), first.map(|(name, _)| name));
                let others = claims.waiting.get(&FRONTEND).map_or(0, Vec::len);
                prop_assert_eq!(others, ages.len().saturating_sub(1));
            }
        }
    }
}
