//! The kinds of objects that the server has.

use serde_json::Value;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// core/v1 Service.
    Service,
    /// discovery.k8s.io/v1 EndpointSlice.
    EndpointSlice,
    /// core/v1 Node.
    Node,
    /// networking.k8s.io/v1 ServiceCIDR.
    ServiceCidr,
    /// core/v1 Namespace.
    Namespace,
}

impl Kind {
    /// Number of kinds.
    pub(super) const COUNT: usize = 5;

    /// The kinds that a proxy follows.
    pub const ALL: [Self; 4] = [Self::Service, Self::EndpointSlice, Self::Node, Self::ServiceCidr];

    /// The kind of an object with `kind`.
    #[track_caller]
    pub fn of(object: &Value) -> Self {
        Self::every()
            .find(|kind| object["kind"] == kind.name())
            .unwrap_or_else(|| panic!("the server has no kind {}", object["kind"]))
    }

    pub(super) fn of_path(path: &str) -> Option<Self> {
        Self::every().find(|kind| kind.path() == path)
    }

    fn every() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain([Self::Namespace])
    }

    /// The last part of its path.
    pub(super) fn plural(self) -> &'static str {
        let path = self.path();
        path.rsplit_once('/').map_or(path, |(_, plural)| plural)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Node => "Node",
            Self::ServiceCidr => "ServiceCIDR",
            Self::Namespace => "Namespace",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::Service | Self::Node | Self::Namespace => "v1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::ServiceCidr => "networking.k8s.io/v1",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Service => "/api/v1/services",
            Self::EndpointSlice => "/apis/discovery.k8s.io/v1/endpointslices",
            Self::Node => "/api/v1/nodes",
            Self::ServiceCidr => "/apis/networking.k8s.io/v1/servicecidrs",
            Self::Namespace => "/api/v1/namespaces",
        }
    }

    pub(super) fn list_trace(self) -> &'static str {
        match self {
            Self::Service => "list-services.http",
            Self::EndpointSlice => "list-endpointslices.http",
            Self::Node => "list-nodes.http",
            Self::ServiceCidr => "list-servicecidrs.http",
            Self::Namespace => "list-namespaces.http",
        }
    }
}
