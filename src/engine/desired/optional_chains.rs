//! The chains and rules that the cluster needs at present.
//!
//! One is added before the first element that needs it, and deleted after the last. Size classes are
//! known only when services are rendered, so [`OptionalChains::add`] leaves them alone.

use nft::family::Family;

use crate::model::Cluster;
use crate::ruleset::{OptionalChains, SizeClasses};

impl OptionalChains {
    fn needed(cluster: &Cluster, family: Family, size_classes: SizeClasses) -> Self {
        let port_ranges = cluster.port_lengths(family);
        Self {
            source_ranges: cluster.source_lengths(family),
            port_ranges,
            range_sets: !port_ranges.is_empty(),
            cluster_ip_endpoints: cluster.may_have_cluster_ip_endpoints(),
            ended_endpoints: cluster.ended().is_some_and(|ended| ended.has(family)),
            size_classes,
        }
    }

    /// Adds what port ranges need; returns whether something is new.
    pub fn add_ranges(&mut self, cluster: &Cluster, family: Family) -> bool {
        let (former, lengths) = (*self, cluster.port_lengths(family));
        self.port_ranges = self.port_ranges.union(lengths);
        self.range_sets |= !lengths.is_empty();
        *self != former
    }

    /// Adds the chains and rules that the cluster needs; returns whether there are new ones.
    pub fn add(&mut self, cluster: &Cluster, family: Family) -> bool {
        let (former, needed) = (*self, Self::needed(cluster, family, self.size_classes));
        self.add_ranges(cluster, family);
        self.source_ranges = self.source_ranges.union(needed.source_ranges);
        self.cluster_ip_endpoints |= needed.cluster_ip_endpoints;
        self.ended_endpoints |= needed.ended_endpoints;
        *self != former
    }

    /// Drops the chains and rules that the cluster does not need; returns whether there were any.
    /// Everything desired must be installed, so that no element needs them either. `size_classes` are
    /// those in use.
    pub fn drop_unused(
        &mut self,
        cluster: &Cluster,
        (family, size_classes): (Family, SizeClasses),
    ) -> bool {
        let (former, needed) = (*self, Self::needed(cluster, family, size_classes));
        self.source_ranges = self.source_ranges.intersection(needed.source_ranges);
        self.port_ranges = self.port_ranges.intersection(needed.port_ranges);
        self.range_sets &= needed.range_sets;
        self.cluster_ip_endpoints &= needed.cluster_ip_endpoints;
        self.ended_endpoints &= needed.ended_endpoints;
        self.size_classes = self.size_classes.intersection(needed.size_classes);
        *self != former
    }
}
