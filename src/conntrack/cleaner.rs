//! The thread that deletes stale entries behind the commits.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ahash::HashSet;

use super::{ConntrackError, ConntrackTable, StaleFlow};

/// What one pass has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// Entries that were deleted.
    pub entries: usize,
    /// How long it took, retries included.
    pub took: Duration,
    /// Whether the kernel did all of it.
    pub complete: bool,
}

/// The way to the thread that deletes entries. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Cleaner {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// What waits is taken all at once: many flows cost no more than some.
    flows: HashSet<StaleFlow>,
    closed: bool,
}

/// Flows that may wait; what is more is left to time out by itself.
const MAX_WAITING: usize = 1 << 18;

/// How often a pass is tried.
const ATTEMPTS: u32 = 4;

/// Time between the first two attempts; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(50);

impl Cleaner {
    /// Starts the thread in the network namespace of this one. `report` hears of every pass.
    ///
    /// # Errors
    /// What the system reports if it cannot start a thread.
    pub fn spawn(report: impl Fn(Cleaned) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        thread::Builder::new().name("conntrack".into()).spawn(move || {
            let mut table = None;
            while let Some(flows) = own.next() {
                report(clean(&mut table, &flows));
            }
        })?;
        Ok(Self { shared })
    }

    /// Has the entries of `flows` deleted, soon. It never waits for the kernel.
    pub fn delete(&self, flows: Vec<StaleFlow>) {
        if flows.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        if queue.flows.len() + flows.len() > MAX_WAITING {
            tracing::error!(flows = flows.len(), "too many stale UDP flows wait: some stay");
            return;
        }
        queue.flows.extend(flows);
        self.shared.changed.notify_one();
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole after every statement under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for flows and takes all; `None` when it is closed and nothing is left.
    fn next(&self) -> Option<HashSet<StaleFlow>> {
        let mut queue = self.lock();
        while queue.flows.is_empty() {
            if queue.closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Some(std::mem::take(&mut queue.flows))
    }
}

/// Deletes the entries of `flows`, in a few attempts. A socket that failed is opened again.
fn clean(table: &mut Option<ConntrackTable>, flows: &HashSet<StaleFlow>) -> Cleaned {
    let started = now();
    let mut pause = RETRY_AFTER;
    let mut outcome = try_clean(table, flows);
    for _ in 1..ATTEMPTS {
        let Err(error) = &outcome else { break };
        tracing::debug!("stale UDP flows: {error}; trying again");
        *table = None;
        thread::sleep(pause);
        pause *= 2;
        outcome = try_clean(table, flows);
    }
    let took = started.elapsed();
    match &outcome {
        Ok(entries) => tracing::debug!(flows = flows.len(), entries, ?took, "deleted UDP flows"),
        Err(error) => {
            let example = flows.iter().next().map(ToString::to_string).unwrap_or_default();
            tracing::error!("{} stale UDP flows stay ({example}, ...): {error}", flows.len());
        }
    }
    Cleaned { entries: *outcome.as_ref().unwrap_or(&0), took, complete: outcome.is_ok() }
}

fn try_clean(
    table: &mut Option<ConntrackTable>,
    flows: &HashSet<StaleFlow>,
) -> Result<usize, ConntrackError> {
    let table = match table {
        Some(table) => table,
        None => table.insert(ConntrackTable::open()?),
    };
    table.delete(flows)
}

#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}
