//! A service and its slices, as the cluster stores them.

use super::name::ObjectName;
use super::stored::{StoredService, StoredSlice};

/// A service and its slices. Slices may arrive before their service.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) service: Option<Box<StoredService>>,
    pub(super) slices: Vec<StoredSlice>,
}

impl Entry {
    pub(super) fn has_external_traffic(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.has_external_traffic())
    }

    pub(super) fn has_external_addresses(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.has_external_addresses())
    }

    pub(super) fn has_source_ranges(&self) -> bool {
        self.service.as_ref().is_some_and(|service| !service.source_ranges().is_empty())
    }

    /// Returns the service, with its name, if it has source ranges.
    pub(super) fn guarded<'a>(
        &self,
        name: &'a ObjectName,
    ) -> Option<(&'a ObjectName, &StoredService)> {
        Some((name, self.service.as_deref().filter(|_| self.has_source_ranges())?))
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
