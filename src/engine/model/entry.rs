//! The objects of the cluster, as it stores them.

use smallvec::SmallVec;

use super::stored::{StoredService, StoredSlice};

/// A service and its slices. Slices may arrive before their service.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) service: Option<StoredService>,
    pub(super) slices: SmallVec<[StoredSlice; 1]>,
}

/// An object and the number of the last listing that contained it.
#[derive(Debug)]
pub(super) struct ListedObject<T> {
    pub(super) object: T,
    pub(super) listing: u32,
}

/// Records that a listing contains an object, whose former content stays in force.
pub(super) fn mark<T>(object: Option<&mut ListedObject<T>>, listing: u32) {
    if let Some(object) = object {
        object.listing = listing;
    }
}

impl Entry {
    /// Returns whether there is a service that fulfils a condition.
    pub(super) fn has(&self, condition: fn(&StoredService) -> bool) -> bool {
        self.service.as_ref().is_some_and(condition)
    }

    pub(super) fn may_request_slots(&self) -> bool {
        self.service.as_ref().is_some_and(|service| {
            service.may_request_slots() || self.slices.iter().any(StoredSlice::is_weighed)
        })
    }

    pub(super) fn has_zone_hints(&self) -> bool {
        self.service.is_some()
            && self.slices.iter().any(|slice| !slice.endpoints.zones().is_empty())
    }
}
