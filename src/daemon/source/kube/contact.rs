//! Contact with the server for each resource: for metrics and the log.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::model::{HostAddresses, Resource};
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use tokio::sync::watch;
use tokio::time::Instant;

/// Shortest time between two reports of data. During a list, parts of it arrive every few
/// microseconds.
const REPORT_EACH: Duration = Duration::from_millis(100);

/// State of the contact with the server for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// Data arrived: the head of an answer, events, a bookmark. Reported at most ten times a second.
    Heard,
    /// A request was refused or its answer ended early; contains a reason of
    /// [`super::SourceError::reason`].
    Lost(&'static str),
}

/// Callback for each [`Contact`]. Runs between reads of events, so it must be fast.
pub type OnContact = Arc<dyn Fn(Resource, Contact) + Send + Sync>;

/// The contact for one resource. Clones share it.
#[derive(Clone)]
pub(super) struct Link {
    resource: Resource,
    listener: OnContact,
    is_up: Arc<AtomicBool>,
    since: Instant,
    /// Time of the last data, in nanoseconds after `since`.
    heard_after: Arc<AtomicU64>,
    /// Time of the last report of data, in nanoseconds after `since`.
    reported_after: Arc<AtomicU64>,
    addresses: Option<watch::Receiver<HostAddresses>>,
}

impl Link {
    pub(super) fn new(resource: Resource, listener: OnContact) -> Self {
        Self {
            resource,
            listener,
            is_up: Arc::default(),
            since: Instant::now(),
            heard_after: Arc::default(),
            reported_after: Arc::default(),
            addresses: None,
        }
    }

    /// The same, with the addresses of this node.
    pub(super) fn with_addresses(self, addresses: Option<watch::Receiver<HostAddresses>>) -> Self {
        Self { addresses, ..self }
    }

    /// Completes when an address of this node is removed.
    pub(super) fn removed(&self, address: IpAddr) -> BoxFuture<'static, ()> {
        let Some(mut addresses) = self.addresses.clone() else { return pending().boxed() };
        let removed = async move {
            // A connection may have an address that no interface lists, of a local route.
            for is_listed in [true, false] {
                let listed = addresses.wait_for(|it| it.local.contains(&address) == is_listed);
                if listed.await.is_err() {
                    return pending().await;
                }
            }
        };
        removed.boxed()
    }

    /// Data arrives now.
    pub(super) fn heard(&self) {
        self.heard_now(Instant::now());
    }

    /// Data arrives; `now` is the time.
    pub(super) fn heard_now(&self, now: Instant) {
        let after = u64::try_from((now - self.since).as_nanos()).unwrap_or(u64::MAX);
        self.heard_after.store(after, Ordering::Relaxed);
        let was_up = self.is_up.swap(true, Ordering::Relaxed);
        let since_report = after.saturating_sub(self.reported_after.load(Ordering::Relaxed));
        if !was_up || Duration::from_nanos(since_report) >= REPORT_EACH {
            self.reported_after.store(after, Ordering::Relaxed);
            (self.listener)(self.resource, Contact::Heard);
        }
    }

    pub(super) fn lost(&self, reason: &'static str) {
        self.is_up.store(false, Ordering::Relaxed);
        (self.listener)(self.resource, Contact::Lost(reason));
    }

    /// Returns the time of the last data.
    pub(super) fn heard_at(&self) -> Instant {
        self.since + Duration::from_nanos(self.heard_after.load(Ordering::Relaxed))
    }

    /// Returns whether data arrived since contact was lost.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn data_is_reported_at_most_ten_times_a_second_and_at_once_after_a_loss() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let listener = move |_, contact| sink.lock().unwrap().push(contact);
        let link = Link::new(Resource::Nodes, Arc::new(listener));
        let taken = || std::mem::take(&mut *reports.lock().unwrap());
        for _ in 0..1_000 {
            link.heard();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(taken(), [Contact::Heard; 10]);
        assert_eq!(link.heard_at().elapsed(), Duration::from_millis(1));
        link.lost("refused");
        link.heard();
        assert_eq!(taken(), [Contact::Lost("refused"), Contact::Heard]);
    }
}
