//! An object parsed in two steps, so that a wrong shape affects only this object.
//!
//! A list, or a line of a watch, is normally parsed in one step, which is fast but fails as a
//! whole. After such a failure the resource is read again as [`Careful`], which keeps the name of
//! an unreadable object. It builds a tree of values for each object, so it is not the default.

use std::num::NonZeroU64;

use engine::model::{Event, ObjectName, Problem, ProblemKind};
use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::Value;

use super::resources::{Watched, resource_of};
use crate::source::objects::{self, Converter, Followed, object_name};

/// An object, or the reason why it cannot be read.
#[derive(Clone, Debug)]
pub(super) enum Careful<T> {
    /// A readable object. In a box, because it passes several streams by value.
    Read(Box<T>),
    /// An object with a name and a wrong shape.
    Unreadable { metadata: Box<ObjectMeta>, field: String, message: String },
}

impl<T> Careful<T> {
    /// Returns a readable object.
    pub(super) fn read(object: T) -> Self {
        Self::Read(Box::new(object))
    }
}

impl<T: Watched> Careful<T> {
    pub(super) fn name(&self) -> ObjectName {
        match self {
            Self::Read(object) => object.object_name(),
            Self::Unreadable { metadata, .. } => object_name(metadata),
        }
    }

    /// Returns `metadata.resourceVersion`, which protobuf writes even if it is empty.
    pub(super) fn version_text(&self) -> Option<&str> {
        self.metadata().resource_version.as_deref().filter(|version| !version.is_empty())
    }

    /// Returns `metadata.resourceVersion`, if it is a number.
    pub(super) fn version(&self) -> Option<NonZeroU64> {
        self.version_text()?.parse().ok()
    }

    /// Returns the event of the object, invalid if it cannot be read, and its problems.
    pub(super) fn convert(self, converter: &mut Converter) -> (Event, Vec<Problem>) {
        match self {
            Self::Read(object) => (*object).convert(converter),
            Self::Unreadable { metadata, field, message } => {
                let object = T::object(object_name(&metadata));
                let kind = ProblemKind::Invalid;
                (converter.invalid(object.clone()), vec![Problem { kind, object, field, message }])
            }
        }
    }
}

impl<'de, T: Followed> Deserialize<'de> for Careful<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(input)?;
        let metadata = plain_metadata(&value).ok_or_else(|| D::Error::custom("no metadata"))?;
        let metadata = Box::new(metadata);
        Ok(objects::read(&value).map_or_else(
            |(field, message)| Self::Unreadable { metadata, field, message },
            Self::read,
        ))
    }
}

/// Returns name, namespace and version, whatever else the metadata contains.
fn plain_metadata(object: &Value) -> Option<ObjectMeta> {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    Some(ObjectMeta {
        name: Some(text("name")?),
        namespace: text("namespace"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    })
}

impl<T: Watched> k8s_openapi::Resource for Careful<T> {
    resource_of!(T);
}

impl<T: Watched> Metadata for Careful<T> {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Read(object) => object.metadata(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(object) => object.metadata_mut(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::objects::Service;

    #[test]
    fn an_object_of_the_wrong_shape_keeps_its_name_and_the_wrong_field() {
        let text = r#"{"metadata":{"name":"web","namespace":"default","resourceVersion":"7"},
                       "spec":{"ports":[{"port":"eighty"}]}}"#;
        let object: Careful<Service> = serde_json::from_str(text).unwrap();
        assert_eq!(object.name().as_str(), "default/web");
        assert_eq!(object.metadata().resource_version.as_deref(), Some("7"));
        let Careful::Unreadable { field, .. } = &object else { panic!("the object was read") };
        assert_eq!(field, "spec.ports[0].port");
    }

    #[test]
    fn an_object_without_a_name_is_an_error() {
        assert!(serde_json::from_str::<Careful<Service>>("{}").is_err());
        assert!(serde_json::from_str::<Careful<Service>>("[1]").is_err());
    }
}
