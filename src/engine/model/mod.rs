//! The objects of the cluster that matter on this node, in types without invalid states.
//!
//! Independent of Kubernetes' JSON and of nftables. `source` creates these types, `desired` reads
//! them.

mod all_endpoints;
mod arrival;
mod balanced;
mod choice;
mod cluster;
mod endpoint;
mod endpoint_changes;
mod event;
mod external_addresses;
mod health_check;
mod hints;
mod interner;
mod least_connections;
mod localhost_ports;
mod name;
mod node;
mod scheduler;
mod service;
mod shares;
mod slices_in_service_cidrs;
mod stored;
mod target;
mod touched;
mod usable;
mod weights;

pub use arrival::Arrival;
pub use balanced::Shares;
pub use cluster::{Cluster, ServiceView};
pub use endpoint::{Conditions, Endpoint, EndpointPort, EndpointSlice, Zones};
pub use endpoint_changes::EndpointChanges;
pub use event::{Change, Event, ObjectRef, Problem, ProblemKind, Resource};
pub use external_addresses::ExternalAddresses;
pub use health_check::HealthCheck;
pub use interner::Interner;
pub use least_connections::{Adjusted, LiveConnections};
pub use localhost_ports::{LocalhostPort, LocalhostPorts};
pub use name::ObjectName;
pub use node::{Node, ServiceCidr};
pub use scheduler::{HashedSource, NamedScheduler, Scheduler};
pub use service::{Protocol, Service, ServicePort, TrafficPolicy};
pub use shares::{EVEN, Load, Share, adjust};
pub use target::{Target, TargetList};
pub use touched::{Extent, Touched};
pub use usable::UsableEndpoints;
pub use weights::{EndpointNames, Weighing, Weight, Weights};
