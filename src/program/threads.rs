//! The threads of a process: it has all of them from its start, or does not start.
//!
//! A limit of processes, such as that of a pod, may leave no thread for later. tokio then panics
//! in each `spawn_blocking`, also where libraries look up names, unless one of its threads for
//! blocking calls exists. So these are started first, and stay.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use std::{fs, io, thread};

use tokio::runtime::{Builder, Runtime};

use super::failure::Failure;

/// Threads for blocking calls: reads of the kernel's counters, of the tables, of the configuration
/// and of credentials, whose plugin may hang.
const BLOCKING: usize = 4;

/// Threads that the daemon starts besides those of its runtime, at most, and one for a background
/// check.
pub(super) const OTHERS: usize = 10;

/// Time after which a thread for blocking calls ends: never.
const KEPT: Duration = Duration::from_hours(24 * 365 * 100);

/// Time limit for the start of these threads.
const LIMIT: Duration = Duration::from_secs(10);

/// Interval of checks whether the threads that were only tried have ended.
const STEP: Duration = Duration::from_millis(1);

/// Returns a runtime with this number of workers, if there are `others` threads besides.
///
/// # Errors
/// The system has too few threads.
pub(super) fn runtime(workers: usize, others: usize) -> Result<Runtime, Failure> {
    let all = workers + BLOCKING + others;
    try_threads(all).map_err(|(started, error)| {
        Failure::new(format!(
            "{all} threads are needed, but no more than {started} can be started: {error}; raise \
             the limit of processes (ulimit -u, or that of the pod)"
        ))
    })?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_keep_alive(KEPT)
        // The kernel tells others the name of the thread that commits.
        .thread_name("deltaproxy")
        .enable_all()
        .build()
        .map_err(Failure::new)?;
    let (started, all_started) = mpsc::channel();
    let kept = Arc::new(Mutex::new(()));
    let keep = kept.lock();
    for _ in 0..BLOCKING {
        let (started, kept) = (started.clone(), Arc::clone(&kept));
        runtime.spawn_blocking(move || {
            let _ = started.send(());
            drop(kept.lock());
        });
    }
    for _ in 0..BLOCKING {
        all_started.recv_timeout(LIMIT).map_err(Failure::new)?;
    }
    drop(keep);
    Ok(runtime)
}

/// Starts and ends this number of threads. Fails with the number that can be started.
fn try_threads(count: usize) -> Result<(), (usize, io::Error)> {
    let before = running();
    let (mut threads, mut failed) = (Vec::new(), None);
    for _ in 0..count {
        let (keep, kept) = mpsc::channel::<()>();
        match thread::Builder::new().spawn(move || kept.recv()) {
            Ok(thread) => threads.push((keep, thread)),
            Err(error) => {
                failed = Some((threads.len(), error));
                break;
            }
        }
    }
    for (keep, thread) in threads {
        drop(keep);
        let _ = thread.join();
    }
    // A thread counts for a moment after `join`.
    let mut steps = 0..1000;
    while running() > before && steps.next().is_some() {
        thread::sleep(STEP);
    }
    failed.map_or(Ok(()), Err)
}

/// Returns the number of threads of this process.
fn running() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
