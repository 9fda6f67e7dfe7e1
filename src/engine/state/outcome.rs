//! The reaction to the outcome of a transaction. No I/O: the caller commits and reads back.

use std::time::Duration;

use nft::Errno;
use nft::kernel::{CommitError, Committed};
use nft::{Expression, Family, Operation, TableFlags, Transaction};

use super::Engine;
use super::answer::{Answer, Cause};
use super::bisect::Services;
use super::blocked::Blocked;
use crate::model::{ObjectName, ObjectRef, Problem, ProblemKind};
use crate::ruleset::{SetId, Subject};

impl Engine {
    /// Processes the outcome of the oldest transaction in flight.
    pub fn answer(
        &mut self,
        transaction: &Transaction,
        outcome: &Result<Committed, CommitError>,
    ) -> Answer {
        if self.tables.handing.is_in_flight() {
            return self.tables.handing.answer(transaction, outcome.as_ref().map(|_| ()));
        }
        let error = match outcome {
            Ok(committed) => {
                self.committed(committed.kernel_time);
                return Answer::Applied;
            }
            Err(error) => error,
        };
        let Some(family) = self.steps.in_flight.front().map(|in_flight| in_flight.family) else {
            return Answer::ReadBack(Cause::Unknown);
        };
        match error {
            CommitError::Refused { operation: Some(operation), errno, .. }
                if self.finds_no_flowtables(transaction.operations.get(*operation), *errno) =>
            {
                Answer::ReadBack(Cause::NoFlowtables)
            }
            CommitError::Refused { operation: Some(operation), element, .. } => {
                let element = element.unwrap_or_default();
                match self.service_of(transaction, *operation, element) {
                    Some(service) => Answer::ReadBack(self.blame(service, error)),
                    None => self.suspect(family, error),
                }
            }
            CommitError::Refused { operation: None, errno, .. } => {
                self.refused_unattributed(family, Some(*errno), error)
            }
            CommitError::NotSent(cause) => {
                let errno = cause.raw_os_error().map(Errno::from_raw);
                if errno.is_some_and(is_caused_by_size) {
                    self.refused_unattributed(family, errno, error)
                } else {
                    Answer::ReadBack(Cause::Unknown)
                }
            }
            CommitError::Unknown(_) => Answer::ReadBack(Cause::Unknown),
            CommitError::Owned { .. } => {
                self.block(family, error);
                Answer::Blocked(family)
            }
        }
    }

    /// Returns the services of the oldest transaction in flight.
    pub fn services_in_flight(&self) -> Services {
        self.steps.in_flight.front().map(|it| it.services.clone()).unwrap_or_default()
    }

    /// Returns the services whose update is not committed or not answered, and forgets them, because
    /// the daemon ends.
    pub fn take_uncommitted(&mut self) -> Services {
        let mut services = self.services_in_flight();
        for name in self.updates.take_all() {
            // Often the rest of the service in flight.
            if !services.first.contains(&name) {
                services.add(name);
            }
        }
        services
    }

    /// Records that the oldest transaction in flight was applied within `time`. The size of later
    /// pieces follows from it.
    pub fn committed(&mut self, time: Duration) {
        if self.tables.handing.is_in_flight() {
            self.tables.handing.applied();
            return;
        }
        let Some(in_flight) = self.steps.in_flight.pop_front() else { return };
        self.steps.piece_size.learn(in_flight.bytes, time);
        let table = self.tables.of_mut(in_flight.family);
        table.is_suspect = false;
        self.problems.add(table.bisect.committed(in_flight.services.count));
        self.steps.undone[in_flight.family.index()] = false;
        self.applied(in_flight);
        if self.steps.in_flight.is_empty() && self.is_settled() {
            self.steps.suspects.clear();
        }
        self.gather_stale_flows();
    }

    /// Returns the service that an element of a transaction belongs to.
    pub fn service_of(
        &self,
        transaction: &Transaction,
        operation: usize,
        element: usize,
    ) -> Option<ObjectName> {
        let operation = transaction.operations.get(operation)?;
        let (Operation::AddElements(table, set, elements)
        | Operation::DeleteElements(table, set, elements)) = operation
        else {
            return None;
        };
        let key = elements.get(element)?.key;
        let Some(family) = table.family.of_addresses() else {
            return self.tables.handing.service_of(&set.name, key.as_bytes(), &self.diff).cloned();
        };
        let set = SetId::by_name(&set.name)?;
        let subject = Subject::read(family, set, key.as_bytes())?;
        self.diff.service_of(family, subject).cloned()
    }

    fn blame(&mut self, service: ObjectName, error: &CommitError) -> Cause {
        if self.steps.suspects.insert(service.clone()) {
            return Cause::Suspected(service);
        }
        self.exclude(service.clone());
        self.problems.add([left_out(&service, error)]);
        Cause::Excluded(service)
    }

    /// Handles a refusal that concerns no service. Another program may have changed the table; if
    /// not, the next transaction is refused too.
    fn suspect(&mut self, family: Family, error: &CommitError) -> Answer {
        if !std::mem::replace(&mut self.tables.of_mut(family).is_suspect, true) {
            return Answer::ReadBack(Cause::Table(family));
        }
        self.block(family, error);
        Answer::Blocked(family)
    }

    /// Handles a refusal that concerns no part of the transaction. Makes the next transactions
    /// smaller, then limits their services, down to one.
    fn refused_unattributed(
        &mut self,
        family: Family,
        errno: Option<Errno>,
        error: &CommitError,
    ) -> Answer {
        if errno.is_some_and(is_caused_by_size) && self.steps.piece_size.halve() {
            return Answer::ReadBack(Cause::Unattributed);
        }
        // Never empty: `answer` has checked it.
        let services = self.services_in_flight();
        match services.last {
            None => self.suspect(family, error),
            Some(_) if services.count > 1 => {
                self.tables.of_mut(family).bisect.narrow(services.count);
                Answer::ReadBack(Cause::Unattributed)
            }
            Some(service) => {
                let is_new = self.steps.suspects.insert(service.clone());
                let problem = left_out(&service, error);
                if is_new || self.exclude_alone(family, service, problem) {
                    return Answer::ReadBack(Cause::Unattributed);
                }
                self.block(family, error);
                Answer::Blocked(family)
            }
        }
    }

    /// Excludes a service that was refused alone in the table of `family`. After too many of them,
    /// includes all again and returns false: services are not the cause.
    fn exclude_alone(&mut self, family: Family, service: ObjectName, problem: Problem) -> bool {
        self.exclude(service.clone());
        let not_the_cause = self.tables.of_mut(family).bisect.refused_alone(service, problem);
        let is_plausible = not_the_cause.is_none();
        for service in not_the_cause.into_iter().flatten() {
            self.include(service);
        }
        is_plausible
    }

    /// Reports the excluded services if no other service is left that could confirm them.
    pub(super) fn report_excluded(&mut self) {
        if self.is_settled() {
            self.problems.add(self.tables.take_unreported());
        }
    }

    /// Leaves a service out until it changes.
    fn exclude(&mut self, service: ObjectName) {
        self.diff.excluded.insert(service.clone());
        self.updates.again(service);
    }

    fn include(&mut self, service: ObjectName) {
        self.diff.excluded.remove(&service);
        self.updates.again(service);
    }

    /// Includes the services again that the kernel refused without naming them. If a table is
    /// blocked, [`Engine::replace_installed_state`] must follow.
    pub fn retry_refused(&mut self) {
        for service in self.tables.take_refused() {
            self.include(service);
        }
    }

    /// Sends no transaction for the table of `family` until the tables are read back.
    pub fn block(&mut self, family: Family, error: &CommitError) {
        self.tables.of_mut(family).blocked = Some(Blocked::by(error));
        self.drop_parts(family);
    }

    /// Records the flags of a table after a handover.
    pub fn note_flags(&mut self, family: Family, flags: TableFlags) {
        self.tables.of_mut(family).installed.set_flags(flags);
    }

    /// Handles the refusal of an operation. Returns whether its cause is that the kernel lacks
    /// flowtables; the next transactions then have none.
    fn finds_no_flowtables(&mut self, refused: Option<&Operation>, errno: Errno) -> bool {
        let needs_flowtables = match refused {
            Some(Operation::AddFlowtable(..)) => true,
            Some(Operation::AddRule(_, rule)) => {
                rule.expressions.iter().any(|it| matches!(it, Expression::FlowOffload(_)))
            }
            _ => false,
        };
        // `nft_flowtable_type_get` and `nft_expr_type_get` return the first.
        let is_lack = matches!(errno, Errno::ENOENT | Errno::EOPNOTSUPP);
        if needs_flowtables && is_lack && !self.node.lacks_flowtables {
            self.node.lacks_flowtables = true;
            self.render_tables();
            return true;
        }
        false
    }
}

fn left_out(service: &ObjectName, error: &CommitError) -> Problem {
    Problem {
        kind: ProblemKind::Refused,
        object: ObjectRef::service(service),
        field: String::new(),
        message: format!("is left out until it changes: {error}"),
    }
}

/// Returns whether a smaller transaction may be accepted.
fn is_caused_by_size(errno: Errno) -> bool {
    matches!(errno, Errno::ENOMEM | Errno::EMSGSIZE | Errno::ENOBUFS)
}
