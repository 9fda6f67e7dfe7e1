//! Slices with endpoints in the service address ranges.
//!
//! Such an endpoint may be the cluster IP of another service, which is never translated a second
//! time. These are rare, so that tables need no rule for them most of the time.

use ahash::HashSet;
use ipnet::IpNet;

use super::name::ObjectName;
use super::slice_names::SliceName;
use super::stored::StoredSlice;

/// The service address ranges, and the slices with endpoints in them.
#[derive(Debug, Default)]
pub(super) struct SlicesInServiceCidrs {
    ranges: Vec<IpNet>,
    /// Each with its service.
    slices: HashSet<(ObjectName, SliceName)>,
}

impl SlicesInServiceCidrs {
    /// Replaces the ranges. All slices must be put again.
    pub(super) fn set_ranges(&mut self, ranges: Vec<IpNet>) {
        self.ranges = ranges;
        self.slices.clear();
    }

    /// Records the endpoints of a slice.
    pub(super) fn put(&mut self, service: &ObjectName, slice: &StoredSlice) {
        let mut endpoints = slice.endpoints.iter().map(|endpoint| endpoint.address);
        let is_inner = endpoints.any(|ip| self.ranges.iter().any(|range| range.contains(&ip)));
        if is_inner {
            self.slices.insert((service.clone(), slice.name));
        } else {
            self.remove(service, slice.name)
        }
    }

    /// Forgets a slice.
    pub(super) fn remove(&mut self, service: &ObjectName, slice: SliceName) {
        if !self.slices.is_empty() {
            self.slices.remove(&(service.clone(), slice));
        }
    }

    /// Returns whether an endpoint may be a cluster IP: one is in the ranges, or no range is known.
    pub(super) fn may_have_cluster_ips(&self) -> bool {
        self.ranges.is_empty() || !self.slices.is_empty()
    }
}
