//! Contact with the server for each resource: for metrics and the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::Resource;

/// State of the contact with the server for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// Data arrived: the head of an answer, events, a bookmark.
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
}

impl Link {
    pub(super) fn new(resource: Resource, listener: OnContact) -> Self {
        let (is_up, heard_after) = (Arc::default(), Arc::default());
        Self { resource, listener, is_up, since: Instant::now(), heard_after }
    }

    pub(super) fn heard(&self) {
        let after = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard_after.store(after, Ordering::Relaxed);
        self.is_up.store(true, Ordering::Relaxed);
        (self.listener)(self.resource, Contact::Heard);
    }

    pub(super) fn lost(&self, reason: &'static str) {
        self.is_up.store(false, Ordering::Relaxed);
        (self.listener)(self.resource, Contact::Lost(reason));
    }

    /// Returns the time of the last data.
    pub(super) fn heard_at(&self) -> Instant {
        self.since + Duration::from_nanos(self.heard_after.load(Ordering::Relaxed))
    }

    /// Returns true if data arrived since contact was lost.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }
}
