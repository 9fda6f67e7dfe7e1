//! What our tables should hold for each service. Pure.
//!
//! A service is rendered by itself: its frontends, the endpoint lists they lead to, and the
//! elements that several services may share. Numbers, slots and claims of several services on one
//! frontend depend on what is installed, and are left to `diff`.

mod label;
mod lookup;
mod maglev;
mod render;
mod slots;
mod source_ranges;
mod timeouts;

pub use label::Label;
pub use lookup::Lookup;
pub use render::render;
pub use slots::Slots;
pub use timeouts::{GrantedTimeout, Timeouts};

use std::num::NonZeroU16;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::family::Family;
use crate::model::{Problem, Protocol, Scheduler, Target, TargetList};
use crate::ruleset::number::SizeClass;
use crate::ruleset::{Frontend, Member, Range, Unserved};

/// What a service needs, and what of it cannot be had.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Its ports in each table.
    pub ports: SmallVec<[WantedPort; 1]>,
    /// Each once.
    pub members: SmallVec<[Member; 2]>,
    /// How endpoints are chosen.
    pub scheduler: Scheduler,
    /// What was left out.
    pub problems: Vec<Problem>,
}

/// A service port in one table.
#[derive(Debug)]
pub struct WantedPort {
    /// The table.
    pub family: Family,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port at the cluster IP.
    pub port: NonZeroU16,
    /// The comment of its frontends.
    pub label: Label,
    /// Usable endpoints, by [`Scope`]; those with weight 0 are among them only if all are.
    pub endpoints: [TargetList; 2],
    /// What the slots of their lists hold, by [`Scope`].
    pub slots: [Slots; 2],
    /// How long clients are remembered, with session affinity.
    pub timeout: Option<GrantedTimeout>,
    /// Each once.
    pub frontends: SmallVec<[WantedFrontend; 2]>,
    /// Sources that may use guarded frontends, ascending and disjoint.
    pub ranges: Box<[Range]>,
    /// Endpoints that established flows may go to; only for UDP, whose flows do not end.
    pub serving: Option<Arc<[Target]>>,
    /// Which policies want an endpoint on this node while all are on others.
    pub no_local: NoLocal,
}

/// The traffic policies of a service port that are `Local`, if it has endpoints, but none on this
/// node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLocal {
    /// `spec.internalTrafficPolicy`.
    pub internal: bool,
    /// `spec.externalTrafficPolicy`.
    pub external: bool,
}

/// A frontend of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedFrontend {
    /// Where packets arrive.
    pub frontend: Frontend,
    /// Where they go.
    pub traffic: Traffic,
    /// Only the port's source ranges may use it.
    pub is_guarded: bool,
}

/// Which endpoints of a service port a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Those of the whole cluster.
    Cluster,
    /// Those on this node.
    Local,
}

/// Where packets to a frontend go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// To endpoints of this scope, of which there are some.
    To {
        /// The scope.
        scope: Scope,
        /// They are masqueraded whatever their source.
        masquerade: bool,
    },
    /// From outside to endpoints on this node, if there are any, else they are dropped; from pods
    /// and the node to all endpoints, of which there are some.
    ExternalLocal,
    /// Nowhere.
    Unserved(Unserved),
}

impl Scope {
    /// Both scopes.
    pub const ALL: [Self; 2] = [Self::Cluster, Self::Local];
}

impl WantedPort {
    /// The usable endpoints of a scope.
    pub fn endpoints(&self, scope: Scope) -> &TargetList {
        &self.endpoints[scope as usize]
    }

    /// What the slots of a scope's list hold.
    pub fn slots(&self, scope: Scope) -> &Slots {
        &self.slots[scope as usize]
    }

    /// How many slots the list of a scope has.
    pub fn slot_count(&self, scope: Scope) -> usize {
        self.slots(scope).count(self.endpoints(scope).len())
    }

    /// The size class of the list of a scope.
    pub fn size(&self, scope: Scope) -> SizeClass {
        self.slots(scope).size(self.endpoints(scope).len())
    }
}

impl Traffic {
    /// Whether packets may go to endpoints of this scope.
    pub fn uses(self, scope: Scope) -> bool {
        match self {
            Self::To { scope: own, .. } => own == scope,
            Self::ExternalLocal => true,
            Self::Unserved(_) => false,
        }
    }
}
