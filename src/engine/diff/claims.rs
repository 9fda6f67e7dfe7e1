//! Assigns a frontend that several services claim.
//!
//! The service with the address as cluster IP wins, because the API server allocates cluster IPs
//! and every user can claim any external IP. Among the others the oldest wins, then the first by
//! name. So the winner does not depend on the order of events.

use super::Updated;
use super::frontends::Frontends;
use crate::model::{Cluster, ObjectName, ObjectRef, Problem, ProblemKind};
use crate::ruleset::Frontend;

/// Whether the address of a claim is not the cluster IP of the claimant, then its age and name. The
/// lowest wins.
pub(super) type Precedence = (bool, Age);

/// Creation time and name of a service.
pub(super) type Age = (i64, ObjectName);

/// Returns the age of a service. The lowest age wins a contested frontend, unless it is a cluster
/// IP.
pub fn age(cluster: &Cluster, name: &ObjectName) -> (i64, ObjectName) {
    (cluster.created(name).unwrap_or(i64::MAX), name.clone())
}

/// Returns the precedence of a claim.
pub(super) fn precedence(cluster: &Cluster, name: &ObjectName, frontend: &Frontend) -> Precedence {
    let is_cluster_ip = match frontend {
        Frontend::Address { address, .. } => cluster.has_cluster_ip(name, *address),
        Frontend::NodePort { .. } => false,
    };
    (!is_cluster_ip, age(cluster, name))
}

/// Returns the report of a conflict. It is made once, when a service begins to wait.
fn conflict(loser: &ObjectName, winner: &ObjectName, frontend: &Frontend) -> Problem {
    Problem {
        kind: ProblemKind::Conflict,
        object: ObjectRef::service(loser),
        field: String::new(),
        message: format!(
            "{frontend} belongs to Service {winner}: its cluster IP, or it is older or first by name"
        ),
    }
}

impl Frontends {
    /// Claims a frontend for `service`; returns whether the service has it. Adds the services that
    /// the claim affects to `updated`.
    pub(super) fn claim(
        &mut self,
        frontend: Frontend,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
        updated: &mut Updated,
    ) -> bool {
        let is_holder = self.holder(&frontend) == Some(service);
        let Some(first) = self.first_before(&frontend, service, precedence) else {
            self.forget_waiting(&frontend, service);
            if !is_holder && let Some(former) = self.set_holder(frontend, Some(service.clone())) {
                updated.problems.push(conflict(&former, service, &frontend));
                self.wait(frontend, &former);
                updated.affected.push(former);
            }
            return true;
        };
        if self.wait(frontend, service) {
            updated.problems.push(conflict(service, &first, &frontend));
        }
        if is_holder {
            // The service has become the younger one. No service has the frontend until the first
            // one is updated.
            self.set_holder(frontend, None);
            updated.affected.push(first);
        }
        false
    }

    /// Releases a frontend that `service` no longer claims; returns whether no service claims it.
    /// Adds the next holder to `updated`.
    pub(super) fn release(
        &mut self,
        frontend: &Frontend,
        service: &ObjectName,
        precedence: impl Fn(&ObjectName) -> Precedence,
        updated: &mut Updated,
    ) -> bool {
        self.forget_waiting(frontend, service);
        // Without a holder, the frontend has just been released, and this service was the next.
        if self.holder(frontend).is_some_and(|holder| holder != service) {
            return false;
        }
        self.set_holder(*frontend, None);
        let waiting = self.waiting.get(frontend).into_iter().flatten();
        let next = waiting.min_by_key(|name| precedence(name));
        updated.affected.extend(next.cloned());
        next.is_none()
    }

    /// Returns the first of all services that have the frontend or wait for it, if it precedes
    /// `service`.
    ///
    /// It may not be the holder. A holder that has become younger keeps the frontend until its next
    /// update, and then yields to the first.
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

    /// Adds `service` to the waiting services; returns whether it is new there.
    fn wait(&mut self, frontend: Frontend, service: &ObjectName) -> bool {
        let names = self.waiting.entry(frontend).or_default();
        let is_new = !names.contains(service);
        if is_new {
            names.push(service.clone());
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

    use nft::family::Family;
    use proptest::prelude::*;

    use super::*;
    use crate::model::Protocol;

    const FRONTEND: Frontend =
        Frontend::NodePort { family: Family::Ip, protocol: Protocol::Tcp, port: NonZeroU16::MIN };

    fn name(number: u8) -> ObjectName {
        ObjectName::namespaced("default", &number.to_string())
    }

    /// Returns the precedence in these tests: services with an even age claim their cluster IP.
    fn precedence(ages: &BTreeMap<ObjectName, i64>, name: &ObjectName) -> Precedence {
        let age = ages.get(name).copied().unwrap_or(i64::MAX);
        (age % 2 == 1, (age, name.clone()))
    }

    /// Claims the frontend for a service and then for the affected ones; returns the number of
    /// claimants.
    fn update(
        claims: &mut Frontends,
        ages: &BTreeMap<ObjectName, i64>,
        service: ObjectName,
    ) -> usize {
        let precedence = |name: &ObjectName| precedence(ages, name);
        let (mut updated, mut count) = (Updated::default(), 0);
        updated.affected.push(service);
        while let Some(service) = updated.affected.pop() {
            count += 1;
            match ages.contains_key(&service) {
                true => claims.claim(FRONTEND, &service, precedence, &mut updated),
                false => claims.release(&FRONTEND, &service, precedence, &mut updated),
            };
        }
        count
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
            // Changes that arrive together are all applied before the first service is updated.
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
                let first = ages.keys().min_by_key(|name| precedence(&ages, name));
                prop_assert_eq!(claims.holder(&FRONTEND), first);
                let others = claims.waiting.get(&FRONTEND).map_or(0, Vec::len);
                prop_assert_eq!(others, ages.len().saturating_sub(1));
            }
        }
    }
}
