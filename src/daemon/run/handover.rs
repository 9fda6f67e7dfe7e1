//! Handovers of the tables: flags that the kernel does not change are changed while nothing else is
//! to be done, and at the end of the daemon the tables are left without flags.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::ruleset;
use engine::schedule::Input;
use nft::family::Family;
use nft::kernel::{CopyTableError, Kernel};
use nft::{TableFlags, TableRef};

use super::{Run, now};
use crate::handover::Handover;
use crate::writer::WriterGone;

/// Time without a change of services before the flags of the tables are changed.
const IDLE: Duration = Duration::from_secs(5);

/// The longest such time, after interrupted or failed handovers.
const LONGEST_IDLE: Duration = Duration::from_secs(600);

/// Interval at which a handover checks whether events have arrived.
const EVENTS_INTERVAL: Duration = Duration::from_millis(2);

/// Time limit of the handover tables at the end of the daemon: our own tables take as long, within
/// the grace period of a pod (30 s). Later the tables keep their flags.
const LEAVE_TIME: Duration = Duration::from_secs(10);

/// Performs a handover; see [`crate::handover::hand_over`].
pub type HandOver<K> = Arc<
    dyn Fn(&mut K, Handover, &dyn Fn() -> bool) -> Result<Vec<Family>, CopyTableError>
        + Send
        + Sync,
>;

/// Removes the handover tables; see [`crate::handover::remove_handover_tables`].
pub type RemoveTables<K> =
    Arc<dyn Fn(&mut K) -> Result<Vec<TableRef>, CopyTableError> + Send + Sync>;

/// How and when handovers are performed.
pub struct Handovers<K> {
    flags: TableFlags,
    hand_over: HandOver<K>,
    remove: RemoveTables<K>,
    /// The daemon ends, and no other one follows in this process.
    pub leaves: Arc<AtomicBool>,
    /// Handover tables of an earlier daemon may exist.
    may_have_tables: bool,
    idle: Duration,
    due: Option<Instant>,
}

impl<K> fmt::Debug for Handovers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handovers").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl<K> Handovers<K> {
    /// Returns handovers to tables with these flags.
    pub fn new(flags: TableFlags, hand_over: HandOver<K>, remove: RemoveTables<K>) -> Self {
        Self {
            flags,
            hand_over,
            remove,
            leaves: Arc::default(),
            may_have_tables: true,
            idle: IDLE,
            due: None,
        }
    }

    /// Returns the time of the next handover; `None` without any.
    pub(super) fn due(handovers: Option<&Self>) -> Option<Instant> {
        handovers.and_then(|it| it.due)
    }
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Postpones the change of flags after a change of services.
    pub(super) fn note_activity(&mut self) {
        let wanted = self.engine.has_fixed_flags();
        if let Some(handovers) = &mut self.handovers {
            handovers.due = wanted.then(|| now() + handovers.idle);
        }
    }

    /// Removes handover tables of an earlier daemon, once our tables serve.
    pub(super) async fn end_handover(&mut self) -> Result<(), WriterGone> {
        let Some(handovers) = self.handovers.as_mut().filter(|it| it.may_have_tables) else {
            return Ok(());
        };
        handovers.may_have_tables = false;
        let remove = Arc::clone(&handovers.remove);
        self.note_activity();
        match self.writer.run(move |kernel| remove(kernel)).await? {
            Ok(removed) if removed.is_empty() => {}
            Ok(_) => tracing::info!("removed the handover tables of the daemon before"),
            Err(error) => tracing::warn!("the handover tables stay until they expire: {error}"),
        }
        Ok(())
    }

    /// Returns whether a handover would delay nothing.
    pub(super) fn may_hand_over(&self) -> bool {
        let is_checking = self.check.urgent.is_some() || self.check.search.is_some();
        !is_checking
            && self.engine.is_settled()
            && self.are_tables_in_place()
            && self.events.is_empty()
    }

    /// Gives the tables the desired flags. Stops if events arrive before anything is changed.
    pub(super) async fn change_flags(&mut self) -> Result<(), WriterGone> {
        if self.notes_tampering().await? {
            self.note_activity();
            return Ok(());
        }
        let Some(handovers) = &self.handovers else { return Ok(()) };
        let (flags, hand_over) = (handovers.flags, Arc::clone(&handovers.hand_over));
        let has_events = Arc::new(AtomicBool::new(false));
        let is_interrupted = Arc::clone(&has_events);
        let started = now();
        let outcome = self.writer.run(move |kernel| {
            let is_interrupted = || is_interrupted.load(Ordering::Relaxed);
            // The kernel would send this process a notification of each copied element.
            kernel.ignore_others();
            let outcome = hand_over(kernel, Handover::Flags(flags), &is_interrupted);
            if outcome.is_err() || !flags.owner {
                kernel.watch_others(&Family::ALL.map(ruleset::table))?;
            }
            outcome
        });
        tokio::pin!(outcome);
        let outcome = loop {
            tokio::select! {
                outcome = &mut outcome => break outcome?,
                () = tokio::time::sleep(EVENTS_INTERVAL) => {
                    has_events.store(!self.events.is_empty(), Ordering::Relaxed);
                }
            }
        };
        self.note_handover(outcome, started);
        self.stop_watching().await
    }

    fn note_handover(&mut self, outcome: Result<Vec<Family>, CopyTableError>, started: Instant) {
        let Some(handovers) = &mut self.handovers else { return };
        match outcome {
            // An attempt that was interrupted may have changed the first table.
            Ok(_) => {
                for family in Family::ALL {
                    self.engine.note_flags(family, handovers.flags);
                }
                let took = (now() - started).as_millis();
                let owned = if handovers.flags.owner { "owned" } else { "without an owner" };
                tracing::info!("the tables are {owned} now; the change took {took} ms");
                handovers.due = None;
                return;
            }
            Err(CopyTableError::Interrupted) => {
                tracing::debug!("changes of services interrupted the change of the tables' flags");
            }
            Err(error) => {
                tracing::warn!("cannot change the flags of the tables: {error}; trying again");
                // A part may be missing.
                self.schedule.handle(Input::ReadNow, now());
            }
        }
        handovers.idle = (handovers.idle * 2).min(LONGEST_IDLE);
        handovers.due = Some(now() + handovers.idle);
    }

    /// Leaves the tables without flags, and with handover tables beside them, to the next program.
    pub(super) async fn leave(&mut self) -> Result<(), WriterGone> {
        let Some(handovers) = self.handovers.as_ref() else { return Ok(()) };
        let is_blocked = Family::ALL.iter().any(|family| self.engine.blocked(*family).is_some());
        if !handovers.leaves.load(Ordering::Relaxed) || self.is_initial_sync || is_blocked {
            return Ok(());
        }
        let hand_over = Arc::clone(&handovers.hand_over);
        let started = now();
        let outcome = self.writer.run(move |kernel| {
            kernel.ignore_others();
            hand_over(kernel, Handover::Leave, &|| now() > started + LEAVE_TIME)
        });
        match outcome.await? {
            Ok(_) => {
                let took = (now() - started).as_millis();
                tracing::info!("left the tables to the next program in {took} ms");
            }
            Err(error) => tracing::warn!(
                "cannot leave the tables to the next program: {error}; `deltaproxy cleanup` frees or \
                 removes them"
            ),
        }
        Ok(())
    }
}
