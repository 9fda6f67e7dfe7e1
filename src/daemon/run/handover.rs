//! Handovers of the tables: flags that the kernel does not change are changed while nothing else is
//! to be done, and at the end of the daemon the tables are left without flags.
//!
//! ```text
//! (no attempt) -+- idle ------------> Listing    over another socket
//! Listing ------+- all listed ------> Copying
//!               +- a commit --------> given up
//! Copying ------+- next step -------> Copying, Serving
//!               +- a commit --------> given up
//! Serving ------+- a commit --------> Serving    the kernel's side repeats it in the new table
//!               +- last step -------> (no attempt)
//! given up -----+- idle ------------> (no attempt) for some time
//! ```
//!
//! Between two steps the loop does everything else first, so a change waits for one step at most.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::doubt::Input;
use engine::ruleset;
use futures::FutureExt;
use futures::future::BoxFuture;
use nft::family::Family;
use nft::kernel::{CopyTableError, Kernel, Nftables};
use nft::{TableFlags, TableRef};

use super::devices::is_committing;
use super::{Run, now};
use crate::handover::{self, Step};
use crate::writer::WriterGone;

/// Time without a change of services before the flags of the tables are changed.
const IDLE: Duration = Duration::from_secs(5);

/// The pause after the first attempt that was given up or failed; each further one is twice as long.
/// An attempt lists all elements, which takes the kernel 3 s with 50,000 services.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Time limit of the handover tables at the end of the daemon: our own tables take as long, within
/// the grace period of a pod (30 s). Later the tables keep their flags.
const LEAVE_TIME: Duration = Duration::from_secs(10);

/// Leaves the tables to the next program; see [`crate::handover::hand_over`].
pub type HandOver<K> =
    Arc<dyn Fn(&mut K, &dyn Fn() -> bool) -> Result<Vec<Family>, CopyTableError> + Send + Sync>;

/// Removes the handover tables; see [`crate::handover::remove_handover_tables`].
pub type RemoveTables<K> =
    Arc<dyn Fn(&mut K) -> Result<Vec<TableRef>, CopyTableError> + Send + Sync>;

/// Lists a table and returns the steps that change its flags; see [`crate::handover::list`].
pub type ListTable<K> = Arc<
    dyn Fn(&mut K, Family, &dyn Fn() -> bool) -> Result<Option<Steps<K>>, CopyTableError>
        + Send
        + Sync,
>;

/// Performs the next step of a handover; see [`crate::handover::Stepwise::step`].
pub type Steps<K> = Box<dyn FnMut(&mut K) -> Result<Step, CopyTableError> + Send>;

/// How and when handovers are performed.
pub struct Handovers<K> {
    flags: TableFlags,
    /// Begins a change of flags.
    pub list: ListTable<K>,
    /// Ends the daemon.
    pub hand_over: HandOver<K>,
    /// Removes what an earlier daemon or an attempt left.
    pub remove: RemoveTables<K>,
    /// The daemon ends, and no other one follows in this process.
    pub leaves: Arc<AtomicBool>,
    /// Time without a change of services before an attempt.
    pub idle: Duration,
    /// The pause after the next attempt that is given up.
    pub pause: Duration,
    rest: Rest,
    not_before: Option<Instant>,
    due: Option<Instant>,
    attempt: Option<Attempt<K>>,
}

/// Handover tables that may exist and do not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    None,
    OfEarlierDaemon,
    OfAttempt,
}

/// An attempt to change the flags of a table.
struct Attempt<K> {
    family: Family,
    started: Instant,
    stage: Stage<K>,
    /// The longest step.
    longest: Duration,
    steps: usize,
}

enum Stage<K> {
    /// The table is listed; the flag ends this.
    Listing(Listing<K>, Arc<AtomicBool>),
    /// Nothing of the table has changed.
    Copying(Steps<K>),
    /// All steps must follow.
    Serving(Steps<K>),
    /// The table changed.
    GivenUp,
}

type Listed<K> = Result<Option<Steps<K>>, CopyTableError>;

type Listing<K> = BoxFuture<'static, Result<Listed<K>, WriterGone>>;

impl<K> fmt::Debug for Handovers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handovers").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Handovers<Nftables> {
    /// Returns handovers to tables with these flags.
    pub fn new(flags: TableFlags) -> Self {
        let list: ListTable<_> = Arc::new(move |kernel, family, is_interrupted| {
            let listed = handover::list(kernel, family, flags, is_interrupted)?;
            Ok(listed.map(|mut it| Box::new(move |kernel: &mut _| it.step(kernel)) as Steps<_>))
        });
        let hand_over = Arc::new(handover::hand_over);
        Self::with(flags, list, hand_over, Arc::new(handover::remove_handover_tables))
    }
}

impl<K> Handovers<K> {
    /// Returns handovers by these functions.
    pub fn with(
        flags: TableFlags,
        list: ListTable<K>,
        hand_over: HandOver<K>,
        remove: RemoveTables<K>,
    ) -> Self {
        Self {
            flags,
            list,
            hand_over,
            remove,
            leaves: Arc::default(),
            idle: IDLE,
            pause: FIRST_PAUSE,
            rest: Rest::OfEarlierDaemon,
            not_before: None,
            due: None,
            attempt: None,
        }
    }

    /// Returns the time of the next step; `None` without any.
    pub(super) fn due(handovers: Option<&Self>) -> Option<Instant> {
        let handovers = handovers?;
        match &handovers.attempt {
            None => handovers.due,
            Some(attempt) => match attempt.stage {
                Stage::Listing(..) => None,
                Stage::Copying(_) | Stage::Serving(_) | Stage::GivenUp => Some(now()),
            },
        }
    }

    /// Returns whether handover tables may exist that do not serve.
    fn has_tables_to_remove(&self) -> bool {
        self.attempt.is_none() && self.rest != Rest::None
    }

    /// Returns whether an attempt must go on: a step of it does no harm at any time.
    fn must_go_on(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Serving(_) | Stage::GivenUp))
    }
}

/// Waits for the list of a table.
pub(super) async fn listed_table<K>(
    handovers: &mut Option<Handovers<K>>,
) -> Result<Listed<K>, WriterGone> {
    let attempt = handovers.as_mut().and_then(|handovers| handovers.attempt.as_mut());
    match attempt.map(|attempt| &mut attempt.stage) {
        Some(Stage::Listing(listing, _)) => listing.await,
        Some(Stage::Copying(_) | Stage::Serving(_) | Stage::GivenUp) | None => {
            std::future::pending().await
        }
    }
}

impl<K: Kernel + Send + 'static> Run<K> {
    /// Postpones the change of flags after a change of services.
    pub(super) fn note_activity(&mut self) {
        let wanted = self.engine.tables().fixed_flags().is_some();
        if let Some(handovers) = &mut self.handovers {
            let at = now() + handovers.idle;
            handovers.due = wanted.then(|| handovers.not_before.map_or(at, |pause| pause.max(at)));
        }
    }

    /// Removes handover tables of an earlier daemon, once our tables serve.
    pub(super) async fn end_handover(&mut self) -> Result<(), WriterGone> {
        let handovers = self.handovers.as_mut().filter(|it| it.has_tables_to_remove());
        let Some(handovers) = handovers else { return Ok(()) };
        let rest = std::mem::replace(&mut handovers.rest, Rest::None);
        let remove = Arc::clone(&handovers.remove);
        self.note_activity();
        match self.writer.run(move |kernel| remove(kernel)).await? {
            Ok(removed) if removed.is_empty() || rest == Rest::OfAttempt => {}
            Ok(_) => tracing::info!("removed the handover tables of the previous daemon"),
            Err(error) => tracing::warn!("the handover tables stay until they expire: {error}"),
        }
        Ok(())
    }

    /// Returns whether a step of a handover would delay nothing.
    pub(super) fn may_hand_over(&self) -> bool {
        let is_idle = !self.reads.doubt.is_urgent()
            && self.engine.is_settled()
            && self.are_tables_in_place()
            && self.arrivals.is_empty()
            && !is_committing(self.devices.as_ref());
        is_idle || self.handovers.as_ref().is_some_and(Handovers::must_go_on)
    }

    /// Returns whether a table is being replaced: nothing should read it.
    pub(super) fn is_replacing(&self) -> bool {
        let attempt = self.handovers.as_ref().and_then(|handovers| handovers.attempt.as_ref());
        attempt.is_some_and(|attempt| matches!(attempt.stage, Stage::Serving(_)))
    }

    /// Gives an attempt up before a table changes, unless the change goes to both tables.
    pub(super) fn spoil_handover(&mut self) {
        let attempt = self.handovers.as_mut().and_then(|handovers| handovers.attempt.as_mut());
        let Some(attempt) = attempt else { return };
        match &attempt.stage {
            Stage::Serving(_) | Stage::GivenUp => {}
            Stage::Copying(_) => attempt.stage = Stage::GivenUp,
            Stage::Listing(_, is_interrupted) => {
                is_interrupted.store(true, Ordering::Relaxed);
                attempt.stage = Stage::GivenUp;
            }
        }
    }

    /// Performs the next step of giving the tables the desired flags.
    pub(super) async fn handover_step(&mut self) -> Result<(), WriterGone> {
        let Some(handovers) = &mut self.handovers else { return Ok(()) };
        let Some(attempt) = handovers.attempt.take() else { return self.list_table().await };
        let (steps, is_first) = match attempt.stage {
            Stage::Copying(steps) => (steps, attempt.steps == 0),
            Stage::Serving(steps) => (steps, false),
            Stage::GivenUp => return self.give_up(None).await,
            Stage::Listing(..) => {
                handovers.attempt = Some(attempt);
                return Ok(());
            }
        };
        if is_first && self.notes_tampering().await? {
            return self.give_up(None).await;
        }
        self.step(Attempt { stage: Stage::GivenUp, ..attempt }, steps).await
    }

    async fn step(
        &mut self,
        mut attempt: Attempt<K>,
        mut steps: Steps<K>,
    ) -> Result<(), WriterGone> {
        let started = now();
        let step = self.writer.run(move |kernel| {
            // The kernel would send this process a notification of each copied element.
            kernel.ignore_others();
            let step = steps(kernel);
            (steps, step)
        });
        let (steps, step) = step.await?;
        let took = now() - started;
        tracing::trace!(number = attempt.steps, took = took.as_micros(), "step of a handover");
        attempt.longest = attempt.longest.max(took);
        attempt.steps += 1;
        attempt.stage = match step {
            Ok(Step::Copied) => Stage::Copying(steps),
            Ok(Step::Serving) => Stage::Serving(steps),
            Ok(Step::Done) => {
                let Attempt { family, started, steps, longest, .. } = attempt;
                let (of, longest) = (family.name(), longest.as_millis());
                tracing::debug!(steps, longest, "replaced the table of {of}");
                return self.note_handover(family, started).await;
            }
            Err(error) => return self.give_up(Some(error)).await,
        };
        if let Some(handovers) = &mut self.handovers {
            handovers.attempt = Some(attempt);
        }
        Ok(())
    }

    /// Begins an attempt for the first table without the desired flags.
    async fn list_table(&mut self) -> Result<(), WriterGone> {
        if self.notes_tampering().await? {
            self.note_activity();
            return Ok(());
        }
        let family = self.engine.tables().fixed_flags();
        let Some(handovers) = &mut self.handovers else { return Ok(()) };
        handovers.due = None;
        let Some(family) = family else { return Ok(()) };
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let (list, flag) = (Arc::clone(&handovers.list), Arc::clone(&is_interrupted));
        let reader = self.reads.open_reader();
        let listing = reader
            .as_ref()
            .unwrap_or(&self.writer)
            .run(move |kernel| list(kernel, family, &|| flag.load(Ordering::Relaxed)));
        let listing = async move {
            let listed = listing.await;
            // Its thread ends with this handle.
            drop(reader);
            listed
        };
        handovers.attempt = Some(Attempt {
            family,
            started: now(),
            stage: Stage::Listing(listing.boxed(), is_interrupted),
            longest: Duration::ZERO,
            steps: 0,
        });
        Ok(())
    }

    /// Goes on with the list of a table.
    pub(super) async fn take_listed(&mut self, listed: Listed<K>) -> Result<(), WriterGone> {
        let Some(handovers) = &mut self.handovers else { return Ok(()) };
        let Some(mut attempt) = handovers.attempt.take() else { return Ok(()) };
        match listed {
            Ok(Some(steps)) => {
                attempt.stage = Stage::Copying(steps);
                handovers.attempt = Some(attempt);
                Ok(())
            }
            Ok(None) => self.note_handover(attempt.family, attempt.started).await,
            Err(error) => self.give_up(Some(error)).await,
        }
    }

    /// Notes that a table has the desired flags.
    async fn note_handover(&mut self, family: Family, started: Instant) -> Result<(), WriterGone> {
        let flags = self.handovers.as_ref().map(|handovers| handovers.flags).unwrap_or_default();
        self.engine.note_flags(family, flags);
        let took = (now() - started).as_millis();
        if self.engine.tables().fixed_flags().is_some() {
            // The other table is next, but not at once: while the kernel frees the elements of this
            // one, commits wait for the end of that whenever a socket is closed
            // (`nft_rcv_nl_event`).
            self.note_activity();
            return self.watch_again().await;
        }
        let owned = if flags.owner { "owned" } else { "without an owner" };
        tracing::info!("the tables are {owned} now; the change took {took} ms");
        if self.engine.tables().are_owned() {
            self.stop_watching().await
        } else {
            self.watch_again().await
        }
    }

    /// Ends an attempt, after a change of the table or an error.
    async fn give_up(&mut self, error: Option<CopyTableError>) -> Result<(), WriterGone> {
        let is_unchanged = error.is_none();
        match error {
            None | Some(CopyTableError::Interrupted) => {
                tracing::debug!("a change of services interrupted the change of the tables' flags");
            }
            Some(error) => {
                tracing::warn!("cannot change the flags of the tables: {error}; trying again");
                // A part may be missing.
                self.reads.doubt.handle(Input::ReadNow, now());
            }
        }
        if let Some(handovers) = &mut self.handovers {
            handovers.rest = Rest::OfAttempt;
            handovers.not_before = Some(now() + handovers.pause);
            handovers.pause = (handovers.pause * 2).min(LONGEST_PAUSE);
        }
        self.note_activity();
        self.watch_again().await?;
        if is_unchanged && self.are_tables_in_place() { self.end_handover().await } else { Ok(()) }
    }

    async fn watch_again(&mut self) -> Result<(), WriterGone> {
        let tables = Family::ALL.map(ruleset::table);
        let watched = self.writer.run(move |kernel| kernel.watch_others(&tables));
        if let Err(error) = watched.await? {
            tracing::warn!("cannot watch the tables: {error}");
        }
        Ok(())
    }

    /// Completes an attempt, if a handover table serves.
    async fn complete_handover(&mut self) -> Result<(), WriterGone> {
        while self.is_replacing() {
            self.handover_step().await?;
        }
        Ok(())
    }

    /// Leaves the tables without flags, and with handover tables beside them, to the next program.
    pub(super) async fn leave(&mut self) -> Result<(), WriterGone> {
        self.spoil_handover();
        self.complete_handover().await?;
        let Some(handovers) = self.handovers.as_mut() else { return Ok(()) };
        let is_blocked =
            Family::ALL.iter().any(|family| self.engine.tables().blocked(*family).is_some());
        if !handovers.leaves.load(Ordering::Relaxed) || self.reads.doubt.is_start() || is_blocked {
            return Ok(());
        }
        let hand_over = Arc::clone(&handovers.hand_over);
        let started = now();
        let outcome = self.writer.run(move |kernel| {
            kernel.ignore_others();
            hand_over(kernel, &|| now() > started + LEAVE_TIME)
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
