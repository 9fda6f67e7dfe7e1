//! Time limit for the next item of a stream or a body.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::time::{Instant, Sleep};

/// A timer for many waits. A list waits for each read of its connection, so the timer is reset only
/// when it expires.
pub(super) struct Patience(Pin<Box<Sleep>>);

impl Patience {
    pub(super) fn new() -> Self {
        Self(Box::pin(tokio::time::sleep(Duration::ZERO)))
    }

    /// Completes at `due`, which may differ between calls.
    pub(super) fn poll(&mut self, due: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.0.deadline() > due {
            self.0.as_mut().reset(due);
        }
        while self.0.as_mut().poll(context).is_ready() {
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.0.as_mut().reset(due);
        }
        Poll::Pending
    }

    /// Returns the next item of the stream; `None` if there is none within `limit`, which may be none.
    pub(super) async fn next<S: Stream + Unpin>(
        &mut self,
        limit: Option<Duration>,
        stream: &mut S,
    ) -> Option<Option<S::Item>> {
        let Some(limit) = limit else { return Some(stream.next().await) };
        let due = Instant::now() + limit;
        poll_fn(|context| match stream.poll_next_unpin(context) {
            Poll::Ready(item) => Poll::Ready(Some(item)),
            Poll::Pending => self.poll(due, context).map(|()| None),
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns an item after each of these times, and none after the last.
    fn items(pauses: &[u32]) -> impl Stream<Item = u32> + Unpin {
        let items = stream::iter(pauses.to_vec()).then(|pause| async move {
            tokio::time::sleep(SECOND * pause).await;
            pause
        });
        Box::pin(items.chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_limit() {
        let mut patience = Patience::new();
        let mut items = items(&[50, 50, 50]);
        for _ in 0..3 {
            assert_eq!(patience.next(Some(SECOND * 60), &mut items).await, Some(Some(50)));
        }
        let started = Instant::now();
        assert_eq!(patience.next(Some(SECOND * 60), &mut items).await, None);
        assert_eq!(started.elapsed().as_secs(), 60);
        assert_eq!(patience.next(Some(SECOND), &mut items).await, None);
        assert_eq!(started.elapsed().as_secs(), 61);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_limit_after_a_longer_one_is_kept() {
        let mut patience = Patience::new();
        let mut items = items(&[1]);
        assert_eq!(patience.next(Some(SECOND * 60), &mut items).await, Some(Some(1)));
        let started = Instant::now();
        assert_eq!(patience.next(Some(SECOND), &mut items).await, None);
        assert_eq!(started.elapsed().as_secs(), 1);
    }
}
