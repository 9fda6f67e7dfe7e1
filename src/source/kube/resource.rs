//! The four resources as the API serves them, and what their objects mean to the model.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as KubeResource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

use crate::model::{Event, ObjectName, ObjectRef, Problem, Resource};
use crate::source::objects::{Converter, EndpointSlice, Node, Service, ServiceCidr};

/// A resource that can be followed.
pub(super) trait Followed:
    KubeResource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
    /// What the model calls it.
    const RESOURCE: Resource;
    /// Whether servers exist that do not have it; to them it is empty.
    const OPTIONAL: bool;

    /// Reads an object like [`Deserialize`], in the quickest way there is.
    fn read_quickly<'de, D: Deserializer<'de>>(input: D) -> Result<Self, D::Error>;

    /// What the object says.
    fn convert(self, converter: &mut Converter) -> (Event, Vec<Problem>);

    /// The object's name; its [`meta`](KubeResource::meta) need not hold more than a version.
    fn object_name(&self) -> ObjectName;

    /// The object of that name.
    fn object(name: ObjectName) -> ObjectRef {
        ObjectRef { resource: Self::RESOURCE, name }
    }
}

/// What a wrapper of objects of `$object` says of their resource in its [`KubeResource`].
macro_rules! resource_of {
    ($object:ident) => {
        type DynamicType = ();
        type Scope = $object::Scope;

        fn kind(_: &()) -> std::borrow::Cow<'_, str> {
            $object::kind(&())
        }

        fn group(_: &()) -> std::borrow::Cow<'_, str> {
            $object::group(&())
        }

        fn version(_: &()) -> std::borrow::Cow<'_, str> {
            $object::version(&())
        }

        fn plural(_: &()) -> std::borrow::Cow<'_, str> {
            $object::plural(&())
        }
    };
}
pub(super) use resource_of;

/// Implements [`KubeResource`] and [`Followed`], which differ only in words.
macro_rules! followed {
    ($type:ident, $group:literal, $plural:literal, $scope:ident,
     $resource:ident, $event:ident, $read:path, $convert:expr, $optional:literal) => {
        impl KubeResource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> Cow<'_, str> {
                Self::RESOURCE.kind().into()
            }

            fn group(_: &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Followed for $type {
            const RESOURCE: Resource = Resource::$resource;
            const OPTIONAL: bool = $optional;

            fn read_quickly<'de, D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                $read(input)
            }

            fn convert(self, converter: &mut Converter) -> (Event, Vec<Problem>) {
                let (change, problems) = $convert(converter, self);
                (Event::$event(change), problems)
            }

            fn object_name(&self) -> ObjectName {
                Self::name(self)
            }
        }
    };
}

followed!(
    Service,
    "",
    "services",
    NamespaceResourceScope,
    Services,
    Service,
    Deserialize::deserialize,
    |converter: &mut Converter, it| converter.service(&it),
    false
);
followed!(
    EndpointSlice,
    "discovery.k8s.io",
    "endpointslices",
    NamespaceResourceScope,
    EndpointSlices,
    EndpointSlice,
    EndpointSlice::deserialize_quickly,
    Converter::endpoint_slice,
    false
);
followed!(
    Node,
    "",
    "nodes",
    ClusterResourceScope,
    Nodes,
    Node,
    Deserialize::deserialize,
    |converter: &mut Converter, it| converter.node(&it),
    false
);
// networking.k8s.io/v1 ServiceCIDR exists from Kubernetes 1.33.
followed!(
    ServiceCidr,
    "networking.k8s.io",
    "servicecidrs",
    ClusterResourceScope,
    ServiceCidrs,
    ServiceCidr,
    Deserialize::deserialize,
    |converter: &mut Converter, it| converter.service_cidr(&it),
    true
);
