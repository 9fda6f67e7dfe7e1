//! The problems of services: those found since the last report, and those that are present.
//!
//! A problem of a service is present until a complete update of the service no longer finds it. A
//! conflict is present while the service waits for the frontend, and a refusal while the service is
//! excluded. A present problem is reported once.

use std::collections::{BTreeMap, BTreeSet};

use crate::diff::{Conflict, Diff};
use crate::model::{ObjectName, Problem, ProblemKind, Resource};
use crate::ruleset::Frontend;

/// Most present problems of all services. Authors of services control their number; further ones
/// are only reported when they are found.
const MOST_PRESENT: usize = 5_000;

/// Problems of services. `count` is the number of those in `present`.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Problem>,
    present: BTreeMap<ObjectName, Vec<Present>>,
    count: usize,
    /// Services whose present problems changed since the last report.
    changed: BTreeSet<ObjectName>,
}

#[derive(Debug, PartialEq)]
struct Present {
    problem: Problem,
    /// The frontend that the service waits for.
    contested: Option<Frontend>,
}

impl Problems {
    /// Returns the problems found since the last call.
    pub(super) fn take_found(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.found)
    }

    /// Returns the services whose present problems changed since the last call, each with its first
    /// problems and the number of the others.
    pub(super) fn take_changed(&mut self) -> Vec<(ObjectName, Vec<Problem>)> {
        let problems = |name: &ObjectName| {
            let present = self.present.get(name).into_iter().flatten();
            let mut problems: Vec<_> = present.map(|it| it.problem.clone()).collect();
            Problem::keep_few(&mut problems);
            problems
        };
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|name| (name.clone(), problems(&name))).collect()
    }

    /// Returns whether a service has a present problem.
    pub(super) fn has(&self, service: &ObjectName) -> bool {
        self.present.contains_key(service)
    }

    /// Adds problems of services, whose updates do not repeat them.
    pub(super) fn add(&mut self, problems: impl IntoIterator<Item = Problem>) {
        let present = problems.into_iter().map(|problem| Present { problem, contested: None });
        let new = present.filter_map(|it| self.note(it)).collect::<Vec<_>>();
        self.found.extend(new);
    }

    /// Replaces the problems of the objects of a resource, which no update of a service ends.
    pub(super) fn replace(&mut self, resource: Resource, problems: Vec<Problem>) {
        for (name, present) in &mut self.present {
            let before = present.len();
            present.retain(|Present { problem, .. }| {
                problem.object.resource != resource || problems.contains(problem)
            });
            if present.len() != before {
                self.count -= before - present.len();
                self.changed.insert(name.clone());
            }
        }
        self.present.retain(|_, present| !present.is_empty());
        self.add(problems);
    }

    /// Adds what an update found.
    pub(super) fn add_updated(&mut self, conflicts: Vec<Conflict>, problems: Vec<Problem>) {
        if conflicts.is_empty() && problems.is_empty() {
            return;
        }
        let contested = conflicts.into_iter().map(|it| (it.problem, Some(it.frontend)));
        let others = problems.into_iter().map(|it| (it, None));
        let all = contested.chain(others);
        let present = all.map(|(problem, contested)| Present { problem, contested });
        let mut new = present.filter_map(|it| self.note(it)).collect::<Vec<_>>();
        Problem::keep_few(&mut new);
        self.found.append(&mut new);
    }

    /// Removes the problems that a complete update of a service, which found `problems`, has ended.
    pub(super) fn end(&mut self, service: &ObjectName, problems: &[Problem], diff: &Diff) {
        let Some(present) = self.present.get_mut(service) else { return };
        let before = present.len();
        present.retain(|Present { problem, contested }| match (contested, problem.kind) {
            (Some(frontend), _) => diff.is_waiting(frontend, service),
            (None, ProblemKind::Refused) => diff.excluded.contains(service),
            (None, _) => problems.contains(problem),
        });
        let (after, is_empty) = (present.len(), present.is_empty());
        self.count -= before - after;
        if is_empty {
            self.present.remove(service);
        }
        if before != after {
            self.changed.insert(service.clone());
        }
    }

    /// Adds a present problem, if there is room. Returns it if it is new.
    fn note(&mut self, present: Present) -> Option<Problem> {
        let problem = present.problem.clone();
        let service = &problem.object.name;
        if self.present.get(service).is_some_and(|known| known.contains(&present)) {
            return None;
        }
        if self.count < MOST_PRESENT {
            self.count += 1;
            self.present.entry(service.clone()).or_default().push(present);
            self.changed.insert(service.clone());
        }
        Some(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_present_problems_of_a_service_the_first_are_listed_and_the_others_counted() {
        let (mut problems, web) = (Problems::default(), ObjectName::namespaced("default", "web"));
        let many = (0..1_000).map(|n| Problem::of_limit(&web, "spec.ports", &n.to_string()));
        problems.add(many);
        let [(service, listed)] = &problems.take_changed()[..] else { panic!("of one service") };
        assert_eq!((service, listed.len()), (&web, 21));
        let last = listed.last().map(ToString::to_string);
        let expected = "Service default/web: has 980 further problems, which are not listed";
        assert_eq!(last.as_deref(), Some(expected));
    }
}
