//! The end of the loop, with limits: the kernel may not answer for as long as another program's
//! transaction lasts, and nothing interrupts a thread that waits there.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::error::RunError;

/// Time without progress until the log says so.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time for the end of the loop. The grace period of a pod is 30 s, and threads end after the loop.
const LIMIT: Duration = Duration::from_secs(25);

/// What the program and the loop tell each other at the end.
#[derive(Debug, Default)]
pub struct Ending {
    /// The daemon ends, and no other one follows in this process.
    pub leaves: AtomicBool,
    /// Counts what the kernel has completed for the end.
    pub progress: AtomicUsize,
}

/// How the tables are at the end of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// As they were: another daemon follows in this process, or this one did not write them.
    Unchanged,
    /// Without flags, so that every program can change them.
    Free,
    /// With the flags that they had.
    Owned,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Free => "left to the next program",
            Self::Owned => "not left to the next program",
        })
    }
}

impl Ending {
    /// Runs a loop until `stop` is ready, and then until it ends or the time for that is over. It
    /// gets a receiver that is ready after `stop`, and a task of its own, because it commits small
    /// transactions by itself.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn run<F>(
        &self,
        run: impl FnOnce(oneshot::Receiver<()>) -> F,
        stop: impl Future<Output = ()>,
    ) -> Result<Left, RunError>
    where
        F: Future<Output = Result<Left, RunError>> + Send + 'static,
    {
        let (end, ended) = oneshot::channel();
        let running = tokio::spawn(run(ended));
        let running = async { running.await.unwrap_or(Err(RunError::Panicked)) };
        tokio::pin!(running);
        tokio::select! {
            () = stop => drop(end),
            left = &mut running => return left,
        }
        let (mut progress, mut is_logged) = (0, false);
        for _ in 0..LIMIT.as_secs() / PATIENCE.as_secs() {
            if let Ok(left) = timeout(PATIENCE, &mut running).await {
                return left;
            }
            let before = std::mem::replace(&mut progress, self.progress.load(Ordering::Relaxed));
            if before == progress && !is_logged {
                is_logged = true;
                tracing::warn!(
                    "the kernel has not answered for {PATIENCE:?}, as during a transaction of \
                     another program; the tables are left to the next program after that"
                );
            }
        }
        tracing::warn!(
            "ending after {LIMIT:?} although the tables are not left to the next program; \
             `deltaproxy cleanup` frees or removes them"
        );
        Ok(Left::Owned)
    }
}
