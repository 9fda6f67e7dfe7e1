//! Whether the server answers for a resource: for metrics, and for the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}

impl Link {
    pub(super) fn new(resource: Resource, listener: OnContact) -> Self {
        Self { resource, listener, is_up: Arc::default() }
    }

    pub(super) fn heard(&self) {
        self.is_up.store(true, Ordering::Relaxed);
        (self.listener)(self.resource, Contact::Heard);
    }

    pub(super) fn lost(&self, reason: &'static str) {
        self.is_up.store(false, Ordering::Relaxed);
        (self.listener)(self.resource, Contact::Lost(reason));
    }

    /// Whether something was heard since contact was lost.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }
}
