//! The thread that deletes stale entries behind the commits.
//!
//! A pass walks the kernel's whole table, whatever it deletes. So flows that become stale shortly
//! after a pass wait and are deleted together by the next one.

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
    /// No pass before this; `None` before the first one.
    resting_until: Option<Instant>,
    closed: bool,
}

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Delete the entries of these flows.
    Pass(HashSet<StaleFlow>),
    /// Wait for so long: the last pass was just now.
    Rest(Duration),
    /// Wait for flows.
    Idle,
    /// End: the queue is closed and empty.
    End,
}

/// Flows that may wait; what is more is left to time out by itself.
const MAX_WAITING: usize = 1 << 18;

/// After a pass the thread rests this many times as long as the pass took: passes take at most a
/// hundredth of one processor's time.
const REST: u32 = 99;

/// The longest rest: stale flows are deleted within about a second however long passes take.
const LONGEST_REST: Duration = Duration::from_secs(1);

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
                let cleaned = clean(&mut table, &flows);
                own.lock().rest(now(), cleaned.took);
                report(cleaned);
            }
        })?;
        Ok(Self { shared })
    }

    /// Has the entries of `flows` deleted: at once if the last pass was long ago, and within about
    /// a second otherwise. Never waits for the kernel.
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

    /// Waits for the next pass and returns its flows; `None` when the queue is closed and empty.
    fn next(&self) -> Option<HashSet<StaleFlow>> {
        let mut queue = self.lock();
        loop {
            queue = match queue.next(now()) {
                Next::Pass(flows) => return Some(flows),
                Next::End => return None,
                Next::Idle => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Next::Rest(time) => {
                    let woken = self.changed.wait_timeout(queue, time);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Queue {
    /// What the thread does at `now`. A closed queue does not rest.
    fn next(&mut self, now: Instant) -> Next {
        let rest =
            self.resting_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        match (self.flows.is_empty(), self.closed) {
            (true, true) => Next::End,
            (true, false) => Next::Idle,
            (false, false) if !rest.is_zero() => Next::Rest(rest),
            (false, _) => Next::Pass(std::mem::take(&mut self.flows)),
        }
    }

    /// Rests after a pass that ended at `now` and took so long.
    fn rest(&mut self, now: Instant, took: Duration) {
        self.resting_until = Some(now + (took * REST).min(LONGEST_REST));
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU16;

    use super::*;
    use crate::model::Target;

    fn flow(port: u16) -> StaleFlow {
        let address = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
        StaleFlow::To(Target { address, port: NonZeroU16::new(port).unwrap() })
    }

    /// Passes and the flows of each, when every `interval` for `time` another flow becomes stale
    /// and each pass takes `cost`. Also the longest that a flow waits for its pass to begin.
    fn passes(interval: Duration, time: Duration, cost: Duration) -> (Vec<usize>, Duration) {
        let (mut queue, start) = (Queue::default(), now());
        let (mut at, mut due, mut port) = (start, start, 0);
        let (mut passes, mut waiting, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
        while at < start + time {
            while due <= at {
                port += 1;
                queue.flows.insert(flow(port));
                waiting.push(due);
                due += interval;
            }
            match queue.next(at) {
                Next::Pass(flows) => {
                    passes.push(flows.len());
                    longest = waiting.drain(..).map(|since| at - since).fold(longest, Ord::max);
                    at += cost;
                    queue.rest(at, cost);
                }
                Next::Rest(rest) => at += rest,
                Next::Idle => at = due,
                Next::End => panic!("the queue was not closed"),
            }
        }
        (passes, longest)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_flow_after_a_quiet_time_is_deleted_at_once() {
        let (passes, longest) = passes(2_000 * MS, 10_000 * MS, 4 * MS);
        assert_eq!((passes, longest), (vec![1; 5], Duration::ZERO));
    }

    #[test]
    fn flows_that_follow_each_other_share_passes() {
        let (passes, longest) = passes(20 * MS, 10_000 * MS, 4 * MS);
        assert!((24..=26).contains(&passes.len()), "{passes:?}");
        assert!(passes[1..].iter().all(|flows| (20..=21).contains(flows)), "{passes:?}");
        assert!(longest <= 400 * MS, "{longest:?}");
    }

    #[test]
    fn a_flow_waits_a_second_at_most_for_a_pass_that_takes_long() {
        let (passes, longest) = passes(20 * MS, 10_000 * MS, 100 * MS);
        assert!((9..=10).contains(&passes.len()), "{passes:?}");
        assert!(longest <= LONGEST_REST + 100 * MS, "{longest:?}");
    }

    #[test]
    fn a_closed_queue_does_not_rest() {
        let (mut queue, now) = (Queue::default(), now());
        queue.rest(now, 10 * MS);
        queue.flows.insert(flow(53));
        assert_eq!(queue.next(now), Next::Rest(990 * MS));
        queue.closed = true;
        assert_eq!(queue.next(now), Next::Pass(HashSet::from_iter([flow(53)])));
        assert_eq!(queue.next(now), Next::End);
    }
}
