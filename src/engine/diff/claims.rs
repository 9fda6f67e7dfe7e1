//! Assigns a frontend that several services claim.
//!
//! The service with the address as cluster IP wins, because the API server allocates cluster IPs
//! and every user can claim any external IP. Among the others the oldest wins, then the first by
//! name. So the winner does not depend on the order of events, and the cost of a claim hardly on the
//! number of claimants.

use super::frontends::Frontends;
use super::progress::{Conflict, Updated};
use super::waiting::{Age, Precedence};
use crate::model::{Cluster, ObjectName, ObjectRef, Problem, ProblemKind};
use crate::ruleset::Frontend;

/// Returns the age of a service. The lowest age wins a contested frontend, unless it is a cluster
/// IP.
pub fn age(cluster: &Cluster, name: &ObjectName) -> Age {
    (cluster.created(name).unwrap_or(i64::MAX), name.clone())
}

/// Returns the precedence of a claim.
pub(super) fn precedence(cluster: &Cluster, name: &ObjectName, frontend: &Frontend) -> Precedence {
    let is_cluster_ip = match frontend {
        Frontend::Address { address, .. } | Frontend::Ranges { address, .. } => {
            cluster.has_cluster_ip(name, *address)
        }
        Frontend::NodePort { .. } => false,
    };
    (!is_cluster_ip, age(cluster, name))
}

/// Returns the report of a conflict. It is made once, when a service begins to wait.
fn conflict(loser: &ObjectName, winner: &ObjectName, frontend: Frontend) -> Conflict {
    let message = format!(
        "{frontend} belongs to Service {winner}: its cluster IP, or it is older or first by name"
    );
    let object = ObjectRef::service(loser);
    Conflict { frontend, problem: Problem::new(ProblemKind::Conflict, object, "", message) }
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
        let is_waiting = self.forget_waiting(&frontend, service);
        let own = precedence(service);
        let Some(first) = self.first_before(&frontend, &own, &precedence) else {
            if !is_holder && let Some(former) = self.set_holder(frontend, Some(service.clone())) {
                updated.conflicts.push(conflict(&former, service, frontend));
                self.wait(frontend, precedence(&former));
                updated.affected.push(former);
            }
            return true;
        };
        self.wait(frontend, own);
        if !is_waiting {
            updated.conflicts.push(conflict(service, &first, frontend));
        }
        if is_holder {
            // The service has become the younger one. No service has the frontend until the first
            // one is updated.
            self.set_holder(frontend, None);
        }
        // The first one may have changed after the claim that it waits with.
        if self.holder(&frontend) != Some(&first) {
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
        let next = self.waiting.get_mut(frontend).and_then(|waiting| waiting.first(&precedence));
        if let Some(holder) = self.holder(frontend).filter(|holder| *holder != service) {
            // The holder may come after the next one, which had to yield to this service until now.
            let next = next.filter(|next| *next < precedence(holder));
            updated.affected.extend(next.map(|(_, (_, name))| name));
            return false;
        }
        // Without a holder, the frontend has just been released, and this service was the next.
        self.set_holder(*frontend, None);
        let is_free = next.is_none();
        updated.affected.extend(next.map(|(_, (_, name))| name));
        is_free
    }

    /// Returns the first of all other services that have the frontend or wait for it, if it
    /// precedes the service with the precedence `own`, which does not wait.
    ///
    /// It may not be the holder. A holder that has become younger keeps the frontend until its next
    /// update, and then yields to the first.
    fn first_before(
        &mut self,
        frontend: &Frontend,
        own: &Precedence,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<ObjectName> {
        let holder = self.holder(frontend).map(&precedence);
        let waiting = self.waiting.get_mut(frontend).and_then(|it| it.first(precedence));
        let first = holder.into_iter().chain(waiting).min()?;
        (first < *own).then_some(first.1.1)
    }

    /// Returns whether `service` waits for a frontend of another service.
    pub(super) fn is_waiting(&self, frontend: &Frontend, service: &ObjectName) -> bool {
        self.waiting.get(frontend).is_some_and(|waiting| waiting.contains(service))
    }

    fn wait(&mut self, frontend: Frontend, precedence: Precedence) {
        self.waiting.entry(frontend).or_default().insert(precedence);
    }

    /// Removes `service` from the waiting services; returns whether it was there.
    fn forget_waiting(&mut self, frontend: &Frontend, service: &ObjectName) -> bool {
        let Some(waiting) = self.waiting.get_mut(frontend) else { return false };
        let is_waiting = waiting.remove(service);
        if waiting.is_empty() {
            self.waiting.remove(frontend);
        }
        is_waiting
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{BTreeMap, VecDeque};
    use std::num::NonZeroU16;

    use nft::family::Family;
    use proptest::prelude::*;

    use super::*;
    use crate::diff::waiting::Waiting;
    use crate::model::Protocol;

    const FRONTEND: Frontend =
        Frontend::NodePort { family: Family::Ip, protocol: Protocol::Tcp, port: NonZeroU16::MIN };

    fn name(number: u32) -> ObjectName {
        ObjectName::namespaced("default", &number.to_string())
    }

    /// Returns the precedence in these tests: services with an even age claim their cluster IP.
    fn precedence(ages: &BTreeMap<ObjectName, i64>, name: &ObjectName) -> Precedence {
        let age = ages.get(name).copied().unwrap_or(i64::MAX);
        (age % 2 == 1, (age, name.clone()))
    }

    /// Work for one change.
    #[derive(Default)]
    struct Cost {
        services: u32,
        /// Precedences that were looked up.
        precedences: u32,
    }

    /// Claims the frontend for a service, or releases it, as an update of it does; returns the
    /// affected services.
    fn update_one(
        claims: &mut Frontends,
        ages: &BTreeMap<ObjectName, i64>,
        service: &ObjectName,
        cost: &mut Cost,
    ) -> Vec<ObjectName> {
        let (mut updated, looked_up) = (Updated::default(), Cell::new(0));
        let precedence = |name: &ObjectName| {
            looked_up.set(looked_up.get() + 1);
            precedence(ages, name)
        };
        if ages.contains_key(service) {
            claims.claim(FRONTEND, service, precedence, &mut updated)
        } else {
            claims.release(&FRONTEND, service, precedence, &mut updated)
        };
        cost.services += 1;
        cost.precedences += looked_up.get();
        updated.affected
    }

    /// Updates a service and then the affected ones.
    fn update(
        claims: &mut Frontends,
        ages: &BTreeMap<ObjectName, i64>,
        service: ObjectName,
    ) -> Cost {
        let (mut cost, mut affected) = (Cost::default(), vec![service]);
        while let Some(service) = affected.pop() {
            affected.extend(update_one(claims, ages, &service, &mut cost));
        }
        cost
    }

    #[test]
    fn the_cost_of_a_claim_does_not_grow_with_the_number_of_claimants() {
        const CLAIMANTS: u32 = 20_000;
        let (mut claims, mut ages) = (Frontends::default(), BTreeMap::new());
        // Odd ages: none claims its cluster IP.
        let age = |number: u32| i64::from(number * 7_919 % CLAIMANTS) * 2 + 1;
        for number in 0..CLAIMANTS {
            ages.insert(name(number), age(number));
            let Cost { precedences, .. } = update(&mut claims, &ages, name(number));
            assert!(precedences <= 8, "claimant {number} was compared with {precedences}");
        }
        assert_eq!(claims.holder(&FRONTEND), Some(&name(0)));
        // All become as young as they were old, and then one after the other is updated.
        ages.values_mut().for_each(|age| *age = -*age);
        let updates = (0..CLAIMANTS).map(|number| update(&mut claims, &ages, name(number)));
        let sum = updates.map(|cost| cost.precedences).sum::<u32>();
        assert!(sum <= 8 * CLAIMANTS, "{sum} precedences");
        assert_eq!(claims.holder(&FRONTEND), ages.keys().min_by_key(|name| ages[*name]));
        for number in 0..CLAIMANTS {
            ages.remove(&name(number));
            let Cost { precedences, .. } = update(&mut claims, &ages, name(number));
            assert!(precedences <= 8, "of {number}, {precedences} others were compared");
        }
        assert!(claims.waiting.is_empty() && claims.holder(&FRONTEND).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_first_of_all_claimants_holds_the_frontend(
            changes in proptest::collection::vec(
                proptest::collection::vec((0u32..5, proptest::option::of(0i64..4)), 1..4),
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
                    let updated = update(&mut claims, &ages, name(*number)).services;
                    prop_assert!(updated <= 12, "{updated} were updated");
                }
                let first = ages.keys().min_by_key(|name| precedence(&ages, name));
                prop_assert_eq!(claims.holder(&FRONTEND), first);
                let others = claims.waiting.get(&FRONTEND).map_or(0, Waiting::len);
                prop_assert_eq!(others, ages.len().saturating_sub(1));
            }
        }

        #[test]
        fn changes_between_updates_leave_the_frontend_with_the_first(
            steps in proptest::collection::vec(
                ((0u32..4, proptest::option::weighted(0.9, 0i64..6)), 0usize..3),
                1..40,
            ),
        ) {
            let (mut claims, mut ages) = (Frontends::default(), BTreeMap::new());
            let (mut queue, mut cost) = (VecDeque::new(), Cost::default());
            let steps = steps.into_iter().map(|(change, updates)| (Some(change), updates));
            for (change, updates) in steps.chain([(None, usize::MAX)]) {
                match change {
                    Some((number, Some(age))) => drop(ages.insert(name(number), age)),
                    Some((number, None)) => drop(ages.remove(&name(number))),
                    None => {}
                }
                queue.extend(change.map(|(number, _)| name(number)));
                for _ in 0..updates {
                    let Some(service) = queue.pop_front() else { break };
                    queue.retain(|other| *other != service);
                    for affected in update_one(&mut claims, &ages, &service, &mut cost) {
                        queue.push_front(affected);
                    }
                    prop_assert!(cost.services < 1_000, "updates have no end");
                }
            }
            let first = ages.keys().min_by_key(|name| precedence(&ages, name));
            prop_assert_eq!(claims.holder(&FRONTEND), first);
        }
    }
}
