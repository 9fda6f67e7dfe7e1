//! Finds the service because of which the kernel refuses whole transactions without an error for an
//! element.
//!
//! After such a refusal, transactions update half as many services, down to one. A service that is
//! refused alone is excluded from the next transactions. It is reported once the kernel has applied
//! another service to the same table, or once nothing else is left to send. If the kernel refuses
//! every service, services are not the cause.

use nft::Family;

use super::Engine;
use crate::model::{Extent, ObjectName, Problem};

/// The bisection of one table.
#[derive(Debug, Default)]
pub(super) struct Bisect {
    /// Maximum number of services per transaction; `None` while no bisection runs.
    most: Option<usize>,
    /// Services excluded since the kernel last applied a transaction.
    excluded: Vec<Excluded>,
    /// Services excluded until they change or are retried.
    waiting: Vec<ObjectName>,
}

/// A service that was refused alone.
#[derive(Debug)]
struct Excluded {
    service: ObjectName,
    /// `None` once it is reported.
    problem: Option<Problem>,
}

/// The services that a step updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Services {
    pub(super) count: usize,
    pub(super) last: Option<ObjectName>,
}

/// Services per transaction at which the bisection ends.
const MANY: usize = 4_096;

/// Services refused alone, one after the other, from which on services are not the cause.
const TOO_MANY: usize = 3;

impl Bisect {
    fn is_active(&self) -> bool {
        self.most.is_some()
    }

    /// Returns whether a transaction may update one more service.
    fn admits(&self, updated: &Services) -> bool {
        self.most.is_none_or(|most| updated.count < most)
    }

    /// Halves the limit after the refusal of a transaction that updates `services` services, at
    /// least two.
    pub(super) fn narrow(&mut self, services: usize) {
        self.most = Some((services / 2).max(1));
    }

    /// Doubles the limit after the commit of a transaction that updates `services` services of the
    /// table. Returns the problems that the commit confirms.
    pub(super) fn committed(&mut self, services: usize) -> Vec<Problem> {
        if services == 0 {
            return Vec::new();
        }
        self.most = self.most.map(|most| most * 2).filter(|most| *most < MANY);
        let confirmed = std::mem::take(&mut self.excluded).into_iter();
        let report = |Excluded { service, problem }| {
            self.waiting.push(service);
            problem
        };
        confirmed.filter_map(report).collect()
    }

    /// Returns the problems that are not reported yet. Their services still count as refused one
    /// after the other.
    fn take_unreported(&mut self) -> impl Iterator<Item = Problem> {
        self.excluded.iter_mut().filter_map(|excluded| excluded.problem.take())
    }
}

impl Engine {
    /// Returns whether a bisection runs.
    pub(super) fn is_bisecting(&self) -> bool {
        self.tables.iter().any(|table| table.bisect.is_active())
    }

    /// Returns whether a step that updates these services may update one more.
    pub(super) fn admits(&self, updated: &Services) -> bool {
        self.tables.iter().all(|table| table.bisect.admits(updated))
    }

    /// Excludes a service that was refused alone in the table of `family`. After too many of them,
    /// services are not the cause: includes them again and returns false.
    pub(super) fn exclude_alone(
        &mut self,
        family: Family,
        service: ObjectName,
        problem: Problem,
    ) -> bool {
        self.exclude(service.clone());
        let bisect = &mut self.tables[family.index()].bisect;
        bisect.excluded.push(Excluded { service, problem: Some(problem) });
        let is_plausible = bisect.excluded.len() < TOO_MANY;
        if !is_plausible {
            bisect.most = None;
            for Excluded { service, .. } in std::mem::take(&mut bisect.excluded) {
                self.queue_again(service);
            }
        }
        is_plausible
    }

    /// Reports the excluded services if no other service is left that could confirm them.
    pub(super) fn report_excluded(&mut self) {
        if self.is_settled() {
            let bisects = self.tables.iter_mut().map(|table| &mut table.bisect);
            self.problems.extend(bisects.flat_map(Bisect::take_unreported));
        }
    }

    /// Leaves a service out until it changes.
    pub(super) fn exclude(&mut self, service: ObjectName) {
        self.diff.excluded.insert(service.clone());
        self.queue.add([(service, Extent::Whole)].into_iter());
    }

    fn queue_again(&mut self, service: ObjectName) {
        self.diff.excluded.remove(&service);
        self.queue.add([(service, Extent::Whole)].into_iter());
    }

    /// Returns whether a service is left out that the kernel may accept later although it is
    /// unchanged.
    pub fn has_refused(&self) -> bool {
        let has = |it: &Bisect| !it.waiting.is_empty() || !it.excluded.is_empty();
        self.tables.iter().any(|table| has(&table.bisect))
    }

    /// Includes the services again that the kernel refused without naming them. If a table is
    /// blocked, [`Engine::replace_installed`] must follow.
    pub fn retry_refused(&mut self) {
        let mut services = Vec::new();
        for Bisect { excluded, waiting, .. } in self.tables.iter_mut().map(|it| &mut it.bisect) {
            services.extend(excluded.drain(..).map(|excluded| excluded.service));
            services.append(waiting);
        }
        services.into_iter().for_each(|service| self.queue_again(service));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_halves_with_each_refusal_and_doubles_with_each_commit() {
        let mut bisect = Bisect::default();
        let updated = |count| Services { count, last: None };
        assert!(bisect.admits(&updated(MANY)));
        bisect.narrow(5);
        assert_eq!(
            [0, 1, 2, 3].map(|count| bisect.admits(&updated(count))),
            [true, true, false, false]
        );
        bisect.narrow(2);
        bisect.narrow(1);
        assert!(!bisect.admits(&updated(1)));
        bisect.committed(1);
        assert!(bisect.admits(&updated(1)));
        for _ in 0..20 {
            bisect.committed(1);
        }
        assert!(!bisect.is_active());
    }
}
