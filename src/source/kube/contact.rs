//! Whether the server answers for a resource: for metrics, and for the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::Resource;

/// What became of the connection to the server for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// Something arrived: the head of an answer, events, a bookmark.
    Heard,
    /// A request was refused or its answer broke off; the reason is one of
    /// [`super::SourceError::reason`].
    Lost(&'static str),
}

/// Called for each [`Contact`], also while events are read: it must be quick.
pub type OnContact = Arc<dyn Fn(Resource, Contact) + Send + Sync>;

/// The contact for one resource. Clones share it.
#[derive(Clone)]
pub(super) struct Link {
    resource: Resource,
    listener: OnContact,
    is_up: Arc<AtomicBool>,
    since: Instant,
    /// When something was heard last, in nanoseconds after `since`.
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

    /// When something was heard last.
    pub(super) fn heard_at(&self) -> Instant {
        self.since + Duration::from_nanos(self.heard_after.load(Ordering::Relaxed))
    }

    /// Whether something was heard since contact was lost.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }
}
