//! A round of the check at once and without pauses, after another program changed the tables in a
//! way that does not name single elements. Small changes are committed between its pieces.

use nft::family::Family;
use nft::kernel::Kernel;

use super::background_check::{LookUpScope, Round, Suspect};
use super::reading::pause_after;
use super::{Run, now};
use crate::writer::WriterGone;

/// The progress of a round at once.
#[derive(Debug)]
pub(super) struct Urgent {
    /// The round of the background check, which goes on afterwards.
    pub(super) interrupted: Round,
    /// Chains and rules are to be compared first.
    are_rules_due: bool,
    /// Elements that differed so far.
    differences: usize,
}

/// Most differences of a round. With more, the tables are read: that takes less time.
const MAX_DIFFERENCES: usize = 4_096;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Begins a round at once instead of reading the tables. Returns false if they must be read:
    /// the installed state is unknown, or there are flowtables.
    pub(super) fn check_now(&mut self) -> bool {
        let is_possible = !self.commits.is_initial_sync
            && self.devices.is_none()
            && self.engine.knows_installed();
        if is_possible {
            tracing::debug!("another program changed our tables: comparing all elements");
            let interrupted = std::mem::replace(&mut self.reads.check.round, Round::from(now()));
            self.reads.check.suspects.clear();
            self.reads.check.urgent =
                Some(Urgent { interrupted, are_rules_due: true, differences: 0 });
            // Flows may have begun by the changed tables.
            self.flows.note_read();
        }
        is_possible
    }

    /// Compares chains and rules before the remaining elements, after one more change.
    pub(super) fn check_rules_again(&mut self) {
        if let Some(urgent) = &mut self.reads.check.urgent {
            urgent.are_rules_due = true;
        }
    }

    /// Returns the scope before all others: rules, if they are due.
    pub(super) fn urgent_scope(&mut self) -> Option<LookUpScope> {
        let urgent = self.reads.check.urgent.as_mut()?;
        let is_due = std::mem::take(&mut urgent.are_rules_due);
        is_due.then(|| LookUpScope::rules_of(&Family::ALL))
    }

    /// Requests a read-back if very many elements differ.
    pub(super) fn limit_urgent(&mut self, confirmed: &mut Vec<Suspect>) {
        if let Some(urgent) = &mut self.reads.check.urgent {
            urgent.differences += confirmed.len();
            if urgent.differences > MAX_DIFFERENCES {
                *confirmed = vec![Suspect::Many];
            }
        }
    }

    /// Ends the round. The next one begins after a pause.
    pub(super) async fn end_urgent_check(&mut self) -> Result<(), WriterGone> {
        let Some(urgent) = self.reads.check.urgent.take() else { return Ok(()) };
        tracing::debug!(differences = urgent.differences, "compared all elements");
        let round = std::mem::replace(&mut self.reads.check.round, urgent.interrupted);
        let now = now();
        self.postpone_next_read(now + pause_after(now - round.began));
        if self.engine.is_settled() {
            self.flows.note_synced();
        }
        self.stop_watching().await
    }
}
