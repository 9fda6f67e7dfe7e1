//! Watched resources: their names in the API, and the conversion of their objects.

use std::fmt::Debug;

use engine::model::{Event, ObjectName, ObjectRef, Problem, Resource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, api};
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

use super::metadata::object_name;
use super::{Converter, EndpointSlice, Node, Service, ServiceCidr};

/// An object of a watched resource.
pub(in crate::source) trait Followed:
    Metadata<Ty = ObjectMeta> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
    /// Resource in the model.
    const RESOURCE: Resource;

    /// Returns the event of the object and its problems.
    fn convert(self, converter: &mut Converter) -> (Event, Vec<Problem>);

    /// Parses an object like [`Deserialize`](serde::Deserialize), but every error contains the path
    /// of the wrong field.
    fn deserialize_carefully<'de, D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::deserialize(input)
    }

    /// Returns the object's name, which the metadata may lack.
    fn object_name(&self) -> ObjectName {
        object_name(self.metadata())
    }

    /// Replaces the namespace; an empty one means none.
    fn set_namespace(&mut self, namespace: &str) {
        self.metadata_mut().namespace = Some(namespace.to_owned());
    }

    /// Returns the reference to the object of that name.
    fn object(name: ObjectName) -> ObjectRef {
        ObjectRef { resource: Self::RESOURCE, name }
    }
}

/// Parses an object, or returns the wrong field and the reason.
pub(in crate::source) fn read<T: Followed>(value: &Value) -> Result<T, (String, String)> {
    let mut track = serde_path_to_error::Track::new();
    let input = serde_path_to_error::Deserializer::new(value, &mut track);
    T::deserialize_carefully(input).map_err(|error| {
        let field = track.path().to_string();
        (if field == "." { String::new() } else { field }, error.to_string())
    })
}

/// The items of a [`k8s_openapi::Resource`] that equal those of `$api`.
macro_rules! resource_of {
    ($api:ty) => {
        const API_VERSION: &'static str = <$api as k8s_openapi::Resource>::API_VERSION;
        const GROUP: &'static str = <$api as k8s_openapi::Resource>::GROUP;
        const KIND: &'static str = <$api as k8s_openapi::Resource>::KIND;
        const VERSION: &'static str = <$api as k8s_openapi::Resource>::VERSION;
        const URL_PATH_SEGMENT: &'static str = <$api as k8s_openapi::Resource>::URL_PATH_SEGMENT;
        type Scope = <$api as k8s_openapi::Resource>::Scope;
    };
}
pub(in crate::source) use resource_of;

/// Implements [`Followed`] and its supertraits for a type.
macro_rules! followed {
    ($type:ident, $api:ty, $resource:ident, $event:ident, $convert:ident($($by:tt)?) =>
     $($special:tt)*) => {
        impl k8s_openapi::Resource for $type {
            resource_of!($api);
        }

        impl Metadata for $type {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Followed for $type {
            const RESOURCE: Resource = Resource::$resource;

            fn convert(self, converter: &mut Converter) -> (Event, Vec<Problem>) {
                let (change, problems) = converter.$convert($($by)? self);
                (Event::$event(change), problems)
            }

            $($special)*
        }
    };
}

followed! { Service, api::core::v1::Service, Services, Service, service(&) => }
followed! { Node, api::core::v1::Node, Nodes, Node, node(&) => }
followed! {
    ServiceCidr, api::networking::v1::ServiceCIDR, ServiceCidrs, ServiceCidr, service_cidr(&) =>
}
followed! {
    EndpointSlice, api::discovery::v1::EndpointSlice, EndpointSlices, EndpointSlice,
    endpoint_slice() =>

    fn deserialize_carefully<'de, D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::deserialize_with_path(input)
    }

    fn object_name(&self) -> ObjectName {
        self.name()
    }

    fn set_namespace(&mut self, namespace: &str) {
        self.move_to(namespace);
    }
}
