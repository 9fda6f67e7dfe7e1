//! The thread that deletes stale conntrack entries after commits and lists all flows.
//!
//! A pass walks the kernel's whole table, however few entries it deletes. Flows that become stale
//! shortly after a pass are therefore collected and deleted together by the next one.
//!
//! A pass may miss a flow: the pass fails, the process is killed before it, or a packet of the
//! former tables creates an entry during it. All flows are therefore listed on request, after a
//! pass that failed, and at intervals. The receiver of the lists determines which flows are stale.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ahash::HashSet;
use conntrack::{ConntrackTable, ReopenedTable};
use engine::flow::{Flow, StaleFlow};
use nix::time::{ClockId, clock_gettime};
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use super::queue::{Cleaned, Limits, Next, Queue};

/// Work for the thread.
#[derive(Debug)]
pub enum Request {
    /// Delete the entries of these flows.
    Delete(Vec<StaleFlow>),
    /// List all UDP flows.
    List,
    /// Look for connections without an answer.
    Look,
}

/// All UDP flows that conntrack tracks, or the connections that wait for an answer.
#[derive(Debug)]
pub struct FlowList {
    /// Flows, each once.
    pub flows: Vec<Flow>,
    /// All stale flows requested before this list are deleted. If false, the list may contain some.
    pub is_clean: bool,
}

/// Handle of the thread that deletes entries. The thread ends after this is dropped.
#[derive(Debug)]
pub struct Cleaner {
    shared: Arc<SharedQueue>,
}

#[derive(Debug)]
struct SharedQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The thread has returned from its loop.
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// State of the thread.
struct Worker {
    shared: Arc<SharedQueue>,
    table: ReopenedTable,
    lists: mpsc::Sender<FlowList>,
}

/// Attempts of one pass.
const ATTEMPTS: u32 = 4;

/// Time between the first two attempts; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(50);

impl Cleaner {
    /// Starts the thread in the network namespace of the calling thread. It calls `report` after
    /// each pass. The returned channel receives each list of flows.
    ///
    /// # Errors
    /// The error of the system if it cannot start a thread.
    pub fn spawn(
        limits: Limits,
        report: impl Fn(Cleaned) + Send + 'static,
    ) -> io::Result<(Self, mpsc::Receiver<FlowList>)> {
        let shared = Arc::new(SharedQueue {
            queue: Mutex::new(Queue::new(limits)),
            changed: Condvar::new(),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        let (lists, receiver) = mpsc::channel(1);
        let table = ReopenedTable::timed_by(processor_time);
        let mut worker = Worker { shared: Arc::clone(&shared), table, lists };
        thread::Builder::new().name("conntrack".into()).spawn(move || {
            worker.work(report);
            *worker.shared.has_ended.lock() = true;
            worker.shared.ended.notify_all();
        })?;
        Ok((Self { shared }, receiver))
    }

    /// Queues a request without blocking.
    ///
    /// Stale flows are deleted at once if the last pass was long ago, else after its rest: at most a
    /// second, or nine times its processor time if that is longer. A requested list is made soon; from
    /// the first request on, lists are also made at intervals.
    pub fn handle(&self, request: Request) {
        let mut queue = self.shared.queue.lock();
        let dropped = match request {
            Request::Delete(flows) => queue.add(flows, now()),
            Request::List => {
                queue.request_list(now());
                0
            }
            Request::Look => {
                queue.request_looks(now());
                0
            }
        };
        drop(queue);
        self.shared.changed.notify_one();
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "too many stale flows are queued; some stay until the next list"
            );
        }
    }

    /// Deletes the queued flows, for at most `limit`. Returns whether the thread finished in time.
    pub fn finish(&self, limit: Duration) -> bool {
        self.close();
        let mut has_ended = self.shared.has_ended.lock();
        self.shared.ended.wait_while_for(&mut has_ended, |ended| !*ended, limit);
        *has_ended
    }

    fn close(&self) {
        self.shared.queue.lock().close();
        self.shared.changed.notify_one();
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.close();
    }
}

impl SharedQueue {
    /// Blocks until there is work.
    fn next(&self) -> Next {
        let mut queue = self.queue.lock();
        loop {
            match queue.next(now()) {
                Next::Wait(None) => self.changed.wait(&mut queue),
                Next::Wait(Some(time)) => drop(self.changed.wait_for(&mut queue, time)),
                next @ (Next::Pass(_) | Next::List | Next::Look | Next::End) => return next,
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
                    self.shared.queue.lock().passed(now(), &cleaned);
                    report(cleaned);
                }
                Next::List => self.list(),
                Next::Look => self.look(),
                Next::Wait(_) => {}
                Next::End => return,
            }
        }
    }

    /// Deletes the entries of `flows`, in up to [`ATTEMPTS`] attempts. Opens the socket again after
    /// an error.
    fn clean(&mut self, flows: &HashSet<StaleFlow>) -> Cleaned {
        let (started, worked) = (now(), processor_time());
        let mut pause = RETRY_AFTER;
        let mut outcome = self.table.with(|table| table.delete(flows));
        for _ in 1..ATTEMPTS {
            let Err(error) = &outcome else { break };
            tracing::debug!("stale flows: {error}; trying again");
            thread::sleep(pause);
            pause *= 2;
            outcome = self.table.with(|table| table.delete(flows));
        }
        let took = started.elapsed();
        let busy = processor_time().saturating_sub(worked);
        match &outcome {
            Ok(entries) => {
                tracing::debug!(flows = flows.len(), ?entries, ?took, ?busy, "deleted flows")
            }
            Err(error) => {
                let example = flows.iter().next().map(ToString::to_string).unwrap_or_default();
                let count = flows.len();
                tracing::error!("{count} stale flows stay for now ({example}, ...): {error}");
            }
        }
        let entries = *outcome.as_ref().unwrap_or(&[0, 0]);
        Cleaned { entries, took, busy, complete: outcome.is_ok() }
    }

    /// Lists all flows and sends them to the receiver.
    fn list(&mut self) {
        let started = now();
        let outcome = self.table.with(ConntrackTable::flows);
        let took = started.elapsed();
        let mut queue = self.shared.queue.lock();
        let is_clean = queue.listed(now(), took);
        if outcome.is_err() {
            queue.request_list(now());
        }
        drop(queue);
        match outcome {
            Ok(flows) => {
                tracing::debug!(flows = flows.len(), ?took, "listed UDP flows");
                // The receiver has an unread list: it does not need this one.
                let _ = self.lists.try_send(FlowList { flows, is_clean });
            }
            Err(error) => tracing::warn!("cannot list UDP flows: {error}; trying again"),
        }
    }

    /// Lists the connections without an answer, and sends those that may be deleted to the receiver.
    fn look(&mut self) {
        let worked = processor_time();
        let outcome = self.table.with(|table| table.unanswered(now()));
        let busy = processor_time().saturating_sub(worked);
        let found = match outcome {
            Ok((flows, count)) => {
                // Otherwise the receiver has an unread list.
                let is_taken = flows.is_empty()
                    || self.lists.try_send(FlowList { flows, is_clean: false }).is_ok();
                is_taken.then_some(count > 0)
            }
            Err(error) => {
                tracing::warn!("cannot list unanswered connections: {error}; trying again");
                None
            }
        };
        self.shared.queue.lock().looked(now(), busy, found);
    }
}

#[allow(clippy::disallowed_methods)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Processor time of the calling thread. The kernel makes a dump in the calls of its receiver, so
/// this is what a dump costs, whatever else the machine does.
fn processor_time() -> Duration {
    // The kernel has this clock for every thread (`clock_gettime(2)`).
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
