//! Which endpoints of a list are chosen: by readiness, and by topology hints.
//!
//! The rules are those of kube-proxy: ready endpoints, filtered by topology hints; if there are
//! none, those that still serve while they terminate. Each entry counts by itself, also where two
//! are about the same address: it is chosen if one of them is.

use std::sync::Arc;

use super::stored::{EndpointView, StoredSlice};
use super::{Conditions, Zones};

/// What is chosen of all endpoints of some slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    /// None is ready: those that serve until they end.
    Terminating,
    /// All that are ready.
    Ready,
    /// Those that are ready and hinted for this node.
    HintedForNode,
    /// Those that are ready and hinted for this zone.
    HintedForZone(&'a str),
}

/// What hints the ready endpoints of a list have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hints {
    any_ready: bool,
    all_for_nodes: bool,
    any_for_this_node: bool,
    all_for_zones: bool,
}

impl<'a> Choice<'a> {
    /// Hints are obeyed only if every ready endpoint has one and one of them names this node or
    /// `zone`, this node's.
    pub(super) fn of<'s>(
        slices: impl Iterator<Item = &'s StoredSlice> + Clone,
        zone: Option<&'a Arc<str>>,
    ) -> Self {
        let hints = slices.clone().map(StoredSlice::hints).fold(Hints::NONE, Hints::and);
        if !hints.any_ready {
            return Self::Terminating;
        }
        if hints.all_for_nodes && hints.any_for_this_node {
            return Self::HintedForNode;
        }
        match zone {
            Some(zone) if hints.all_for_zones && { slices }.any(|slice| slice.is_hinted(zone)) => {
                Self::HintedForZone(zone)
            }
            _ => Self::Ready,
        }
    }

    /// Whether an endpoint is chosen.
    pub(super) fn includes(self, endpoint: &EndpointView<'_>) -> bool {
        let conditions = endpoint.conditions;
        match self {
            Self::Terminating => conditions.serves_terminating(),
            Self::Ready => conditions.ready,
            Self::HintedForNode => conditions.ready && conditions.hinted_for_node,
            Self::HintedForZone(zone) => conditions.ready && names(endpoint.zones, zone),
        }
    }
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

fn names(zones: Option<&Arc<Zones>>, zone: &str) -> bool {
    zones.is_some_and(|zones| zones.iter().any(|name| **name == *zone))
}
