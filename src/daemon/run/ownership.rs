//! When tables are replaced, by [`crate::handover`]: attempts to take the ownership of existing
//! tables, and the end of the daemon, which leaves them without flags.
//!
//! A table is listed over another socket. Between two steps the loop does everything else first, so a
//! change waits for one step at most before its first commit. It ends the attempt, for some time, as
//! long as our table is unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::KnownElements;
use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use nft::family::Family;
use nft::kernel::{Kernel, Nftables};
use nft::{TableFlags, Transaction};
use parking_lot::Mutex;

use super::ending::{Ending, Left};
use super::wait::now;
use crate::handover::remove_handover_tables;
use crate::handover::{HandoverError, LIFETIME, Purpose, Replace, Replacing, Step, hand_over};
use crate::observe::{self, Cause, Causes, Observe};
use crate::writer::{Answered, Writer, WriterGone};

/// Time without a change of services before the flags of the tables are changed.
const IDLE: Duration = Duration::from_secs(5);

/// The pause after the first attempt that was given up or failed; each further one is twice as long.
/// An attempt lists and copies elements.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Time from the signal after which no more of a handover table is created, in
/// either family: that table of ours keeps its flags. The replacement of a table of ours takes about
/// as long as its copy, and the grace period of a pod is 30 s.
const LEAVE_TIME: Duration = Duration::from_secs(10);

/// Leaves the tables to the next program; see [`crate::handover::hand_over`].
pub type HandOver<K> = Arc<
    dyn Fn(
            &mut K,
            [Option<KnownElements>; 2],
            &dyn Fn() -> bool,
        ) -> Result<Vec<Family>, HandoverError>
        + Send
        + Sync,
>;

/// Lists a table and returns the steps that change its flags; see [`Replacing::list`].
pub type ListTable<K> = Arc<
    dyn Fn(&mut K, Family, Option<KnownElements>, &dyn Fn() -> bool) -> ListOutcome<K>
        + Send
        + Sync,
>;

/// A table that was listed; `None` if it has the flags.
pub type ListOutcome<K> = Result<Option<Steps<K>>, HandoverError>;

/// A table that is being replaced. The loop and the kernel's thread share it.
pub type Steps<K> = Arc<Mutex<dyn Replace<K>>>;

/// Returns steps that can be shared.
pub fn shared_steps<K>(steps: impl Replace<K> + 'static) -> Steps<K> {
    Arc::new(Mutex::new(steps))
}

/// How and when handovers are performed.
pub struct Handovers<K> {
    pub(super) flags: TableFlags,
    /// Begins a change of flags.
    pub list: ListTable<K>,
    /// Leaves the tables at the end.
    pub hand_over: HandOver<K>,
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
    Stepping(Steps<K>, Stepping),
    /// The last step has ended so; listing counts as one.
    At(Steps<K>, Step),
    /// The table changed.
    GivenUp,
}

/// The end of an attempt.
#[derive(Debug)]
pub(super) enum End {
    /// The table has the flags, after this time in the kernel.
    Changed { family: Family, started: Instant, worked: Duration },
    /// A change of the table interrupted the attempt, or it failed.
    GivenUp(Option<HandoverError>),
}

type Stepping = BoxFuture<'static, Result<Result<Step, HandoverError>, WriterGone>>;

type Listing<K> = BoxFuture<'static, Result<ListOutcome<K>, WriterGone>>;

impl Handovers<Nftables> {
    /// Returns handovers to tables with these flags.
    pub fn new(flags: TableFlags) -> Self {
        let list: ListTable<_> = Arc::new(move |kernel, family, known, is_interrupted| {
            let purpose = Purpose::Flags(flags);
            let listed = Replacing::list(kernel, (family, purpose), known, is_interrupted)?;
            Ok(listed.map(shared_steps))
        });
        Self::with(flags, list, Arc::new(hand_over))
    }
}

impl<K> Handovers<K> {
    /// Returns handovers by these functions.
    pub fn with(flags: TableFlags, list: ListTable<K>, hand_over: HandOver<K>) -> Self {
        Self {
            flags,
            list,
            hand_over,
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
                Stage::Stepping(..) | Stage::At(..) | Stage::GivenUp => Some(now()),
            },
        }
    }

    /// Returns whether the next step is the first that needs the table as it was listed, or lists it.
    pub(super) fn is_first_step(&self) -> bool {
        match &self.attempt {
            None => true,
            Some(Attempt { stage: Stage::At(..), steps, .. }) => *steps == 0,
            Some(_) => false,
        }
    }

    pub(super) fn has_attempt(&self) -> bool {
        self.attempt.is_some()
    }

    /// Returns whether a table may be being replaced: nothing should read it.
    pub(super) fn is_replacing(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        matches!(stage, Some(Stage::Stepping(..) | Stage::At(_, Step::Serving)))
    }

    /// Returns whether the next step does not wait until the daemon is idle: our table is replaced, or
    /// the attempt only has to end.
    pub(super) fn must_go_on(&self) -> bool {
        let stage = self.attempt.as_ref().map(|attempt| &attempt.stage);
        self.is_replacing() || matches!(stage, Some(Stage::GivenUp))
    }
}

/// Adds a replaced table, or the removal of a handover table, to the history. Its elements stay the
/// same.
pub(super) fn record(family: Option<Family>, took: Duration, observe: &Observe) {
    let causes = Causes::only(Cause::Handover);
    let transaction = observe::Transaction { causes, family, took, ..Default::default() };
    observe.committed_beside(&transaction);
}

/// Waits for the list of a table; returns `None` if none is being listed.
pub(super) async fn listed_table<K>(
    handovers: &mut Option<Handovers<K>>,
) -> Option<Result<ListOutcome<K>, WriterGone>> {
    match &mut handovers.as_mut()?.attempt.as_mut()?.stage {
        Stage::Listing(listing, _) => Some(listing.await),
        Stage::Stepping(..) | Stage::At(..) | Stage::GivenUp => None,
    }
}

/// Sends a step of a handover to the kernel's thread.
fn begun<K: Kernel + Send + 'static>(steps: &Steps<K>, writer: &Writer<K>) -> Stepping {
    let steps = Arc::clone(steps);
    let step = writer.run(move |kernel| {
        // The kernel would send this process a notification of each copied element.
        kernel.ignore_others();
        steps.lock().step(kernel)
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
        let started = now();
        self.note_activity(is_wanted, started);
        let outcome = writer.run(remove_handover_tables).await?;
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

    /// Commits a transaction, by the attempt if the handover table serves. Otherwise the attempt is
    /// given up.
    pub(super) fn commit(
        handovers: Option<&mut Self>,
        writer: &Writer<K>,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Answered, WriterGone>> + Send + use<K> {
        let attempt = handovers.and_then(|handovers| {
            handovers.spoil();
            handovers.attempt.as_ref()
        });
        let Some(Attempt { stage: Stage::At(steps, _), .. }) = attempt else {
            return Either::Right(writer.commit(transaction));
        };
        let steps = Arc::clone(steps);
        Either::Left(writer.run(move |kernel| {
            let outcome = steps.lock().commit(kernel, &transaction);
            (transaction, outcome)
        }))
    }

    /// Gives an attempt up before a table changes, unless the handover table serves.
    pub(super) fn spoil(&mut self) {
        let Some(attempt) = &mut self.attempt else { return };
        match &attempt.stage {
            Stage::Stepping(..) | Stage::At(_, Step::Serving | Step::Done) | Stage::GivenUp => {}
            Stage::At(_, Step::Copied) => attempt.stage = Stage::GivenUp,
            Stage::Listing(_, is_interrupted) => {
                is_interrupted.store(true, Ordering::Relaxed);
                attempt.stage = Stage::GivenUp;
            }
        }
    }

    /// Performs the next step of the attempt; returns its end.
    pub(super) async fn step(&mut self, writer: &Writer<K>) -> Result<Option<End>, WriterGone> {
        let Some(mut attempt) = self.attempt.take() else { return Ok(None) };
        let (steps, stepping) = match attempt.stage {
            Stage::At(steps, _) => {
                let stepping = begun(&steps, writer);
                (steps, stepping)
            }
            Stage::Stepping(steps, stepping) => (steps, stepping),
            Stage::GivenUp => return Ok(Some(End::GivenUp(None))),
            Stage::Listing(..) => {
                self.attempt = Some(attempt);
                return Ok(None);
            }
        };
        let started = now();
        // The end of the daemon may drop this call, and completes the step by another one.
        attempt.stage = Stage::Stepping(Arc::clone(&steps), stepping);
        let attempt = self.attempt.insert(attempt);
        let Stage::Stepping(_, stepping) = &mut attempt.stage else { return Ok(None) };
        let step = stepping.await?;
        let Some(mut attempt) = self.attempt.take() else { return Ok(None) };
        let took = now() - started;
        tracing::trace!(number = attempt.steps, took = took.as_micros(), "step of a handover");
        attempt.longest = attempt.longest.max(took);
        attempt.worked += took;
        attempt.steps += 1;
        match step {
            Ok(Step::Done) => {
                let Attempt { family, started, steps, longest, worked, .. } = attempt;
                let (of, longest) = (family.name(), longest.as_millis());
                tracing::debug!(steps, longest, "replaced the table of {of}");
                Ok(Some(End::Changed { family, started, worked }))
            }
            Ok(step) => {
                attempt.stage = Stage::At(steps, step);
                self.attempt = Some(attempt);
                Ok(None)
            }
            Err(error) => Ok(Some(End::GivenUp(Some(error)))),
        }
    }

    /// Begins an attempt for a table without the desired flags. It is listed by `reader`, or without
    /// one by the socket of the commits, but for the elements that are known.
    pub(super) fn begin(
        &mut self,
        (family, known): (Family, Option<KnownElements>),
        reader: Option<Writer<K>>,
        writer: &Writer<K>,
    ) {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let (list, flag) = (Arc::clone(&self.list), Arc::clone(&is_interrupted));
        let listing = reader
            .as_ref()
            .unwrap_or(writer)
            .run(move |kernel| list(kernel, family, known, &|| flag.load(Ordering::Relaxed)));
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
    pub(super) fn take_listed(&mut self, listed: ListOutcome<K>) -> Option<End> {
        let mut attempt = self.attempt.take()?;
        match listed {
            Ok(Some(steps)) => {
                attempt.stage = Stage::At(steps, Step::Copied);
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
        known: [Option<KnownElements>; 2],
        started: Instant,
    ) -> Result<Left, WriterGone> {
        let (hand_over, ending) = (Arc::clone(&self.hand_over), Arc::clone(&self.ending));
        let outcome = writer.run(move |kernel| {
            kernel.ignore_others();
            hand_over(kernel, known, &|| {
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
    use fake_kernel::Fake;
    use nft::kernel::{CommitError, Committed};
    use nft::{Operation, Table};

    use super::*;
    use crate::handover::HANDOVER_TABLE;

    /// A replacement that takes these steps. Its commits go to the kernel, and it counts them.
    struct Given(std::slice::Iter<'static, Step>, Arc<Mutex<usize>>);

    impl Replace<Fake> for Given {
        fn step(&mut self, _: &mut Fake) -> Result<Step, HandoverError> {
            self.0.next().copied().ok_or(HandoverError::Interrupted)
        }

        fn commit(&mut self, fake: &mut Fake, tx: &Transaction) -> Result<Committed, CommitError> {
            *self.1.lock() += 1;
            fake.commit(tx)
        }
    }

    /// Handovers whose attempts take these steps, and the number of their commits.
    fn handovers(steps: &'static [Step]) -> (Handovers<Fake>, Arc<Mutex<usize>>) {
        let commits = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&commits);
        let list: ListTable<Fake> = Arc::new(move |_, _, _, _| {
            Ok(Some(Arc::new(Mutex::new(Given(steps.iter(), Arc::clone(&counted)))) as Steps<_>))
        });
        let hand_over: HandOver<Fake> = Arc::new(|_, _, _| Ok(Vec::new()));
        (Handovers::with(TableFlags::default(), list, hand_over), commits)
    }

    /// Handovers with an attempt whose table is listed.
    async fn listed(steps: &'static [Step]) -> (Handovers<Fake>, Writer<Fake>) {
        let writer = Writer::spawn(Fake::new()).unwrap();
        let mut handovers = Some(handovers(steps).0);
        handovers.as_mut().unwrap().begin((Family::Ip, None), None, &writer);
        let listed = listed_table(&mut handovers).await.unwrap().unwrap();
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
        assert!(matches!(end, Some(End::GivenUp(Some(HandoverError::Interrupted)))), "{end:?}");
    }

    #[tokio::test]
    async fn a_commit_goes_by_the_attempt_if_the_handover_table_serves() {
        let writer = Writer::spawn(Fake::new()).unwrap();
        let transaction =
            || Transaction { operations: vec![Operation::AddTable(Table::new(Family::Ip, "t"))] };
        for (steps, by_attempt) in [(0, 0), (1, 0), (2, 1)] {
            let (handovers, commits) = handovers(&[Step::Copied, Step::Serving]);
            let mut handovers = Some(handovers);
            handovers.as_mut().unwrap().begin((Family::Ip, None), None, &writer);
            let listed = listed_table(&mut handovers).await.unwrap().unwrap();
            let mut handovers = handovers.unwrap();
            assert!(handovers.take_listed(listed).is_none());
            for _ in 0..steps {
                assert!(handovers.step(&writer).await.unwrap().is_none());
            }
            let commit = Handovers::commit(Some(&mut handovers), &writer, transaction());
            let (sent, outcome) = commit.await.unwrap();
            assert!(sent == transaction() && outcome.is_ok());
            assert_eq!(*commits.lock(), by_attempt, "after {steps} steps");
            assert_eq!(handovers.is_replacing(), by_attempt == 1);
        }
    }

    #[tokio::test]
    async fn a_change_interrupts_the_list_of_a_table() {
        let writer = Writer::spawn(Fake::new()).unwrap();
        let (mut handovers, _) = handovers(&[]);
        handovers.begin((Family::Ip6, None), None, &writer);
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
        let (mut handovers, _) = handovers(&[]);
        let table = || Table::new(Family::Ip, HANDOVER_TABLE);
        let add = || Transaction { operations: vec![Operation::AddTable(table())] };
        let exists = async || {
            let read = writer.run(move |fake| fake.read_table(&table().reference()));
            read.await.unwrap().unwrap().is_some()
        };
        let observe = Observe::new();
        handovers.begin((Family::Ip, None), None, &writer);
        writer.commit(add()).await.unwrap().1.unwrap();
        handovers.remove_tables(true, &writer, &observe).await.unwrap();
        assert!(exists().await);
        handovers.attempt = None;
        handovers.remove_tables(true, &writer, &observe).await.unwrap();
        assert!(!exists().await);
        // Only once, and again after an attempt.
        writer.commit(add()).await.unwrap().1.unwrap();
        handovers.remove_tables(true, &writer, &observe).await.unwrap();
        assert!(exists().await);
        handovers.note_given_up(now());
        handovers.remove_tables(true, &writer, &observe).await.unwrap();
        assert!(!exists().await);
    }
}
