//! Objects as the kernel lists them, which is prepared once for all reads until they change.

use std::sync::OnceLock;
use std::time::Duration;

use nft::{Counter, ElementView};

/// Objects, and how they are listed. A copy starts without the list.
#[derive(Debug, Default)]
pub(super) struct Listed<T, L> {
    pub objects: T,
    pub listing: OnceLock<L>,
}

impl<T, L> Listed<T, L> {
    /// Returns the objects to be changed.
    pub(super) fn change(&mut self) -> &mut T {
        self.listing.take();
        &mut self.objects
    }
}

impl<T: Clone, L> Clone for Listed<T, L> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), listing: OnceLock::new() }
    }
}

impl<T: PartialEq, L> PartialEq for Listed<T, L> {
    fn eq(&self, other: &Self) -> bool {
        self.objects == other.objects
    }
}

impl<T: Eq, L> Eq for Listed<T, L> {}

/// An element as decoded from the messages of a listing: a copy of an [`ElementView`].
#[derive(Debug)]
pub(super) struct ListedElement {
    key: Box<[u8]>,
    key_end: Option<Box<[u8]>>,
    data: Option<Box<[u8]>>,
    comment: Option<Box<str>>,
    timeout: Option<Duration>,
    expires: Option<Duration>,
    flags: u32,
    counter: Option<Counter>,
}

impl ListedElement {
    /// Copies an element.
    pub(super) fn of(view: &ElementView<'_>) -> Self {
        Self {
            key: view.key.into(),
            key_end: view.key_end.map(Box::from),
            data: view.data.map(Box::from),
            comment: view.comment.map(Box::from),
            timeout: view.timeout,
            expires: view.expires,
            flags: view.flags,
            counter: view.counter,
        }
    }

    /// Returns the element that was copied.
    pub(super) fn view(&self) -> ElementView<'_> {
        ElementView {
            key: &self.key,
            key_end: self.key_end.as_deref(),
            data: self.data.as_deref(),
            comment: self.comment.as_deref(),
            timeout: self.timeout,
            expires: self.expires,
            flags: self.flags,
            counter: self.counter,
        }
    }
}
