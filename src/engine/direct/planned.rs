//! What direct return makes of one service.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Instant;

use super::phase::Phase;
use super::ruleset::{Destination, NodeListId};
use crate::model::{Handed, Problem, Protocol};

/// A service with direct return, now or before.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) families: [FamilyPlan; 2],
    pub(super) problems: Vec<Problem>,
}

/// The part of one family.
#[derive(Debug, Default)]
pub(super) struct FamilyPlan {
    pub(super) phase: Option<Phase>,
    /// By protocol and port.
    pub(super) ports: BTreeMap<(Protocol, NonZeroU16), PortPlan>,
}

/// The elements of a port.
#[derive(Debug)]
pub(super) struct PortPlan {
    pub(super) list: NodeListId,
    pub(super) destinations: Vec<Destination>,
}

impl Planned {
    /// Returns when a phase ends.
    pub(super) fn end(&self) -> Option<Instant> {
        self.families.iter().filter_map(|plan| plan.phase?.end()).min()
    }

    /// Returns whether the service has elements.
    pub(super) fn has_elements(&self) -> bool {
        self.families.iter().any(|plan| !plan.ports.is_empty())
    }

    /// Returns whether it has a list of nodes.
    pub(super) fn has(&self, list: NodeListId) -> bool {
        self.families.iter().flat_map(|plan| plan.ports.values()).any(|port| port.list == list)
    }

    /// Returns whether nodes hand its packets to each other.
    pub(super) fn is_direct(&self) -> bool {
        self.directions().contains(&true)
    }

    /// Returns what the rendering of the service depends on.
    pub(super) fn handed(&self, node_ports: bool) -> Handed {
        Handed { families: self.directions(), node_ports, problems: self.problems.clone() }
    }

    fn directions(&self) -> [bool; 2] {
        self.families.each_ref().map(|plan| plan.phase == Some(Phase::Direct))
    }
}
