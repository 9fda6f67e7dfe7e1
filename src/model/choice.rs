//! Which endpoints of a list are chosen: by readiness, and by topology hints.
//!
//! The rules are those of kube-proxy: ready endpoints, filtered by topology hints; if there are
//! none, those that still serve while they terminate. Each entry counts by itself, also where two
//! are about the same address: it is chosen if one of them is.

use std::sync::Arc;

use super::hints::Hints;
use super::stored::{EndpointView, StoredSlice};

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

impl<'a> Choice<'a> {
    /// Hints are obeyed only if every ready endpoint has one and one of them names this node or
    /// `zone`, this node's.
    pub(super) fn of<'s>(
        slices: impl Iterator<Item = &'s StoredSlice> + Clone,
        zone: Option<&'a Arc<str>>,
    ) -> Self {
        let hints = slices.clone().map(StoredSlice::hints).fold(Hints::default(), Hints::and);
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

    /// Whether an endpoint is chosen.
    pub(super) fn includes(self, endpoint: &EndpointView<'_>) -> bool {
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
