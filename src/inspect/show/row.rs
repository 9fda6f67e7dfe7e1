//! What is shown of one frontend.

use std::fmt;

use super::connections::Counts;
use super::services::Entry;
use crate::model::{self, HashedSource, Target};
use crate::nft::Counter;
use crate::ruleset::Unserved;

/// A frontend with its endpoints and connections.
#[derive(Debug)]
pub struct Row<'a> {
    /// What the tables hold of it.
    pub entry: &'a Entry,
    /// What kind of address it is.
    pub kind: Kind,
    /// Its traffic policy; `None` where the tables are the same with both.
    pub policy: Option<Policy>,
    /// What happens to a new connection from outside.
    pub scheduler: Scheduler,
    /// Sorted by place and address.
    pub endpoints: Vec<EndpointRow>,
    /// All connections, those that are in no row of an endpoint too. `None` if they are not known.
    pub connections: Option<Counts>,
    /// Places of clients that session affinity remembers.
    pub clients: Option<u32>,
}

/// An endpoint of a frontend.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointRow {
    /// Its address and port.
    pub target: Target,
    /// Whether it gets new connections.
    pub state: EndpointState,
    /// Whether it is on this node; `None` if it is in no list any more, as then the tables do not
    /// hold that either.
    pub is_local: Option<bool>,
    /// Its slots in the list for connections from outside, or else of pods and of the node.
    pub slots: u32,
    /// The chance of a new connection from outside to get to it.
    pub share: f64,
    /// The same for connections of pods and of the node.
    pub internal_share: f64,
    /// Its connections.
    pub connections: Counts,
    /// Places of clients that get it again.
    pub clients: Option<u32>,
    /// Connections that its lists have counted, through any frontend of the service port.
    pub counted: Option<Counter>,
}

/// Whether an endpoint gets new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointState {
    /// From somewhere, through this frontend.
    Serving,
    /// Through other frontends of the service.
    Elsewhere,
    /// No longer, but connections to it live.
    Draining,
    /// No longer, and its connections have ended.
    Gone,
}

/// What kind of address a frontend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cluster IP.
    ClusterIp,
    /// An external IP, or an address of a load balancer without source ranges: the tables do not
    /// distinguish them.
    External,
    /// An address of a load balancer with source ranges.
    LoadBalancer,
    /// A node port.
    NodePort,
    /// A node port of a family in which no address of the node serves NodePorts.
    ClosedNodePort,
}

/// A traffic policy: the internal one of a cluster IP, the external one of other frontends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All endpoints.
    Cluster,
    /// Endpoints on this node.
    Local,
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// An endpoint is chosen.
    Chosen(Choice),
    /// The same, for clients that were not remembered for so many seconds.
    Affinity(Choice, Option<u32>),
    /// There is no endpoint for it.
    Unserved(Unserved),
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each has the same chance (`numgen random`).
    Random,
    /// Their chances differ.
    Weighted,
    /// A hash of the source leads to it (`jhash`).
    Maglev(HashedSource),
}

impl Choice {
    /// The name of such a scheduler.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Weighted => "wrr",
            Self::Maglev(source) => model::Scheduler::Maglev(source).name(),
        }
    }
}

impl Row<'_> {
    /// The number of its endpoints that get new connections.
    pub fn serving(&self) -> usize {
        self.count(|it| it.state == EndpointState::Serving)
    }

    /// Those of them on this node.
    pub fn local(&self) -> usize {
        self.count(|it| it.state == EndpointState::Serving && it.is_local == Some(true))
    }

    /// The number of its endpoints that are draining.
    pub fn draining(&self) -> usize {
        self.count(|it| it.state == EndpointState::Draining)
    }

    /// Whether pods and the node get to other endpoints than connections from outside.
    pub fn has_two_ways(&self) -> bool {
        self.entry.internal.is_some()
    }

    fn count(&self, is_counted: impl Fn(&EndpointRow) -> bool) -> usize {
        self.endpoints.iter().filter(|it| is_counted(it)).count()
    }
}

impl Kind {
    /// The word in listings.
    pub fn word(self) -> &'static str {
        match self {
            Self::ClusterIp => "cluster-ip",
            Self::External => "external",
            Self::LoadBalancer => "load-balancer",
            Self::NodePort => "node-port",
            Self::ClosedNodePort => "closed-node-port",
        }
    }
}

impl Policy {
    /// The word of the Kubernetes API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}

impl EndpointState {
    /// The word in listings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Elsewhere => "elsewhere",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen(choice) => f.pad(choice.name()),
            Self::Affinity(choice, seconds) => {
                let choice = match choice {
                    Choice::Random => String::new(),
                    Choice::Weighted | Choice::Maglev(_) => format!("{}, ", choice.name()),
                };
                let seconds = seconds.map(|seconds| format!(" {seconds}s")).unwrap_or_default();
                f.pad(&format!("{choice}affinity{seconds}"))
            }
            Self::Unserved(Unserved::Refuse) => f.pad("refuse"),
            Self::Unserved(Unserved::Drop) => f.pad("drop"),
        }
    }
}
