//! The elements that one service needs.

use std::num::NonZeroU16;
use std::sync::Arc;

use ipnet::IpNet;
use nft::family::Family;
use smallvec::SmallVec;

use super::label::Label;
use super::slot_plan::SlotPlan;
use super::timeouts::GrantedTimeout;
use crate::model::{PortBlock, Problem, Protocol, Scheduler, Target, TargetList};
use crate::ruleset::number::SizeClass;
use crate::ruleset::{Frontend, ListUse, Member, Unserved};

/// The elements that a service needs, and its problems.
#[derive(Debug, Default)]
pub struct DesiredService {
    /// The ports in each table.
    pub ports: SmallVec<[DesiredPort; 1]>,
    /// Members, each once.
    pub members: SmallVec<[Member; 2]>,
    /// The scheduler of new connections.
    pub scheduler: Scheduler,
    /// Parts of the service that were left out.
    pub problems: Vec<Problem>,
}

/// A service port in one table.
#[derive(Debug)]
pub struct DesiredPort {
    /// The table.
    pub family: Family,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port at the cluster IP; without a meaning for port ranges.
    pub port: NonZeroU16,
    /// The ports of port ranges, ascending; empty for a single port.
    pub blocks: Arc<[PortBlock]>,
    /// The comment of its frontends.
    pub label: Label,
    /// Usable endpoints, by [`Scope`]. Those with weight 0 are included only if all have weight 0.
    pub endpoints: [TargetList; 2],
    /// The contents of the slots of their lists, by [`Scope`].
    pub slots: [SlotPlan; 2],
    /// The timeout of session affinity.
    pub timeout: Option<GrantedTimeout>,
    /// Frontends, each once.
    pub frontends: SmallVec<[DesiredFrontend; 2]>,
    /// Sources that may use guarded frontends, ascending and disjoint.
    pub ranges: Arc<[IpNet]>,
    /// Endpoints that established flows may go to; only for UDP, whose flows have no end.
    pub serving: Option<Arc<[Target]>>,
    /// Policies that want a local endpoint while all endpoints are on other nodes.
    pub no_local: NoLocal,
}

/// The traffic policies of a service port that are `Local`, if it has endpoints, but no local one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLocal {
    /// `spec.internalTrafficPolicy`.
    pub internal: bool,
    /// `spec.externalTrafficPolicy`.
    pub external: bool,
}

/// A frontend of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesiredFrontend {
    /// The destination of packets before DNAT.
    pub frontend: Frontend,
    /// The route of the packets.
    pub traffic: Traffic,
    /// Only the port's source ranges may use it.
    pub has_source_ranges: bool,
}

/// The endpoints of a service port in one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The endpoints of the whole cluster.
    Cluster,
    /// The local endpoints.
    Local,
}

/// The route of packets to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// To the endpoints of this scope, of which there is at least one.
    To {
        /// The scope.
        scope: Scope,
        /// Packets are masqueraded regardless of their source.
        masquerade: bool,
    },
    /// External packets: to local endpoints, or dropped if there are none. Packets of pods and of
    /// the node: to all endpoints, of which there is at least one.
    ExternalLocal,
    /// Packets for which direct return has chosen this node: to local endpoints, of which there is at
    /// least one. Others: to all endpoints, masqueraded.
    ChosenNode,
    /// No endpoints: packets are rejected or dropped.
    Unserved(Unserved),
}

impl Scope {
    /// Both scopes.
    pub const ALL: [Self; 2] = [Self::Cluster, Self::Local];
}

impl DesiredPort {
    /// Returns the packets that its lists are for.
    pub fn list_use(&self) -> ListUse {
        if self.blocks.is_empty() { ListUse::Port(self.protocol) } else { ListUse::Ranges }
    }

    /// Returns the usable endpoints of a scope.
    pub fn endpoints(&self, scope: Scope) -> &TargetList {
        &self.endpoints[scope as usize]
    }

    /// Returns the contents of the slots of a scope's list.
    pub fn slots(&self, scope: Scope) -> &SlotPlan {
        &self.slots[scope as usize]
    }

    /// Returns the number of slots in the list of a scope.
    pub fn slot_count(&self, scope: Scope) -> usize {
        self.slots(scope).count(self.endpoints(scope).len())
    }

    /// Returns the size class of the list of a scope.
    pub fn size(&self, scope: Scope) -> SizeClass {
        self.slots(scope).size(self.endpoints(scope).len())
    }
}

impl Traffic {
    /// Returns whether the route leads to local endpoints, and another one to all.
    pub fn has_two_routes(self) -> bool {
        match self {
            Self::ExternalLocal | Self::ChosenNode => true,
            Self::To { .. } | Self::Unserved(_) => false,
        }
    }

    /// Returns whether packets may go to endpoints of this scope.
    pub fn uses(self, scope: Scope) -> bool {
        match self {
            Self::To { scope: own, .. } => own == scope,
            Self::ExternalLocal | Self::ChosenNode => true,
            Self::Unserved(_) => false,
        }
    }
}
