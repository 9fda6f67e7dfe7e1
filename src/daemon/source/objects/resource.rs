//! Watched resources: their names in the API, and the conversion of their objects.

use std::fmt::Debug;

use engine::model::{Change, Event, ObjectName, ObjectRef, Problem, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::converter::Converter;
use super::endpoint_slice::EndpointSlice;
#[cfg(feature = "api-server")]
use super::metadata::created;
use super::metadata::object_name;
use super::node::{Node, ServiceCidr};
#[cfg(feature = "api-server")]
use super::protobuf::{Fields, ReadMessage, WireError};
use super::service::Service;

/// An object of a watched resource.
pub(in crate::source) trait Followed:
    DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
    /// Resource in the model.
    const RESOURCE: Resource;

    /// Returns the event of the object and its problems.
    fn convert(self, converter: &mut Converter) -> (Event, Vec<Problem>);

    /// Reads an object from its protobuf message.
    #[cfg(feature = "api-server")]
    fn from_protobuf(message: Fields<'_>) -> Result<Self, WireError>;

    /// Replaces the namespace; an empty one means none.
    fn set_namespace(&mut self, namespace: &str);

    /// Returns the name; empty if the metadata has none.
    #[cfg(feature = "api-server")]
    fn name(&self) -> ObjectName;

    /// Returns `metadata.resourceVersion`, empty if absent.
    #[cfg(feature = "api-server")]
    fn version(&self) -> &str;

    /// Returns the creation time in seconds since 1970; 0 if absent, and for EndpointSlices.
    #[cfg(feature = "api-server")]
    fn created(&self) -> i64;

    /// Returns the reference to the object of that name.
    fn object(name: ObjectName) -> ObjectRef {
        ObjectRef { resource: Self::RESOURCE, name }
    }
}

/// Parses an object, or returns the wrong field and the reason.
pub(in crate::source) fn read<T: Followed>(value: &Value) -> Result<T, (String, String)> {
    let mut track = serde_path_to_error::Track::new();
    let input = serde_path_to_error::Deserializer::new(value, &mut track);
    T::deserialize(input).map_err(|error| {
        let field = track.path().to_string();
        (if field == "." { String::new() } else { field }, error.to_string())
    })
}

fn of<T>(
    event: fn(Change<T>) -> Event,
    (change, problems): (Change<T>, Vec<Problem>),
) -> (Event, Vec<Problem>) {
    (event(change), problems)
}

/// Implements [`Followed`] for a type.
macro_rules! followed {
    ($type:ident, $resource:ident, |$object:ident, $converter:ident| $convert:expr;
     $($others:tt)*) => {
        impl Followed for $type {
            const RESOURCE: Resource = Resource::$resource;

            #[cfg(feature = "api-server")]
            fn from_protobuf(message: Fields<'_>) -> Result<Self, WireError> {
                ReadMessage::read(message)
            }

            fn convert(self, $converter: &mut Converter) -> (Event, Vec<Problem>) {
                let $object = self;
                $convert
            }

            $($others)*
        }
    };
}

/// Implements what [`Followed`] has from the field `metadata`.
macro_rules! of_metadata {
    () => {
        fn set_namespace(&mut self, namespace: &str) {
            self.metadata.namespace = Some(namespace.to_owned());
        }

        #[cfg(feature = "api-server")]
        fn name(&self) -> ObjectName {
            object_name(&self.metadata)
        }

        #[cfg(feature = "api-server")]
        fn version(&self) -> &str {
            self.metadata.resource_version.as_deref().unwrap_or_default()
        }

        #[cfg(feature = "api-server")]
        fn created(&self) -> i64 {
            created(&self.metadata)
        }
    };
}

followed! { Service, Services, |it, by| of(Event::Service, by.service(&it)); of_metadata! {} }
followed! { Node, Nodes, |it, by| {
    if by.is_peer(&Self::object(object_name(&it.metadata))) {
        of(Event::Peer, by.peer(&it))
    } else {
        of(Event::Node, by.node(&it))
    }
}; of_metadata! {} }
followed! { ServiceCidr, ServiceCidrs, |it, by| of(Event::ServiceCidr, by.service_cidr(&it));
    of_metadata! {}
}
followed! { EndpointSlice, EndpointSlices, |it, by| of(Event::EndpointSlice, by.endpoint_slice(it));
    fn set_namespace(&mut self, namespace: &str) {
        self.move_to(namespace);
    }

    #[cfg(feature = "api-server")]
    fn name(&self) -> ObjectName {
        self.full_name()
    }

    #[cfg(feature = "api-server")]
    fn version(&self) -> &str {
        self.version_text()
    }

    #[cfg(feature = "api-server")]
    fn created(&self) -> i64 {
        0
    }
}
