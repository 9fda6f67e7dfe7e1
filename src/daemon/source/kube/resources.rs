//! Names of the watched resources in the API, for the types of [`objects`](crate::source::objects).

use engine::model::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, api};

use crate::source::objects::{EndpointSlice, Followed, Node, Service, ServiceCidr, object_name};

/// An object of a resource that can be watched.
pub(super) trait Watched: Followed + Metadata<Ty = ObjectMeta> {
    /// Returns the object's name, which the metadata may lack.
    fn object_name(&self) -> ObjectName {
        object_name(self.metadata())
    }
}

/// Gives a type the names of `$api`.
macro_rules! named_as {
    ($type:ident, $api:ty) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = <$api as k8s_openapi::Resource>::API_VERSION;
            const GROUP: &'static str = <$api as k8s_openapi::Resource>::GROUP;
            const KIND: &'static str = <$api as k8s_openapi::Resource>::KIND;
            const VERSION: &'static str = <$api as k8s_openapi::Resource>::VERSION;
            const URL_PATH_SEGMENT: &'static str =
                <$api as k8s_openapi::Resource>::URL_PATH_SEGMENT;
            type Scope = <$api as k8s_openapi::Resource>::Scope;
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
    };
}

named_as! { Service, api::core::v1::Service }
named_as! { Node, api::core::v1::Node }
named_as! { ServiceCidr, api::networking::v1::ServiceCIDR }
named_as! { EndpointSlice, api::discovery::v1::EndpointSlice }

impl Watched for Service {}
impl Watched for Node {}
impl Watched for ServiceCidr {}

impl Watched for EndpointSlice {
    fn object_name(&self) -> ObjectName {
        self.name()
    }
}
