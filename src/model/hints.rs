//! Topology hints of a list of endpoints, as far as they decide whether hints are obeyed.

use std::sync::Arc;

use super::{Conditions, Zones};

/// What hints the ready endpoints of a list have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hints {
    pub(super) any_ready: bool,
    pub(super) all_for_nodes: bool,
    pub(super) any_for_this_node: bool,
    pub(super) all_for_zones: bool,
}

impl Hints {
    /// Those of no endpoint.
    pub(super) const NONE: Self = Self {
        any_ready: false,
        all_for_nodes: true,
        any_for_this_node: false,
        all_for_zones: true,
    };

    /// Those of one endpoint.
    pub(super) fn of(conditions: Conditions, zones: Option<&Arc<Zones>>) -> Self {
        if !conditions.ready {
            return Self::NONE;
        }
        Self {
            any_ready: true,
            all_for_nodes: conditions.has_node_hints,
            any_for_this_node: conditions.hinted_for_node,
            all_for_zones: zones.is_some(),
        }
    }

    /// Those of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            any_ready: self.any_ready || other.any_ready,
            all_for_nodes: self.all_for_nodes && other.all_for_nodes,
            any_for_this_node: self.any_for_this_node || other.any_for_this_node,
            all_for_zones: self.all_for_zones && other.all_for_zones,
        }
    }
}
