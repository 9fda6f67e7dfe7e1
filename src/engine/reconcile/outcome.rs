//! The reaction to the outcome of a transaction. No I/O: the caller commits and reads back.

use std::time::Duration;

use nft::kernel::{CommitError, Committed};
use nft::{Errno, Expression, Family, Operation, TableFlags, Transaction, Value};

use super::Engine;
use super::answer::{Answer, Blocked, Cause};
use super::bisect::StepServices;
use super::queue::Lane;
use super::steps::{BaseChange, InFlight};
use super::table_id::TableId;
use crate::model::{ObjectName, ObjectRef, Problem, ProblemKind};
use crate::ruleset::{SetId, Subject};

impl Engine {
    /// Processes the outcome of the oldest transaction in flight.
    pub fn answer(
        &mut self,
        transaction: &Transaction,
        outcome: &Result<Committed, CommitError>,
    ) -> Answer {
        let error = match outcome {
            Ok(committed) => {
                self.committed(committed.kernel_time);
                return Answer::Applied;
            }
            Err(error) => error,
        };
        let Some(table) = self.steps.in_flight.front().map(|in_flight| in_flight.table) else {
            return Answer::ReadBack(Cause::Unknown);
        };
        if let CommitError::Refused { operation, errno, .. } = error
            && let Some(answer) = self.refused_devices(*operation, *errno)
        {
            return answer;
        }
        match error {
            // The kernel names what it was adding when it had no memory.
            CommitError::Refused { operation: Some(operation), element, errno, .. }
                if !is_caused_by_size(*errno) =>
            {
                if let Some(cause) = self.lack(transaction.operations.get(*operation), *errno) {
                    return Answer::ReadBack(cause);
                }
                let element = element.unwrap_or_default();
                match self.service_of(transaction, *operation, element) {
                    Some(service) => {
                        let missing =
                            missing(&transaction.operations, (*operation, element), *errno);
                        Answer::ReadBack(self.blame(table, (service, missing), error))
                    }
                    None => self.suspect(table, error),
                }
            }
            CommitError::Refused { errno, .. } => {
                self.refused_unattributed(table, Some(*errno), error)
            }
            CommitError::NotSent(cause) => {
                let errno = cause.raw_os_error().map(Errno::from_raw);
                if errno.is_some_and(is_caused_by_size) {
                    self.refused_unattributed(table, errno, error)
                } else {
                    Answer::ReadBack(Cause::Unknown)
                }
            }
            CommitError::Unknown(_) => Answer::ReadBack(Cause::Unknown),
            CommitError::Owned { .. } => {
                self.block(table, error);
                Answer::Blocked(table)
            }
        }
    }

    /// Returns the services of the oldest transaction in flight.
    pub fn services_in_flight(&self) -> StepServices {
        self.steps.in_flight.front().map(|it| it.services.clone()).unwrap_or_default()
    }

    /// Returns the services whose update is not committed or not answered, and forgets them, because
    /// the daemon ends.
    pub fn take_uncommitted(&mut self) -> StepServices {
        let mut services = self.services_in_flight();
        let in_flight = &self.steps.in_flight;
        if let (Some(first), Some(ahead)) = (in_flight.front(), in_flight.get(1))
            && first.step != ahead.step
        {
            // Often it begins with the rest of the last one.
            let goes_on = ahead.services.first.first() == services.last.as_ref();
            services.count += ahead.services.count - usize::from(goes_on);
            services.last.clone_from(&ahead.services.last);
        }
        let last = services.last.clone();
        for name in self.updates.take_all() {
            // Often the rest of the service in flight.
            if !services.first.contains(&name) && last.as_ref() != Some(&name) {
                services.add(name, Lane::Slow);
            }
        }
        services
    }

    /// Records that the oldest transaction in flight was applied within `time`. The size of later
    /// pieces follows from it.
    pub fn committed(&mut self, time: Duration) {
        let Some(in_flight) = self.steps.in_flight.pop_front() else { return };
        self.steps.piece_size.learn(in_flight.bytes, time);
        let table = self.tables.of_mut(in_flight.table);
        table.is_suspect = false;
        self.problems.add(table.bisect.committed(in_flight.services.count));
        if let Some(undone) = self.steps.undone.get_mut(in_flight.table.index()) {
            *undone = false;
        }
        self.applied(in_flight);
        if self.steps.in_flight.is_empty() && self.is_settled() {
            self.steps.suspects.clear();
        }
        self.gather_stale_flows();
    }

    /// Returns whether all UDP flows should be compared, because the endpoints of port ranges changed
    /// since the last call.
    pub fn takes_changed_ranges(&mut self) -> bool {
        std::mem::take(&mut self.flows.are_ranges_due)
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
        let key = &elements.get(element)?.key;
        let Some(family) = table.family.of_addresses() else {
            let direct = self.tables.direct.as_ref()?;
            return direct.service_of(&set.name, key.as_bytes(), &self.diff).cloned();
        };
        let set = SetId::by_name(&set.name)?;
        let subject = Subject::read(family, set, key.as_bytes())?;
        self.diff.service_of(family, subject).cloned()
    }

    /// Suspects a service of the refusal of one of its elements, and leaves it out of the table the
    /// second time. That an element to delete is missing is suspicious once for each element.
    fn blame(
        &mut self,
        table: TableId,
        (service, missing): (ObjectName, Option<Value>),
        error: &CommitError,
    ) -> Cause {
        if self.steps.suspects.insert((service.clone(), missing)) {
            return Cause::Suspected(service);
        }
        match &mut self.tables.direct {
            Some(direct) if table == TableId::DirectReturn => {
                direct.plans.exclude(&service, &self.cluster);
            }
            _ => {
                self.exclude(service.clone());
                self.problems.add([left_out(&service, error)]);
            }
        }
        Cause::Excluded(service)
    }

    /// Handles the refusal of a step about devices, of which nothing counts as installed; returns `None`
    /// for other steps.
    fn refused_devices(&mut self, operation: Option<usize>, errno: Errno) -> Option<Answer> {
        let devices = self.tables.devices.as_mut()?;
        let of_devices = |it: &mut InFlight| matches!(it.base, Some(BaseChange::Devices(_)));
        let in_flight = self.steps.in_flight.pop_front_if(of_devices)?;
        let Some(BaseChange::Devices(change)) = in_flight.base else { return None };
        let is_left_out = devices.refused(&change, operation, errno);
        let read = Answer::ReadBack(Cause::Unknown);
        Some(is_left_out.map_or(read, |is_left_out| Answer::Devices { is_left_out }))
    }

    /// Handles a refusal that concerns no service. Another program may have changed the table; if
    /// not, the next transaction is refused too.
    fn suspect(&mut self, table: TableId, error: &CommitError) -> Answer {
        if !std::mem::replace(&mut self.tables.of_mut(table).is_suspect, true) {
            return Answer::ReadBack(Cause::Table(table));
        }
        self.block(table, error);
        Answer::Blocked(table)
    }

    /// Handles a refusal that concerns no part of the transaction. Makes the next transactions
    /// smaller, then limits their services, down to one.
    fn refused_unattributed(
        &mut self,
        table: TableId,
        errno: Option<Errno>,
        error: &CommitError,
    ) -> Answer {
        if errno.is_some_and(is_caused_by_size) && self.steps.piece_size.halve() {
            return Answer::ReadBack(Cause::Unattributed);
        }
        // Never empty: `answer` has checked it.
        let services = self.services_in_flight();
        match services.last {
            None => self.suspect(table, error),
            Some(_) if services.count > 1 => {
                self.tables.of_mut(table).bisect.narrow(services.count);
                Answer::ReadBack(Cause::Unattributed)
            }
            Some(service) => {
                let is_new = self.steps.suspects.insert((service.clone(), None));
                let problem = left_out(&service, error);
                if is_new || self.exclude_alone(table, service, problem) {
                    return Answer::ReadBack(Cause::Unattributed);
                }
                self.block(table, error);
                Answer::Blocked(table)
            }
        }
    }

    /// Excludes a service that was refused alone in a table. After too many of them, includes all again
    /// and returns false: services are not the cause.
    fn exclude_alone(&mut self, table: TableId, service: ObjectName, problem: Problem) -> bool {
        self.exclude(service.clone());
        let not_the_cause = self.tables.of_mut(table).bisect.refused_alone(service, problem);
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

    /// Sends no transaction for a table until the tables are read back.
    pub fn block(&mut self, table: impl Into<TableId>, error: &CommitError) {
        let table = table.into();
        self.tables.of_mut(table).blocked = Some(Blocked::by(error));
        self.drop_parts(table);
        self.tables.note_flowtables();
        if let Some(direct) = self.tables.direct.as_mut().filter(|_| table == TableId::DirectReturn)
        {
            direct.plans.note_blocked(true);
        }
    }

    /// Records the flags of a table after a handover.
    pub fn note_flags(&mut self, family: Family, flags: TableFlags) {
        self.tables.of_mut(family).installed.set_flags(flags);
    }

    /// Returns which part of the kernel the refusal of an operation shows to be missing, if any. The
    /// next transactions do without it.
    fn lack(&mut self, refused: Option<&Operation>, errno: Errno) -> Option<Cause> {
        let has = |is: fn(&Expression) -> bool| matches!(refused, Some(Operation::AddRule(_, rule)) if rule.expressions.iter().any(is));
        // `nft_flowtable_type_get` and `nft_expr_type_get` return the first.
        let is_lack = matches!(errno, Errno::ENOENT | Errno::EOPNOTSUPP);
        let needs_flowtables = matches!(refused, Some(Operation::AddFlowtable(..)))
            || has(|it| matches!(it, Expression::FlowOffload(_)));
        if needs_flowtables && is_lack && !self.node.lacks_flowtables {
            self.node.lacks_flowtables = true;
            self.render_tables();
            return Some(Cause::NoFlowtables);
        }
        let is_refused = is_lack || errno == Errno::EINVAL;
        let direct = self.tables.direct.as_mut().filter(|_| is_refused)?;
        has(|it| matches!(it, Expression::Fwd(_))).then(|| direct.plans.note_lack_of_fwd())?;
        Some(Cause::NoForwarding)
    }
}

/// Returns the key of a refused element that was to be deleted and did not exist.
fn missing(
    operations: &[Operation],
    (operation, element): (usize, usize),
    errno: Errno,
) -> Option<Value> {
    let Operation::DeleteElements(_, _, elements) = operations.get(operation)? else { return None };
    elements.get(element).filter(|_| errno == Errno::ENOENT).map(|element| element.key.clone())
}

fn left_out(service: &ObjectName, error: &CommitError) -> Problem {
    let message = format!("is left out until it changes: {error}");
    Problem::new(ProblemKind::Refused, ObjectRef::service(service), "", message)
}

/// Returns whether a smaller transaction may be accepted.
fn is_caused_by_size(errno: Errno) -> bool {
    matches!(errno, Errno::ENOMEM | Errno::EMSGSIZE | Errno::ENOBUFS)
}
