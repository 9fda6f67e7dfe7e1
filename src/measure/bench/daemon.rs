//! The run loop of the daemon, with events from the bench and timestamps at both ends.
//!
//! Unlike the separate stages, this includes the queue of events and waking the loop and the writer
//! thread. A change begins with its bytes and ends when the system call that commits it returns.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use daemon::observe::Observe;
use daemon::run::{Parts, Run};
use daemon::source::objects::Converter;
use daemon::writer::Writer;
use engine::Engine;
use engine::model::{Arrival, Event};
use engine::routing::Routing;
use nft::kernel::{
    CommitError, Committed, Contents, ElementRead, Kernel, Nftables, OthersChanges, ReadError,
};
use nft::{ElementView, Operation, TableRef, Transaction, Type, Value};
use tokio::sync::{mpsc as tokio_mpsc, oneshot};

use super::cluster::NODE_NAME;
use super::error::BenchError;
use super::pipeline::{Received, convert, decode, received};
use super::watch_frame::WatchFrame;
use crate::figures::{Progress, now};

/// Capacity of the queue of batches, as in the daemon.
const QUEUE: usize = 256;

/// A run loop on a thread of its own.
#[derive(Debug)]
pub(super) struct Daemon {
    events: tokio_mpsc::Sender<Arrival>,
    commits: Receiver<Commit>,
    reported_from: Arc<AtomicU32>,
    converter: Converter,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// A transaction that the kernel applied.
#[derive(Debug)]
pub(super) struct Commit {
    /// Time when the system call returned.
    pub(super) ended: Instant,
    /// Added addresses of endpoints, if requested by [`Daemon::report_from`].
    pub(super) added: Vec<Ipv4Addr>,
    /// The transaction only deletes unused elements of an earlier change.
    only_deletes: bool,
}

impl Daemon {
    /// Starts the loop, which waits for the lists.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn start() -> Result<Self, BenchError> {
        let kernel = Nftables::open()?;
        let mut engine = Engine::new(Routing::default(), kernel.table_flags());
        engine.suit_kernel(kernel.release());
        let (reports, commits) = mpsc::channel();
        let reported_from = Arc::new(AtomicU32::new(u32::MAX));
        let watched = Stopwatch { kernel, reports, reported_from: Arc::clone(&reported_from) };
        let writer = Writer::spawn(watched).map_err(BenchError::System)?;
        let (events, queue) = tokio_mpsc::channel(QUEUE);
        let run = Run::new(engine, writer, queue, Observe::new(), Parts::default());
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(BenchError::System)?;
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                // Only a bug ends the writer thread; then commits are missing below.
                let stopped = async { drop(stopped.await) };
                let _ = run.until(stopped).await;
            });
        });
        let converter = Converter::new(NODE_NAME);
        Ok(Self { events, commits, reported_from, converter, stop, thread })
    }

    /// Decodes frames like the source, and sends their events as one batch.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn send(&mut self, frames: &[WatchFrame]) -> Result<(), BenchError> {
        self.receive(received(frames))
    }

    /// Does the same with the bytes of frames.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn receive(&mut self, received: Vec<Received>) -> Result<(), BenchError> {
        let events = convert(decode(received)?, &mut self.converter)?;
        self.pass_on(events)
    }

    /// Sends events as one batch.
    ///
    /// # Errors
    /// [`BenchError::Ended`].
    pub(super) fn pass_on(&mut self, events: Vec<Event>) -> Result<(), BenchError> {
        self.events.blocking_send(Arrival::new(events, now())).map_err(|_| BenchError::Ended)
    }

    /// Requests reports of added endpoints with addresses from this one on.
    pub(super) fn report_from(&self, address: Ipv4Addr) {
        self.reported_from.store(address.to_bits(), Ordering::Relaxed);
    }

    /// Discards the commits so far.
    pub(super) fn forget_commits(&mut self) {
        while self.commits.try_recv().is_ok() {}
    }

    /// Returns the next commit within `limit`, or `None`.
    ///
    /// # Errors
    /// [`BenchError::Ended`].
    pub(super) fn next_commit(&mut self, limit: Duration) -> Result<Option<Commit>, BenchError> {
        match self.commits.recv_timeout(limit) {
            Ok(commit) => Ok(Some(commit)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(BenchError::Ended),
        }
    }

    /// Makes a change and waits for its commit; `None` without a commit.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn change(&mut self, frames: &[WatchFrame]) -> Result<Option<Duration>, BenchError> {
        self.forget_commits();
        let received = received(frames);
        let start = now();
        self.receive(received)?;
        let give_up = start + NO_COMMIT;
        while let Some(commit) = self.next_commit(give_up.saturating_duration_since(now()))? {
            if !commit.only_deletes {
                return Ok(Some(commit.ended - start));
            }
        }
        Ok(None)
    }

    /// Waits for the first commit, which follows the read of the tables, and then for a pause in
    /// commits; or for a requested stop.
    ///
    /// # Errors
    /// [`BenchError::Ended`].
    pub(super) fn wait_until_ready(&mut self, progress: &Progress) -> Result<(), BenchError> {
        let give_up = now() + READ;
        while self.next_commit(QUIET)?.is_none() {
            if progress.is_stopped() || now() > give_up {
                return Ok(());
            }
        }
        self.settle(QUIET).map(drop)
    }

    /// Waits up to this long for the first commit, then for a pause in commits. Returns their
    /// number, and the end of the last one that did more than delete.
    ///
    /// # Errors
    /// [`BenchError::Ended`].
    pub(super) fn settle(
        &mut self,
        mut patience: Duration,
    ) -> Result<(usize, Option<Instant>), BenchError> {
        let (mut count, mut last) = (0, None);
        while let Some(commit) = self.next_commit(patience)? {
            count += 1;
            last = if commit.only_deletes { last } else { Some(commit.ended) };
            patience = QUIET;
        }
        Ok((count, last))
    }

    /// Ends the loop; the tables stay.
    pub(super) fn end(self) {
        // The loop may have ended already.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Time after which a change counts as one without a commit.
const NO_COMMIT: Duration = Duration::from_millis(500);

/// Time limit for reading the tables; a million endpoints take minutes.
const READ: Duration = Duration::from_secs(900);

/// Time limit for the first commit of a large change.
pub(super) const FIRST_COMMIT: Duration = Duration::from_secs(5);

/// Longest pause between commits of a large change.
const QUIET: Duration = Duration::from_millis(500);

/// A kernel that reports its commits.
#[derive(Debug)]
struct Stopwatch {
    kernel: Nftables,
    reports: Sender<Commit>,
    reported_from: Arc<AtomicU32>,
}

impl Kernel for Stopwatch {
    fn port(&self) -> u32 {
        self.kernel.port()
    }

    fn max_batch(&self) -> usize {
        self.kernel.max_batch()
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Committed, CommitError> {
        let start = now();
        let committed = self.kernel.commit(transaction)?;
        // Packets see the change when the system call returns; the acknowledgement comes later.
        let ended = start + committed.encode_time + committed.kernel_time;
        // The receiver may be dropped while the loop ends.
        let added = added(transaction, self.reported_from.load(Ordering::Relaxed));
        let only_deletes = deletes_elements(transaction);
        let _ = self.reports.send(Commit { ended, added, only_deletes });
        Ok(committed)
    }

    fn watch_others(&mut self, tables: &[TableRef]) -> Result<(), ReadError> {
        self.kernel.watch_others(tables)
    }

    fn ignore_others(&mut self) {
        self.kernel.ignore_others();
    }

    fn others_changes(&mut self) -> OthersChanges {
        self.kernel.others_changes()
    }

    fn read_table(&mut self, table: &TableRef) -> Result<Option<Contents>, ReadError> {
        self.kernel.read_table(table)
    }

    fn read_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        each: &mut dyn FnMut(ElementRead<'_>),
    ) -> Result<(), ReadError> {
        self.kernel.read_elements(table, set, each)
    }

    fn find_elements(
        &mut self,
        table: &TableRef,
        set: &str,
        keys: &[Value],
        each: &mut dyn FnMut(ElementView<'_>),
    ) -> Result<usize, ReadError> {
        self.kernel.find_elements(table, set, keys, each)
    }
}

/// Returns whether a transaction only deletes elements.
fn deletes_elements(transaction: &Transaction) -> bool {
    let mut operations = transaction.operations.iter();
    operations.all(|it| matches!(it, Operation::DeleteElements(..)))
}

/// Returns the added endpoints from this address on: addresses in the data of map elements.
fn added(transaction: &Transaction, from: u32) -> Vec<Ipv4Addr> {
    let mut added = Vec::new();
    for operation in &transaction.operations {
        let Operation::AddElements(_, set, elements) = operation else { continue };
        if set.data.first() != Some(&Type::Ipv4Addr) {
            continue;
        }
        let data = elements.iter().filter_map(|element| element.data.as_ref());
        let data = data.filter_map(|value| value.as_bytes().first_chunk::<4>().copied());
        added.extend(data.map(Ipv4Addr::from).filter(|address| address.to_bits() >= from));
    }
    added
}
