//! The thread that deletes stale entries behind the commits, and lists flows to find others.
//!
//! A pass walks the kernel's whole table, whatever it deletes. So flows that become stale shortly
//! after a pass wait and are deleted together by the next one.
//!
//! Passes may miss a flow: one may fail, the process may be killed before it, a packet may begin a
//! flow by the former tables while it goes on. So all flows are listed on request, after a pass
//! that was not complete, and now and then. The receiver of the lists finds out what is stale.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ahash::HashSet;
use tokio::sync::mpsc;

use super::queue::{Limits, Next, Queue};
use super::{ConntrackError, ConntrackTable, Flow, StaleFlow};

/// What one pass has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// Entries of each family that were deleted.
    pub entries: [u64; 2],
    /// How long it took, retries included.
    pub took: Duration,
    /// Whether the kernel did all of it.
    pub complete: bool,
}

/// What the thread is to do.
#[derive(Debug)]
pub enum Request {
    /// Delete the entries of these flows.
    Delete(Vec<StaleFlow>),
    /// List all flows.
    List,
}

/// All flows that conntrack tracks.
#[derive(Debug)]
pub struct FlowList {
    /// Each once.
    pub flows: Vec<Flow>,
    /// Whether all is deleted that was requested before. If not, some of it may be listed.
    pub is_clean: bool,
}

/// The way to the thread that deletes entries. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Cleaner {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Whether the thread is at its end.
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// What the thread works with.
struct Worker {
    shared: Arc<Shared>,
    /// `None` if it is to be opened, for the first time or again.
    table: Option<ConntrackTable>,
    lists: mpsc::Sender<FlowList>,
}

/// How often a pass is tried.
const ATTEMPTS: u32 = 4;

/// Time between the first two attempts; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(50);

impl Cleaner {
    /// Starts the thread in the network namespace of this one. `report` receives the outcome of
    /// every pass, the returned channel all flows whenever they are listed.
    ///
    /// # Errors
    /// What the system reports if it cannot start a thread.
    pub fn spawn(
        limits: Limits,
        report: impl Fn(Cleaned) + Send + 'static,
    ) -> io::Result<(Self, mpsc::Receiver<FlowList>)> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(limits)),
            changed: Condvar::new(),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        let (lists, receiver) = mpsc::channel(1);
        let mut worker = Worker { shared: Arc::clone(&shared), table: None, lists };
        thread::Builder::new().name("conntrack".into()).spawn(move || {
            worker.work(report);
            *worker.shared.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            worker.shared.ended.notify_all();
        })?;
        Ok((Self { shared }, receiver))
    }

    /// Has entries deleted at once if the last pass was long ago, and within about a second
    /// otherwise; has flows listed soon, and now and then from the first request on. Never waits for
    /// the kernel.
    pub fn handle(&self, request: Request) {
        let mut queue = self.shared.lock();
        let dropped = match request {
            Request::Delete(flows) => queue.add(flows, now()),
            Request::List => {
                queue.request_list(now());
                0
            }
        };
        drop(queue);
        self.shared.changed.notify_one();
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "too many stale UDP flows wait: some stay until all are listed"
            );
        }
    }

    /// Deletes what waits, for at most `limit`; returns whether all was done in time.
    pub fn finish(&self, limit: Duration) -> bool {
        self.close();
        let has_ended = self.shared.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.ended.wait_timeout_while(has_ended, limit, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn close(&self) {
        self.shared.lock().close();
        self.shared.changed.notify_one();
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole after every statement under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to do.
    fn next(&self) -> Next {
        let mut queue = self.lock();
        loop {
            queue = match queue.next(now()) {
                Next::Wait(None) => {
                    self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
                }
                Next::Wait(Some(time)) => {
                    let woken = self.changed.wait_timeout(queue, time);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                next @ (Next::Pass(_) | Next::List | Next::End) => return next,
            };
        }
    }
}

impl Worker {
    fn work(&mut self, report: impl Fn(Cleaned)) {
        loop {
            match self.shared.next() {
                Next::Pass(flows) => {
                    let cleaned = self.clean(&flows);
                    self.shared.lock().passed(now(), &cleaned);
                    report(cleaned);
                }
                Next::List => self.list(),
                Next::Wait(_) => {}
                Next::End => return,
            }
        }
    }

    /// Deletes the entries of `flows`, in a few attempts. A socket that failed is opened again.
    fn clean(&mut self, flows: &HashSet<StaleFlow>) -> Cleaned {
        let started = now();
        let mut pause = RETRY_AFTER;
        let mut outcome = self.with_table(|table| table.delete(flows));
        for _ in 1..ATTEMPTS {
            let Err(error) = &outcome else { break };
            tracing::debug!("stale UDP flows: {error}; trying again");
            thread::sleep(pause);
            pause *= 2;
            outcome = self.with_table(|table| table.delete(flows));
        }
        let took = started.elapsed();
        match &outcome {
            Ok(entries) => {
                tracing::debug!(flows = flows.len(), ?entries, ?took, "deleted UDP flows")
            }
            Err(error) => {
                let example = flows.iter().next().map(ToString::to_string).unwrap_or_default();
                let count = flows.len();
                tracing::error!("{count} stale UDP flows stay for now ({example}, ...): {error}");
            }
        }
        Cleaned { entries: *outcome.as_ref().unwrap_or(&[0, 0]), took, complete: outcome.is_ok() }
    }

    /// Sends all flows.
    fn list(&mut self) {
        let started = now();
        let outcome = self.with_table(ConntrackTable::flows);
        let took = started.elapsed();
        let mut queue = self.shared.lock();
        let is_clean = queue.listed(now(), took);
        if outcome.is_err() {
            queue.request_list(now());
        }
        drop(queue);
        match outcome {
            Ok(flows) => {
                tracing::debug!(flows = flows.len(), ?took, "listed UDP flows");
                // A receiver that is still busy with the last list need not have this one.
                let _ = self.lists.try_send(FlowList { flows, is_clean });
            }
            Err(error) => tracing::warn!("cannot list UDP flows: {error}; trying again"),
        }
    }

    fn with_table<T>(
        &mut self,
        work: impl FnOnce(&mut ConntrackTable) -> Result<T, ConntrackError>,
    ) -> Result<T, ConntrackError> {
        let table = match &mut self.table {
            Some(table) => table,
            None => self.table.insert(ConntrackTable::open()?),
        };
        let outcome = work(table);
        if outcome.is_err() {
            self.table = None;
        }
        outcome
    }
}

#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}
