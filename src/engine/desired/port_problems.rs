//! The problems of the ports of one service, one for all ports with the same one.
//!
//! A service may have thousands of ports, and a list that is too long is too long for each of them.

use std::num::NonZeroU16;

use crate::model::{ObjectName, Problem};

/// Problems of ports in one family.
#[derive(Debug, Default)]
pub(super) struct PortProblems(Vec<PortProblem>);

#[derive(Debug)]
struct PortProblem {
    field: &'static str,
    message: String,
    /// `None` for the port ranges.
    first: Option<NonZeroU16>,
    /// Number of the service port that was added last.
    last: usize,
    /// Further service ports.
    others: usize,
}

impl PortProblems {
    /// Adds a problem of the service port `port`, which is at `place` in its service, or of the port
    /// ranges.
    pub(super) fn add(
        &mut self,
        (place, port): (usize, Option<NonZeroU16>),
        field: &'static str,
        message: String,
    ) {
        match self.0.iter_mut().find(|it| it.field == field && it.message == message) {
            None => {
                self.0.push(PortProblem { field, message, first: port, last: place, others: 0 });
            }
            // Both lists of a port may have it.
            Some(known) => {
                known.others += usize::from(known.last != place);
                known.last = place;
            }
        }
    }

    /// Adds the problems to those of the service, without those that it has from the other family.
    pub(super) fn add_to(self, service: &ObjectName, problems: &mut Vec<Problem>) {
        for PortProblem { field, message, first, others, .. } in self.0 {
            let first = first.map_or("port ranges".to_owned(), |first| format!("port {first}"));
            let ports = match others {
                0 => first,
                1 => format!("{first} and another"),
                _ => format!("{first} and {others} others"),
            };
            let problem = Problem::of_limit(service, field, &format!("{ports}: {message}"));
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_problems_of_ports_are_one() {
        let mut found = PortProblems::default();
        let port = |place: usize| (place, NonZeroU16::new(80));
        for place in 0..3 {
            // Once for each list.
            found.add(port(place), "spec.ports", "is too long".to_owned());
            found.add(port(place), "spec.ports", "is too long".to_owned());
        }
        found.add(port(3), "spec.ports", "is longer".to_owned());
        let name = ObjectName::namespaced("default", "web");
        let mut problems = Vec::new();
        found.add_to(&name, &mut problems);
        let texts: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(texts, ["port 80 and 2 others: is too long", "port 80: is longer"]);
        let mut again = PortProblems::default();
        again.add(port(3), "spec.ports", "is longer".to_owned());
        again.add_to(&name, &mut problems);
        assert_eq!(problems.len(), 2, "of the other family");
    }
}
