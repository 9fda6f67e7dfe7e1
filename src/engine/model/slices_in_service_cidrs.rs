//! Slices with endpoints in the service address ranges.
//!
//! Such an endpoint may be the cluster IP of another service, which is never translated a second
//! time. These are rare, so that tables need no rule for them most of the time.

use std::net::IpAddr;

use ahash::HashSet;
use ipnet::IpNet;

use super::name::ObjectName;

/// The service address ranges, and the slices with endpoints in them.
#[derive(Debug, Default)]
pub(super) struct SlicesInServiceCidrs {
    ranges: Vec<IpNet>,
    slices: HashSet<ObjectName>,
}

impl SlicesInServiceCidrs {
    /// Replaces the ranges. All slices must be put again.
    pub(super) fn set_ranges(&mut self, ranges: Vec<IpNet>) {
        self.ranges = ranges;
        self.slices.clear();
    }

    /// Records the endpoints of a slice.
    pub(super) fn put(&mut self, slice: &ObjectName, endpoints: impl Iterator<Item = IpAddr>) {
        let mut endpoints = endpoints;
        let is_inner = endpoints.any(|ip| self.ranges.iter().any(|range| range.contains(&ip)));
        if is_inner {
            self.slices.insert(slice.clone());
        } else {
            self.remove(slice)
        }
    }

    /// Forgets a slice.
    pub(super) fn remove(&mut self, slice: &ObjectName) {
        if !self.slices.is_empty() {
            self.slices.remove(slice);
        }
    }

    /// Returns whether an endpoint may be a cluster IP: one is in the ranges, or no range is known.
    pub(super) fn may_have_cluster_ips(&self) -> bool {
        self.ranges.is_empty() || !self.slices.is_empty()
    }
}
