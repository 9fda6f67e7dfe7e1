//! Decides which endpoints of a list are chosen: by readiness, and by topology hints.
//!
//! The rules are those of kube-proxy: ready endpoints, filtered by topology hints; if none is
//! ready, those that serve while they terminate. Each entry is decided alone: of two entries with
//! one address, one chosen entry is enough.

use std::sync::Arc;

use super::endpoint::{Endpoint, Zones};
use super::endpoints::Hints;
use super::stored::StoredSlice;

/// Rule by which endpoints of some slices are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    /// No endpoint is ready: those that serve while they terminate.
    Terminating,
    /// All ready endpoints.
    Ready,
    /// Ready endpoints with a hint for this node.
    HintedForNode,
    /// Ready endpoints with a hint for this zone.
    HintedForZone(&'a str),
}

impl<'a> Choice<'a> {
    /// Returns the rule for `slices`. Hints apply only if every ready endpoint has one and at least
    /// one names this node or `zone`, the zone of this node.
    pub(super) fn of<'s>(
        slices: impl Iterator<Item = &'s StoredSlice> + Clone,
        zone: Option<&'a Arc<str>>,
    ) -> Self {
        let hints = slices.clone().map(|slice| slice.endpoints.hints());
        let hints = hints.fold(Hints::default(), Hints::and);
        if !hints.any_ready {
            return Self::Terminating;
        }
        if hints.any_for_this_node && !hints.any_without_nodes {
            return Self::HintedForNode;
        }
        match zone {
            Some(zone)
                if !hints.any_without_zones && { slices }.any(|slice| slice.is_hinted(zone)) =>
            {
                Self::HintedForZone(zone)
            }
            _ => Self::Ready,
        }
    }

    /// Returns whether an endpoint is chosen.
    pub(super) fn includes(self, endpoint: &Endpoint<&Arc<Zones>>) -> bool {
        let conditions = endpoint.conditions;
        match self {
            Self::Terminating => conditions.serves_terminating(),
            Self::Ready => conditions.ready,
            Self::HintedForNode => conditions.ready && conditions.hinted_for_node,
            Self::HintedForZone(zone) => {
                let mut zones = endpoint.zones.into_iter().flat_map(|zones| zones.iter());
                conditions.ready && zones.any(|name| **name == *zone)
            }
        }
    }
}
