//! An object as it is read unless the server is known to send some of the wrong shape.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as KubeResource;
use serde::de::{Deserialize, Deserializer};

use super::resource::Followed;

/// An object that was read the quick way, which has fewer words for what is wrong.
#[derive(Clone, Debug)]
pub(super) struct Quick<T>(pub(super) T);

impl<'de, T: Followed> Deserialize<'de> for Quick<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        T::read_quickly(input).map(Self)
    }
}

impl<T: Followed> KubeResource for Quick<T> {
    type DynamicType = ();
    type Scope = T::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        T::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        T::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        T::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        T::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
