//! Attempts to take the ownership of existing tables, and the end of the daemon, which leaves them
//! without flags. The kernel sets the flag `persist` of new tables only, so a handover replaces them.
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
//! Between two steps the loop does everything else first, so a change waits for one step at most
//! before its first commit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use nft::family::Family;
use nft::kernel::{CopyTableError, Kernel, Nftables};
use nft::{TableFlags, TableRef};

use super::ending::{Ending, Left};
use super::wait::now;
use crate::handover::{self, LIFETIME, Step};
use crate::observe::{self, Cause, Causes, Observe};
use crate::writer::{Writer, WriterGone};

/// Time without a change of services before the flags of the tables are changed.
const IDLE: Duration = Duration::from_secs(5);

/// The pause after the first attempt that was given up or failed; each further one is twice as long.
/// An attempt lists all elements, which takes the kernel 3 s with 50,000 services.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Time from the signal after which no more of a handover table is created, in
/// either family: that table of ours keeps its flags. The replacement of a table of ours takes about
/// as long as its copy, and the grace period of a pod is 30 s.
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
    pub(super) flags: TableFlags,
    /// Begins a change of flags.
    pub list: ListTable<K>,
    /// Leaves the tables at the end.
    pub hand_over: HandOver<K>,
    /// Removes what an earlier daemon or an attempt left.
    pub remove: RemoveTables<K>,
    /// What the program and the loop tell each other at the end.
    pub ending: Arc<Ending>,
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
    /// The longest step, and all of them.
    longest: Duration,
    worked: Duration,
    steps: usize,
}

enum Stage<K> {
    /// The table is listed; the flag ends this.
    Listing(Listing<K>, Arc<AtomicBool>),
    /// A step is in the kernel; what follows is not known.
    Stepping(Stepping<K>),
    /// Nothing of the table has changed.
    Copying(Steps<K>),
    /// All steps must follow.
    Serving(Steps<K>),
    /// The table changed.
    GivenUp,
}

/// The end of an attempt.
#[derive(Debug)]
pub(super) enum End {
    /// The table has the flags, after this time in the kernel.
    Changed { family: Family, started: Instant, worked: Duration },
    /// A change of the table interrupted the attempt, or it failed.
    GivenUp(Option<CopyTableError>),
}

pub(super) type Listed<K> = Result<Option<Steps<K>>, CopyTableError>;

type Stepping<K> = BoxFuture<'static, Result<(Steps<K>, Result<Step, CopyTableError>), WriterGone>>;

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
            ending: Arc::default(),
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
                Stage::Stepping(_) | Stage::Copying(_) | Stage::Serving(_) | Stage::GivenUp => {
                    Some(now())
                }
            },
        }
    }

    /// Returns whether the next step is the first that needs the table as it was listed, or lists it.
    pub(super) fn is_first_step(&self) -> bool {
        match &self.attempt {
            None => true,
            Some(Attempt { stage: Stage::Copying(_), steps, .. }) => *steps == 0,
            Some(_) => false,
        }
    }

    pub(super) fn has_attempt(&self) -> bool {
        self.attempt.is_some()
    }

    /// Returns whether a table may be being replaced: nothing should read it.
    pub(super) fn is_replacing(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Stepping(_) | Stage::Serving(_)))
    }

    /// Returns whether the next step does not wait until the daemon is idle: our table is replaced, or
    /// the attempt only has to end.
    pub(super) fn must_go_on(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Stepping(_) | Stage::Serving(_) | Stage::GivenUp))
    }
}

/// Adds a replaced table, or the removal of a handover table, to the history. Its elements stay the
/// same.
pub(super) fn record(family: Option<Family>, took: Duration, observe: &Observe) {
    let causes = Causes::only(Cause::Handover);
    let transaction = observe::Transaction { causes, family, took, ..Default::default() };
    observe.committed_beside(&transaction);
}

/// Waits for the list of a table.
pub(super) async fn listed_table<K>(
    handovers: &mut Option<Handovers<K>>,
) -> Result<Listed<K>, WriterGone> {
    let attempt = handovers.as_mut().and_then(|handovers| handovers.attempt.as_mut());
    match attempt.map(|attempt| &mut attempt.stage) {
        Some(Stage::Listing(listing, _)) => listing.await,
        Some(Stage::Stepping(_) | Stage::Copying(_) | Stage::Serving(_) | Stage::GivenUp)
        | None => std::future::pending().await,
    }
}

/// Sends a step of a handover to the kernel's thread.
fn begun<K: Kernel + Send + 'static>(mut steps: Steps<K>, writer: &Writer<K>) -> Stepping<K> {
    let step = writer.run(move |kernel| {
        // The kernel would send this process a notification of each copied element.
        kernel.ignore_others();
        let step = steps(kernel);
        (steps, step)
    });
    step.boxed()
}

impl<K: Kernel + Send + 'static> Handovers<K> {
    /// Postpones the change of flags after a change of services.
    pub(super) fn note_activity(&mut self, is_wanted: bool, now: Instant) {
        let at = now + self.idle;
        self.due = is_wanted.then(|| self.not_before.map_or(at, |pause| pause.max(at)));
    }

    /// Removes handover tables of an earlier daemon or attempt, once our tables serve. The change of
    /// flags is postponed if there may be some.
    pub(super) async fn remove_tables(
        &mut self,
        is_wanted: bool,
        writer: &Writer<K>,
        observe: &Observe,
    ) -> Result<(), WriterGone> {
        if self.attempt.is_some() || self.rest == Rest::None {
            return Ok(());
        }
        let rest = std::mem::replace(&mut self.rest, Rest::None);
        let remove = Arc::clone(&self.remove);
        let started = now();
        self.note_activity(is_wanted, started);
        let outcome = writer.run(move |kernel| remove(kernel)).await?;
        let tables = outcome.as_ref().map_or(&[][..], Vec::as_slice);
        for table in tables {
            record(table.family.of_addresses(), now() - started, observe);
        }
        match outcome {
            Ok(removed) if removed.is_empty() || rest == Rest::OfAttempt => {}
            Ok(_) => tracing::info!("removed the handover tables of the previous daemon"),
            Err(error) => tracing::warn!("the handover tables stay until they expire: {error}"),
        }
        Ok(())
    }

    /// Gives an attempt up before a table changes, unless the change goes to both tables.
    pub(super) fn spoil(&mut self) {
        let Some(attempt) = &mut self.attempt else { return };
        match &attempt.stage {
            Stage::Stepping(_) | Stage::Serving(_) | Stage::GivenUp => {}
            Stage::Copying(_) => attempt.stage = Stage::GivenUp,
            Stage::Listing(_, is_interrupted) => {
                is_interrupted.store(true, Ordering::Relaxed);
                attempt.stage = Stage::GivenUp;
            }
        }
    }

    /// Performs the next step of the attempt; returns its end.
    pub(super) async fn step(&mut self, writer: &Writer<K>) -> Result<Option<End>, WriterGone> {
        let Some(mut attempt) = self.attempt.take() else { return Ok(None) };
        let stepping = match attempt.stage {
            Stage::Copying(steps) | Stage::Serving(steps) => begun(steps, writer),
            Stage::Stepping(stepping) => stepping,
            Stage::GivenUp => return Ok(Some(End::GivenUp(None))),
            Stage::Listing(..) => {
                self.attempt = Some(attempt);
                return Ok(None);
            }
        };
        let started = now();
        // The end of the daemon may drop this call, and completes the step by another one.
        attempt.stage = Stage::Stepping(stepping);
        let attempt = self.attempt.insert(attempt);
        let Stage::Stepping(stepping) = &mut attempt.stage else { return Ok(None) };
        let (steps, step) = stepping.await?;
        let Some(mut attempt) = self.attempt.take() else { return Ok(None) };
        let took = now() - started;
        tracing::trace!(number = attempt.steps, took = took.as_micros(), "step of a handover");
        attempt.longest = attempt.longest.max(took);
        attempt.worked += took;
        attempt.steps += 1;
        attempt.stage = match step {
            Ok(Step::Copied) => Stage::Copying(steps),
            Ok(Step::Serving) => Stage::Serving(steps),
            Ok(Step::Done) => {
                let Attempt { family, started, steps, longest, worked, .. } = attempt;
                let (of, longest) = (family.name(), longest.as_millis());
                tracing::debug!(steps, longest, "replaced the table of {of}");
                return Ok(Some(End::Changed { family, started, worked }));
            }
            Err(error) => return Ok(Some(End::GivenUp(Some(error)))),
        };
        self.attempt = Some(attempt);
        Ok(None)
    }

    /// Begins an attempt for a table without the desired flags. It is listed by `reader`, or without
    /// one by the socket of the commits.
    pub(super) fn begin(&mut self, family: Family, reader: Option<Writer<K>>, writer: &Writer<K>) {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let (list, flag) = (Arc::clone(&self.list), Arc::clone(&is_interrupted));
        let listing = reader
            .as_ref()
            .unwrap_or(writer)
            .run(move |kernel| list(kernel, family, &|| flag.load(Ordering::Relaxed)));
        let listing = async move {
            let listed = listing.await;
            // Its thread ends with this handle.
            drop(reader);
            listed
        };
        self.due = None;
        self.attempt = Some(Attempt {
            family,
            started: now(),
            stage: Stage::Listing(listing.boxed(), is_interrupted),
            longest: Duration::ZERO,
            worked: Duration::ZERO,
            steps: 0,
        });
    }

    /// Goes on with the list of a table; returns the end of the attempt.
    pub(super) fn take_listed(&mut self, listed: Listed<K>) -> Option<End> {
        let mut attempt = self.attempt.take()?;
        match listed {
            Ok(Some(steps)) => {
                attempt.stage = Stage::Copying(steps);
                self.attempt = Some(attempt);
                None
            }
            Ok(None) => {
                let Attempt { family, started, worked, .. } = attempt;
                Some(End::Changed { family, started, worked })
            }
            Err(error) => Some(End::GivenUp(Some(error))),
        }
    }

    /// Postpones the next attempt after one that was given up, which may have left a handover table.
    pub(super) fn note_given_up(&mut self, now: Instant) {
        self.rest = Rest::OfAttempt;
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Leaves the tables without flags, and with handover tables beside them, to the next program.
    /// The daemon was asked to end at `started`.
    pub(super) async fn leave(
        &mut self,
        writer: &Writer<K>,
        started: Instant,
    ) -> Result<Left, WriterGone> {
        let (hand_over, ending) = (Arc::clone(&self.hand_over), Arc::clone(&self.ending));
        let outcome = writer.run(move |kernel| {
            kernel.ignore_others();
            hand_over(kernel, &|| {
                ending.progress.fetch_add(1, Ordering::Relaxed);
                now() > started + LEAVE_TIME
            })
        });
        Ok(match outcome.await? {
            Ok(_) => {
                let ms = (now() - started).as_millis();
                tracing::info!(
                    ms,
                    "left the tables to the next program; the handover tables translate until it \
                     does, for {} s at most, and `deltaproxy cleanup` removes what remains then",
                    LIFETIME.as_secs()
                );
                Left::Free
            }
            Err(error) => {
                tracing::warn!(
                    "cannot leave the tables to the next program: {error}; `deltaproxy cleanup` frees \
                     or removes them"
                );
                Left::Owned
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use fake_kernel::Fake;

    use super::*;

    /// Handovers whose attempts take these steps, and the number of removals.
    fn handovers(steps: &'static [Step]) -> (Handovers<Fake>, Arc<AtomicUsize>) {
        let list: ListTable<Fake> = Arc::new(move |_, _, _| {
            let mut left = steps.iter().copied();
            let next = move |_: &mut Fake| left.next().ok_or(CopyTableError::Interrupted);
            Ok(Some(Box::new(next) as Steps<Fake>))
        });
        let removals = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&removals);
        let remove = Arc::new(move |_: &mut Fake| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        });
        let hand_over: HandOver<Fake> = Arc::new(|_, _| Ok(Vec::new()));
        (Handovers::with(TableFlags::default(), list, hand_over, remove), removals)
    }

    /// Handovers with an attempt whose table is listed.
    async fn listed(steps: &'static [Step]) -> (Handovers<Fake>, Writer<Fake>) {
        let writer = Writer::spawn(Fake::new()).unwrap();
        let mut handovers = Some(handovers(steps).0);
        handovers.as_mut().unwrap().begin(Family::Ip, None, &writer);
        let listed = listed_table(&mut handovers).await.unwrap();
        let mut handovers = handovers.unwrap();
        assert!(handovers.take_listed(listed).is_none());
        (handovers, writer)
    }

    #[tokio::test]
    async fn an_attempt_takes_its_steps_and_ends_with_the_last_one() {
        let (mut handovers, writer) = listed(&[Step::Copied, Step::Serving, Step::Done]).await;
        assert!(handovers.is_first_step() && !handovers.must_go_on());
        assert!(handovers.step(&writer).await.unwrap().is_none());
        assert!(!handovers.is_first_step() && !handovers.is_replacing());
        assert!(handovers.step(&writer).await.unwrap().is_none());
        assert!(handovers.must_go_on() && handovers.is_replacing());
        let end = handovers.step(&writer).await.unwrap();
        assert!(matches!(end, Some(End::Changed { family: Family::Ip, .. })), "{end:?}");
        assert!(!handovers.has_attempt());
    }

    #[tokio::test]
    async fn a_change_ends_an_attempt_unless_the_handover_table_serves() {
        let (mut handovers, writer) = listed(&[Step::Serving, Step::Serving]).await;
        handovers.spoil();
        assert!(handovers.must_go_on() && !handovers.is_replacing());
        let end = handovers.step(&writer).await.unwrap();
        assert!(matches!(end, Some(End::GivenUp(None))), "{end:?}");

        let (mut handovers, writer) = listed(&[Step::Serving, Step::Serving]).await;
        assert!(handovers.step(&writer).await.unwrap().is_none());
        handovers.spoil();
        assert!(handovers.is_replacing());
        assert!(handovers.step(&writer).await.unwrap().is_none());
        let end = handovers.step(&writer).await.unwrap();
        assert!(matches!(end, Some(End::GivenUp(Some(CopyTableError::Interrupted)))), "{end:?}");
    }

    #[tokio::test]
    async fn a_change_interrupts_the_list_of_a_table() {
        let writer = Writer::spawn(Fake::new()).unwrap();
        let (mut handovers, _) = handovers(&[]);
        handovers.begin(Family::Ip6, None, &writer);
        let Some(Attempt { stage: Stage::Listing(_, flag), .. }) = &handovers.attempt else {
            panic!("nothing is listed")
        };
        let flag = Arc::clone(flag);
        handovers.spoil();
        assert!(flag.load(Ordering::Relaxed));
        let end = handovers.step(&writer).await.unwrap();
        assert!(matches!(end, Some(End::GivenUp(None))), "{end:?}");
    }

    #[test]
    fn each_attempt_that_is_given_up_doubles_the_pause_up_to_the_longest() {
        let (mut handovers, _) = handovers(&[]);
        let start = now();
        handovers.note_activity(true, start);
        assert_eq!(handovers.due, Some(start + IDLE));
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            handovers.note_given_up(start);
            handovers.note_activity(true, start);
            assert_eq!(handovers.due, Some(start + Duration::from_secs(seconds)));
        }
        handovers.note_activity(false, start);
        assert_eq!(handovers.due, None);
    }

    #[tokio::test]
    async fn handover_tables_that_may_exist_are_removed_once_and_not_during_an_attempt() {
        let writer = Writer::spawn(Fake::new()).unwrap();
        let (mut handovers, removals) = handovers(&[]);
        let removed = || removals.load(Ordering::Relaxed);
        handovers.begin(Family::Ip, None, &writer);
        handovers.remove_tables(true, &writer, &Observe::new()).await.unwrap();
        assert_eq!(removed(), 0);
        handovers.attempt = None;
        handovers.remove_tables(true, &writer, &Observe::new()).await.unwrap();
        handovers.remove_tables(true, &writer, &Observe::new()).await.unwrap();
        assert_eq!(removed(), 1);
        handovers.note_given_up(now());
        handovers.remove_tables(true, &writer, &Observe::new()).await.unwrap();
        assert_eq!(removed(), 2);
    }
}
