//! What follows from the outcome of a transaction. No I/O: the caller commits and reads back.

use std::time::Duration;

use nix::errno::Errno;

use super::Engine;
use super::base_state::BaseState;
use super::queue::Lane;
use crate::kernel::{CommitError, Committed};
use crate::model::{Extent, ObjectName, ObjectRef, Problem};
use crate::nft::{Operation, Transaction};
use crate::ruleset::{SetId, Subject};

/// What an outcome means for the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The transaction was applied. Take the next one.
    Applied,
    /// Nothing was applied, or that is not known. Read the tables back, call [`Engine::observe`]
    /// and go on.
    ReadBack(Cause),
    /// The same, and going on at once leads to the same error.
    Hopeless,
}

/// Why a transaction was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An element of this service was refused for the first time. The tables may have been changed
    /// by another program, so reading them back may cure it.
    Suspected(ObjectName),
    /// An element of this service was refused again. It is left out until it changes.
    Excluded(ObjectName),
    /// The transaction was too large. The next ones are smaller.
    TooLarge,
    /// The outcome is not known, or the transaction was not sent.
    NotKnown,
}

impl Engine {
    /// Takes in the outcome of the transaction in flight, the first of two.
    pub fn answer(
        &mut self,
        transaction: &Transaction,
        outcome: &Result<Committed, CommitError>,
    ) -> Answer {
        match outcome {
            Ok(committed) => {
                self.committed(committed.kernel_time);
                Answer::Applied
            }
            Err(CommitError::Refused { operation: Some(operation), element, .. }) => {
                let element = element.unwrap_or_default();
                match self.culprit(transaction, *operation, element) {
                    Some(service) => Answer::ReadBack(self.blame(service, outcome)),
                    None => Answer::Hopeless,
                }
            }
            Err(CommitError::Refused { operation: None, errno, .. }) if is_about_size(*errno) => {
                self.shrink()
            }
            Err(CommitError::NotSent(error)) => {
                let errno = error.raw_os_error().map(Errno::from_raw);
                match errno.is_some_and(is_about_size) {
                    true => self.shrink(),
                    false => Answer::ReadBack(Cause::NotKnown),
                }
            }
            Err(CommitError::Unknown(_)) => Answer::ReadBack(Cause::NotKnown),
            Err(CommitError::Refused { .. } | CommitError::Owned { .. }) => Answer::Hopeless,
        }
    }

    /// The transaction in flight was applied; the kernel took `time` for it. Later ones are
    /// cut so that each takes about as long as one should.
    pub fn committed(&mut self, time: Duration) {
        let Some(in_flight) = self.in_flight.pop_front() else { return };
        self.pace.learn(in_flight.bytes, time);
        let changed = |table: &&mut super::TableState| in_flight.tables.contains(&table.family);
        for table in self.tables.iter_mut().filter(changed) {
            let flags = table.installed.flags_after(self.table_flags);
            table.installed = BaseState::after(&table.desired, flags);
            table.is_stale = false;
            table.cleanup = Vec::new();
        }
        self.diff.committed();
        for service in std::mem::take(&mut self.after_commit) {
            self.queue.put_first(Lane::Fast, service);
        }
        if self.in_flight.is_empty() && self.is_settled() {
            self.suspects.clear();
        }
        self.gather_stale_flows();
    }

    /// The service that a refused element belongs to.
    fn culprit(
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
        let set = SetId::by_name(&set.name)?;
        let key = elements.get(element)?.key;
        let subject = Subject::read(table.family, set, key.as_bytes())?;
        self.diff.service_of(table.family, subject).cloned()
    }

    fn blame(&mut self, service: ObjectName, outcome: &Result<Committed, CommitError>) -> Cause {
        if self.suspects.insert(service.clone()) {
            return Cause::Suspected(service);
        }
        self.diff.excluded.insert(service.clone());
        self.queue.add([(service.clone(), Extent::Whole)].into_iter());
        let reason = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        self.problems.push(Problem {
            object: ObjectRef::service(&service),
            field: String::new(),
            message: format!("is left out until it changes: {reason}"),
        });
        Cause::Excluded(service)
    }

    fn shrink(&mut self) -> Answer {
        match self.pace.halve() {
            true => Answer::ReadBack(Cause::TooLarge),
            false => Answer::Hopeless,
        }
    }
}

/// Whether a smaller transaction may be accepted.
fn is_about_size(errno: Errno) -> bool {
    matches!(errno, Errno::ENOMEM | Errno::EMSGSIZE | Errno::ENOBUFS)
}
