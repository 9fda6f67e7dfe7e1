//! What a source says: this object is now so, is gone, or cannot be understood.

use super::{EndpointSlice, Node, ObjectName, Service, ServiceCidr};

/// One statement of a source about the cluster.
///
/// A source that lists a resource sends `Relist`, an event for every object, then `Listed`.
/// Objects of that resource which were not named in between are gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A Service changed.
    Service(Change<Service>),
    /// An EndpointSlice changed.
    EndpointSlice(Change<EndpointSlice>),
    /// A Node changed. Sources send only this node's object.
    Node(Change<Node>),
    /// A ServiceCIDR changed.
    ServiceCidr(Change<ServiceCidr>),
    /// Every object of this resource follows, then `Listed`.
    Relist(Resource),
    /// Every object of this resource has been named since `Relist`.
    Listed(Resource),
}

/// What became of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// The object exists and is so.
    Is(T),
    /// The object exists but cannot be used; what it said before stays in force.
    Invalid(ObjectName),
    /// The object is gone, or no longer matches the selector.
    Gone(ObjectName),
}

/// The resources that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// core/v1 Service.
    Services,
    /// discovery.k8s.io/v1 EndpointSlice.
    EndpointSlices,
    /// core/v1 Node, this node's only.
    Nodes,
    /// networking.k8s.io/v1 ServiceCIDR.
    ServiceCidrs,
}

/// Why an object, or a part of it, was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind and name, `Service default/web`.
    pub object: String,
    /// Path of the offending field, `spec.ports[0].port`; empty if it is the object itself.
    pub field: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "{}: {}", self.object, self.message),
            field => write!(f, "{}: {field}: {}", self.object, self.message),
        }
    }
}
