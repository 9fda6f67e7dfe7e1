//! Kubernetes API objects as JSON and protobuf, reduced to the fields that routing needs, and their conversion.
//!
//! The types here have the names of the API and contain text and numbers as received. An impossible
//! value therefore becomes our [`Problem`](engine::model::Problem), which names the field, and not a
//! parse error, which would affect other objects. [`Converter`] turns the types into the model.

mod address;
mod annotations;
mod converter;
mod endpoint_slice;
mod endpoints;
mod metadata;
mod node;
#[cfg(feature = "api-server")]
mod other_kind;
#[cfg(feature = "api-server")]
pub(super) mod protobuf;
mod resource;
mod service;
#[cfg(test)]
mod tests;
mod text;

pub use converter::Converter;
#[cfg(feature = "api-server")]
pub(super) use converter::MAX_NAME;
pub use endpoint_slice::EndpointSlice;
pub(super) use metadata::full_name;
pub use metadata::object_name;
pub use node::{
    Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, ServiceCidr, ServiceCidrSpec, Taint,
};
#[cfg(feature = "api-server")]
pub(super) use other_kind::{OtherKind, check_kind};
pub(super) use resource::{Followed, read};
pub use service::{
    ClientIp, LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec,
    ServiceStatus, SessionAffinityConfig,
};
