//! Events of a source: an object changed, is gone, or cannot be used.

use std::fmt;
use std::num::NonZeroU16;

use super::{EndpointSlice, Node, ObjectName, Service, ServiceCidr};
use crate::printable::Printable;

/// One event of a source.
///
/// A source that lists a resource sends `Relist`, an event for every object, then `Listed`. Objects
/// of that resource without an event in between no longer exist.
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
    /// Every object of this resource was sent since `Relist`.
    Listed(Resource),
}

impl Event {
    /// Returns the event for an object that no longer exists.
    pub fn gone(object: ObjectRef) -> Self {
        let name = object.name;
        match object.resource {
            Resource::Services => Self::Service(Change::Gone(name)),
            Resource::EndpointSlices => Self::EndpointSlice(Change::Gone(name)),
            Resource::Nodes => Self::Node(Change::Gone(name)),
            Resource::ServiceCidrs => Self::ServiceCidr(Change::Gone(name)),
        }
    }

    /// Returns the event for an object that cannot be used.
    pub fn invalid(object: ObjectRef) -> Self {
        let name = object.name;
        match object.resource {
            Resource::Services => Self::Service(Change::Invalid(name)),
            Resource::EndpointSlices => Self::EndpointSlice(Change::Invalid(name)),
            Resource::Nodes => Self::Node(Change::Invalid(name)),
            Resource::ServiceCidrs => Self::ServiceCidr(Change::Invalid(name)),
        }
    }

    /// Returns whether the event is about an object that cannot be used.
    pub fn is_invalid(&self) -> bool {
        matches!(
            self,
            Self::Service(Change::Invalid(_))
                | Self::EndpointSlice(Change::Invalid(_))
                | Self::Node(Change::Invalid(_))
                | Self::ServiceCidr(Change::Invalid(_))
        )
    }
}

/// Change of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// The object exists with this content.
    Is(T),
    /// The object exists but cannot be used; its former content stays in force.
    Invalid(ObjectName),
    /// The object no longer exists or no longer matches the selector.
    Gone(ObjectName),
}

/// Watched resources.
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

impl Resource {
    /// All resources.
    pub const ALL: [Self; 4] =
        [Self::Services, Self::EndpointSlices, Self::Nodes, Self::ServiceCidrs];

    /// Returns the `kind` of its objects.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Services => "Service",
            Self::EndpointSlices => "EndpointSlice",
            Self::Nodes => "Node",
            Self::ServiceCidrs => "ServiceCIDR",
        }
    }
}

/// Reference to an object of the cluster; prints as `Service default/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// Resource of the object.
    pub resource: Resource,
    /// Name of the object.
    pub name: ObjectName,
}

impl ObjectRef {
    /// Returns the reference to the service `name`.
    pub fn service(name: &ObjectName) -> Self {
        Self { resource: Resource::Services, name: name.clone() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource.kind(), self.name)
    }
}

/// Object, or a part of it, that was left out, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind, for metrics.
    pub kind: ProblemKind,
    /// The object.
    pub object: ObjectRef,
    /// Path of the offending field, such as `spec.ports[0].port`; empty for the object itself.
    pub field: String,
    /// What is wrong and what is expected.
    pub message: String,
}

/// Kinds of problems, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The object has a content that cannot be used.
    Invalid,
    /// Another service has the same address and port.
    Conflict,
    /// A limit is reached.
    Limit,
    /// The kernel refused it.
    Refused,
    /// A port of this node cannot be opened.
    ClosedPort,
}

impl ProblemKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Invalid, Self::Conflict, Self::Limit, Self::Refused, Self::ClosedPort];

    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Limit => "limit",
            Self::Refused => "refused",
            Self::ClosedPort => "closed_port",
        }
    }
}

impl Problem {
    /// Returns the problem of a service port that reaches a limit.
    pub fn of_port(service: &ObjectName, port: NonZeroU16, field: &str, message: &str) -> Self {
        Self {
            kind: ProblemKind::Limit,
            object: ObjectRef::service(service),
            field: field.to_owned(),
            message: format!("port {port}: {message}"),
        }
    }

    /// Returns whether an annotation was ignored, so that the object is served without it.
    pub fn is_of_annotation(&self) -> bool {
        self.field.starts_with("metadata.annotations[")
    }

    /// Returns the problem of a setting of a service that is replaced.
    pub fn of_service(service: &ObjectName, field: &str, message: &str) -> Self {
        Self {
            kind: ProblemKind::Invalid,
            object: ObjectRef::service(service),
            field: field.to_owned(),
            message: message.to_owned(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, message, .. } = self;
        match field.as_str() {
            "" => Printable(format_args!("{object}: {message}")).fmt(f),
            field => Printable(format_args!("{object}: {field}: {message}")).fmt(f),
        }
    }
}
