//! The four kinds of objects that the server has.

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
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Service, Self::EndpointSlice, Self::Node, Self::ServiceCidr];

    /// The kind of an object with `kind`.
    #[track_caller]
    pub fn of(object: &Value) -> Self {
        Self::ALL
            .into_iter()
            .find(|kind| object["kind"] == kind.name())
            .unwrap_or_else(|| panic!("the server has no kind {}", object["kind"]))
    }

    pub(super) fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.path() == path)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Node => "Node",
            Self::ServiceCidr => "ServiceCIDR",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::Service | Self::Node => "v1",
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
        }
    }

    pub(super) fn list_trace(self) -> &'static str {
        match self {
            Self::Service => "list-services.http",
            Self::EndpointSlice => "list-endpointslices.http",
            Self::Node => "list-nodes.http",
            Self::ServiceCidr => "list-servicecidrs.http",
        }
    }
}
