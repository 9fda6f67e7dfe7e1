//! An object as it is read unless the server is known to send some of the wrong shape.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as KubeResource;
use serde::de::{Deserialize, Deserializer};

use super::resource::{Followed, resource_of};

/// An object that was read the quick way, which has fewer words for what is wrong.
#[derive(Clone, Debug)]
pub(super) struct Quick<T>(pub(super) T);

impl<'de, T: Followed> Deserialize<'de> for Quick<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        T::read_quickly(input).map(Self)
    }
}

impl<T: Followed> KubeResource for Quick<T> {
    resource_of!(T);

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
