//! Finds the service because of which the kernel refuses whole transactions without an error for an
//! element.
//!
//! After such a refusal, transactions update half as many services, down to one. A service that is
//! refused alone is excluded from the next transactions. It is reported once the kernel has applied
//! another service to the same table, or once nothing else is left to send. If it refuses three
//! services alone, one after the other, services are not the cause.

use smallvec::SmallVec;

use super::queue::Lane;
use crate::model::{ObjectName, Problem};

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
pub struct StepServices {
    /// Their number.
    pub count: usize,
    /// The first of them, for reports.
    pub first: SmallVec<[ObjectName; 4]>,
    pub(super) last: Option<ObjectName>,
    /// Small changes are among them.
    pub(super) are_urgent: bool,
}

impl StepServices {
    pub(super) fn add(&mut self, service: ObjectName, lane: Lane) {
        self.count += 1;
        self.are_urgent |= lane == Lane::Fast;
        if self.first.len() < self.first.inline_size() {
            self.first.push(service.clone());
        }
        self.last = Some(service);
    }
}

/// Services per transaction at which the bisection ends.
const MANY: usize = 4_096;

/// Services refused alone, one after the other, from which on services are not the cause.
const TOO_MANY: usize = 3;

impl Bisect {
    pub(super) fn is_active(&self) -> bool {
        self.most.is_some()
    }

    /// Returns whether a transaction may update one more service.
    pub(super) fn admits(&self, updated: &StepServices) -> bool {
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
    pub(super) fn take_unreported(&mut self) -> impl Iterator<Item = Problem> {
        self.excluded.iter_mut().filter_map(|excluded| excluded.problem.take())
    }

    /// Notes that a service was refused alone. After too many of them, services are not the cause:
    /// returns all of them, to be included again.
    pub(super) fn refused_alone(
        &mut self,
        service: ObjectName,
        problem: Problem,
    ) -> Option<Vec<ObjectName>> {
        self.excluded.push(Excluded { service, problem: Some(problem) });
        if self.excluded.len() < TOO_MANY {
            return None;
        }
        self.most = None;
        let excluded = std::mem::take(&mut self.excluded).into_iter();
        Some(excluded.map(|excluded| excluded.service).collect())
    }

    /// Returns whether a service is left out that the kernel may accept later although it is
    /// unchanged.
    pub(super) fn has_refused(&self) -> bool {
        !self.waiting.is_empty() || !self.excluded.is_empty()
    }

    /// Takes the services that the kernel refused without naming them.
    pub(super) fn take_refused(&mut self) -> Vec<ObjectName> {
        let excluded = self.excluded.drain(..).map(|excluded| excluded.service);
        excluded.chain(self.waiting.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_halves_with_each_refusal_and_doubles_with_each_commit() {
        let mut bisect = Bisect::default();
        let updated = |count| StepServices { count, ..StepServices::default() };
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
