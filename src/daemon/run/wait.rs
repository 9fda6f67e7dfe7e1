//! Waiting for what may never come, and the clock.

use std::time::Instant;

use engine::schedule::Task;

/// Sleeps until `due`; forever without one.
pub(super) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Sleeps until the next task is due and returns it; forever without one.
pub(super) async fn task_at(next: Option<(Instant, Task)>) -> Task {
    let Some((at, task)) = next else { return std::future::pending().await };
    // tokio rounds up to milliseconds, even a time that has passed.
    if at > now() {
        tokio::time::sleep_until(at.into()).await;
    }
    task
}

pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
