//! Events of a source: an object changed, is gone, or cannot be used.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;

use ahash::HashMap;

use super::endpoints::EndpointSlice;
use super::name::ObjectName;
use super::node::{Node, Peer, ServiceCidr};
use super::service::Service;
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
    /// This node's Node changed.
    Node(Change<Node>),
    /// The Node of another node changed. Sources send it only while direct return is on.
    Peer(Change<Peer>),
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

    /// Returns whether the object of the event cannot be used.
    pub fn is_invalid(&self) -> bool {
        matches!(
            self,
            Self::Service(Change::Invalid(_))
                | Self::EndpointSlice(Change::Invalid(_))
                | Self::Node(Change::Invalid(_))
                | Self::Peer(Change::Invalid(_))
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
    /// core/v1 Node: this node's, and all others while direct return is on.
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

    /// Returns the `apiVersion` that its objects may have in manifests. The first is that of watches.
    pub const fn api_versions(self) -> &'static [&'static str] {
        match self {
            Self::Services | Self::Nodes => &["v1"],
            Self::EndpointSlices => &["discovery.k8s.io/v1"],
            Self::ServiceCidrs => &["networking.k8s.io/v1", "networking.k8s.io/v1beta1"],
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

crate::named! {
    /// Kinds of problems, for metrics.
    pub enum ProblemKind {
        /// The object has a content that cannot be used.
        Invalid = "invalid",
        /// Another service has the same address and port, another Node the same address, or another
        /// kube-proxy serves too.
        Conflict = "conflict",
        /// A limit is reached.
        Limit = "limit",
        /// The kernel refused it.
        Refused = "refused",
        /// A port of this node cannot be opened.
        ClosedPort = "closed_port",
        /// This node has no Node object.
        MissingNode = "missing_node",
        /// Packets of a service with direct return are translated.
        DirectReturn = "direct_return",
        /// A range of cluster IPs holds addresses of another use.
        Overlap = "overlap",
    }
}

/// Most problems of an object that are reported at once.
const MOST_PROBLEMS: usize = 20;

impl Problem {
    /// Returns a problem of an object, or of its field at this path.
    pub fn new(kind: ProblemKind, object: ObjectRef, field: &str, message: String) -> Self {
        Self { kind, object, field: field.to_owned(), message }
    }

    /// Returns the problem of a service port that reaches a limit.
    pub fn of_port(service: &ObjectName, port: NonZeroU16, field: &str, message: &str) -> Self {
        Self::of_limit(service, field, &format!("port {port}: {message}"))
    }

    /// Returns the problem of a service that reaches a limit.
    pub fn of_limit(service: &ObjectName, field: &str, message: &str) -> Self {
        Self::new(ProblemKind::Limit, ObjectRef::service(service), field, message.to_owned())
    }

    /// Returns the problem of a service whose packets are translated instead of handed to other
    /// nodes.
    pub fn of_direct_return(service: &ObjectName, message: String) -> Self {
        let (kind, object) = (ProblemKind::DirectReturn, ObjectRef::service(service));
        Self::new(kind, object, "spec.externalTrafficPolicy", message)
    }

    /// Returns whether an annotation was ignored, so that the object is served without it.
    pub fn is_of_annotation(&self) -> bool {
        self.field.starts_with("metadata.annotations[")
    }

    /// Keeps the first problems of each object, and counts the others in one more. An object may
    /// have thousands, and each becomes a line of the log and an Event.
    pub fn keep_few(problems: &mut Vec<Self>) {
        if problems.len() <= MOST_PROBLEMS {
            return;
        }
        let mut counts = HashMap::<ObjectRef, usize>::default();
        // By name, so that equal problems are reported in the same order.
        let mut others = BTreeMap::<ObjectName, (Self, usize)>::new();
        problems.retain(|problem| {
            let count = counts.entry(problem.object.clone()).or_default();
            *count += 1;
            if *count > MOST_PROBLEMS {
                let name = problem.object.name.clone();
                others.entry(name).or_insert_with(|| (problem.clone(), 0)).1 += 1;
            }
            *count <= MOST_PROBLEMS
        });
        problems.extend(others.into_values().map(|(first, count)| Self {
            field: String::new(),
            message: format!("has {count} further problems, which are not listed"),
            ..first
        }));
    }

    /// Returns the problem of a setting of a service that is replaced.
    pub fn of_service(service: &ObjectName, field: &str, message: &str) -> Self {
        Self::new(ProblemKind::Invalid, ObjectRef::service(service), field, message.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_problems_of_an_object_the_first_are_kept_and_the_others_counted() {
        let problem = |service: &str, n: usize| {
            let service = ObjectName::namespaced("default", service);
            Problem::of_limit(&service, &format!("spec.ports[{n}]"), "is too much")
        };
        let mut problems: Vec<_> = (0..1_000).map(|n| problem("web", n)).collect();
        problems.push(problem("dns", 0));
        Problem::keep_few(&mut problems);
        assert_eq!(problems.len(), MOST_PROBLEMS + 2);
        assert_eq!(problems[MOST_PROBLEMS], problem("dns", 0));
        let last = problems.last().map(ToString::to_string);
        let expected = "Service default/web: has 980 further problems, which are not listed";
        assert_eq!(last.as_deref(), Some(expected));
        let mut few: Vec<_> = (0..MOST_PROBLEMS).map(|n| problem("web", n)).collect();
        Problem::keep_few(&mut few);
        assert_eq!(few.len(), MOST_PROBLEMS);
    }
}
