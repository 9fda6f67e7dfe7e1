//! The objects of the cluster that matter on this node, in types without invalid states.
//!
//! Independent of Kubernetes' JSON and of nftables. `source` creates these types, `desired` reads
//! them.

mod arrival;
mod balanced;
mod by_node;
mod choice;
mod cluster;
mod ended_endpoints;
mod endpoint;
mod endpoint_changes;
mod endpoints;
mod entry;
mod event;
mod external_addresses;
mod health_check;
mod interner;
mod least_connections;
mod localhost_ports;
mod name;
mod node;
mod overlaps;
mod peers;
mod port_ranges;
mod prefix_lengths;
mod protocol;
mod queries;
mod scheduler;
mod service;
mod service_view;
mod shares;
mod slices_in_service_cidrs;
mod stored;
mod target;
mod touched;
mod usable;
mod weights;

pub use arrival::Arrival;
pub use balanced::Shares;
pub use cluster::Cluster;
pub use ended_endpoints::{EndedEndpoints, EndedSettings};
pub use endpoint::{Conditions, Endpoint, EndpointPort, Zones};
pub use endpoint_changes::EndpointChanges;
pub use endpoints::{EndpointSlice, Endpoints};
pub use event::{Change, Event, ObjectRef, Problem, ProblemKind, Resource};
pub use external_addresses::ExternalAddresses;
pub use health_check::HealthCheck;
pub use interner::Interner;
pub use least_connections::{Adjusted, LiveConnections};
pub use localhost_ports::{LocalhostPort, LocalhostPorts};
pub use name::ObjectName;
pub use node::{Node, Peer, ServiceCidr};
pub use overlaps::{API_SERVER, HostAddresses};
pub(crate) use port_ranges::mask as port_mask;
pub use port_ranges::{PortBlock, PortRange};
pub use prefix_lengths::PrefixLengths;
pub(crate) use prefix_lengths::looked_up_length;
pub use protocol::Protocol;
pub use scheduler::{HashedSource, NamedScheduler, Scheduler};
pub use service::{EndedConnections, Forwarding, Service, ServicePort, TrafficPolicy};
pub use service_view::{Handed, ServiceView};
pub use shares::{EVEN, Load, Share, adjust};
pub use target::{Target, TargetList};
pub use touched::{Extent, Touched};
pub use usable::UsableEndpoints;
pub use weights::{EndpointNames, NodeName, Weighing, Weight, Weights};
