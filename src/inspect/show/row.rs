//! One row of output: a frontend.

use std::fmt;

use engine::model::{self, HashedSource, Target};
use engine::ruleset::Unserved;
use nft::Counter;

use super::connections::Counts;
use super::services::Entry;

/// A frontend with its endpoints and connections.
#[derive(Debug)]
pub struct Row<'a> {
    /// Entry in the tables.
    pub entry: &'a Entry,
    /// Kind of the address.
    pub kind: Kind,
    /// Traffic policy; `None` if the tables are equal with both.
    pub policy: Option<Policy>,
    /// Treatment of a new connection from outside.
    pub scheduler: Scheduler,
    /// Sorted by place and address.
    pub endpoints: Vec<EndpointRow>,
    /// All connections, including those that no row of an endpoint shows. `None` if unknown.
    pub connections: Option<Counts>,
    /// Client hashes that session affinity has recorded.
    pub clients: Option<u32>,
}

/// An endpoint of a frontend.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointRow {
    /// Address and port.
    pub target: Target,
    /// State for new connections.
    pub state: EndpointState,
    /// The endpoint is on this node. `None` if it is in no list, as the tables then do not store
    /// it.
    pub is_local: Option<bool>,
    /// Slots in the list for connections from outside, else in the internal list.
    pub slots: u32,
    /// Probability that a new connection from outside gets this endpoint.
    pub share: f64,
    /// The same for connections of pods and of the node.
    pub internal_share: f64,
    /// Connections to the endpoint.
    pub connections: Counts,
    /// Places of clients with affinity to this endpoint.
    pub clients: Option<u32>,
    /// Connections counted by its lists, through any frontend of the service port.
    pub counted: Option<Counter>,
}

impl EndpointRow {
    /// Returns an endpoint in no list, without connections.
    pub(super) fn new(target: Target, state: EndpointState, is_local: Option<bool>) -> Self {
        Self {
            target,
            state,
            is_local,
            slots: 0,
            share: 0.0,
            internal_share: 0.0,
            connections: Counts::default(),
            clients: None,
            counted: None,
        }
    }
}

engine::named! {
    /// State of an endpoint for new connections.
    #[derive(PartialOrd, Ord)]
    pub enum EndpointState {
        /// Gets new connections through this frontend.
        Serving = "serving",
        /// Gets new connections through other frontends of the service only.
        Elsewhere = "elsewhere",
        /// Gets no new connections, but has live ones.
        Draining = "draining",
        /// Gets no new connections, and all have ended.
        Gone = "gone",
    }
}

engine::named! {
    /// Kind of a frontend's address.
    pub enum Kind {
        /// A cluster IP.
        ClusterIp = "cluster-ip",
        /// An external IP, or a load balancer address without source ranges: the tables do not
        /// distinguish them.
        External = "external",
        /// A load balancer address with source ranges.
        LoadBalancer = "load-balancer",
        /// A node port.
        NodePort = "node-port",
        /// A node port of a family in which no address of the node serves NodePorts.
        ClosedNodePort = "closed-node-port",
    }
}

engine::named! {
    /// A traffic policy: internal for a cluster IP, external for other frontends.
    pub enum Policy {
        /// All endpoints.
        Cluster = "Cluster",
        /// Endpoints on this node.
        Local = "Local",
    }
}

/// Treatment of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Goes to a chosen endpoint.
    Chosen(Choice),
    /// The same, for clients without affinity within the timeout in seconds.
    Affinity(Choice, Option<u32>),
    /// Has no endpoint.
    Unserved(Unserved),
}

/// Method to choose an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All have the same probability (`numgen random`).
    Random,
    /// Probabilities differ.
    Weighted,
    /// By a hash of the source (`jhash`).
    Maglev(HashedSource),
    /// Probabilities follow live connections.
    LeastConnections,
}

impl Choice {
    /// Returns the name of the scheduler.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Weighted => "wrr",
            Self::Maglev(source) => model::Scheduler::Maglev(source).name(),
            Self::LeastConnections => model::Scheduler::LeastConnections.name(),
        }
    }
}

impl Row<'_> {
    /// Returns the number of endpoints that get new connections.
    pub fn serving(&self) -> usize {
        self.count(|it| it.state == EndpointState::Serving)
    }

    /// Returns the number of those on this node.
    pub fn local(&self) -> usize {
        self.count(|it| it.state == EndpointState::Serving && it.is_local == Some(true))
    }

    /// Returns the number of draining endpoints.
    pub fn draining(&self) -> usize {
        self.count(|it| it.state == EndpointState::Draining)
    }

    /// Returns whether pods and the node get other endpoints than connections from outside.
    pub fn has_two_ways(&self) -> bool {
        self.entry.internal.is_some()
    }

    fn count(&self, is_counted: impl Fn(&EndpointRow) -> bool) -> usize {
        self.endpoints.iter().filter(|it| is_counted(it)).count()
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen(choice) => f.pad(choice.name()),
            Self::Affinity(choice, seconds) => {
                let choice = match choice {
                    Choice::Random => String::new(),
                    Choice::Weighted | Choice::Maglev(_) | Choice::LeastConnections => {
                        format!("{}, ", choice.name())
                    }
                };
                let seconds = seconds.map(|seconds| format!(" {seconds}s")).unwrap_or_default();
                f.pad(&format!("{choice}affinity{seconds}"))
            }
            Self::Unserved(Unserved::Refuse) => f.pad("refuse"),
            Self::Unserved(Unserved::Drop) => f.pad("drop"),
        }
    }
}
