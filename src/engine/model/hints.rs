//! Topology hints of a list of endpoints, reduced to what decides whether they apply.

use std::sync::Arc;

use super::endpoint::{Conditions, Zones};

/// Summary of the hints of a list's ready endpoints; the default is that of an empty list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    pub(super) any_ready: bool,
    pub(super) any_for_this_node: bool,
    pub(super) any_without_nodes: bool,
    pub(super) any_without_zones: bool,
}

impl Hints {
    /// Returns the summary of one endpoint.
    pub(super) fn of(conditions: Conditions, zones: Option<&Arc<Zones>>) -> Self {
        let any_ready = conditions.ready;
        Self {
            any_ready,
            any_for_this_node: any_ready && conditions.hinted_for_node,
            any_without_nodes: any_ready && !conditions.has_node_hints,
            any_without_zones: any_ready && zones.is_none(),
        }
    }

    /// Returns the summary of both lists.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            any_ready: self.any_ready || other.any_ready,
            any_for_this_node: self.any_for_this_node || other.any_for_this_node,
            any_without_nodes: self.any_without_nodes || other.any_without_nodes,
            any_without_zones: self.any_without_zones || other.any_without_zones,
        }
    }
}
