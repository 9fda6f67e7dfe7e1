//! An object that was sent, so that a wrong shape affects only this object.

use std::num::NonZeroU64;

use engine::model::{Event, ObjectName, Problem, ProblemKind};
use serde_json::Value;

use crate::source::objects::{self, Converter, Followed, full_name};

/// An object, or the reason why it cannot be read.
#[derive(Clone, Debug)]
pub(super) enum Parsed<T> {
    /// A readable object.
    Read(T),
    /// An object with a name and a wrong shape.
    Unreadable { name: ObjectName, version: Option<Box<str>>, field: String, message: String },
}

impl<T: Followed> Parsed<T> {
    /// Reads an object in JSON.
    ///
    /// # Errors
    /// It has a wrong shape and no name.
    pub(super) fn of(value: &Value) -> Result<Self, &'static str> {
        match objects::read(value) {
            Ok(object) => Ok(Self::Read(object)),
            Err((field, message)) => {
                let text = |field: &str| value["metadata"][field].as_str();
                let name = text("name").ok_or("no metadata")?;
                let name = full_name(text("namespace").unwrap_or_default(), name);
                let version = text("resourceVersion").map(Box::from);
                Ok(Self::Unreadable { name, version, field, message })
            }
        }
    }

    pub(super) fn name(&self) -> ObjectName {
        match self {
            Self::Read(object) => object.name(),
            Self::Unreadable { name, .. } => name.clone(),
        }
    }

    /// Returns `metadata.resourceVersion`, which protobuf writes even if it is empty.
    pub(super) fn version_text(&self) -> Option<&str> {
        let version = match self {
            Self::Read(object) => object.version(),
            Self::Unreadable { version, .. } => version.as_deref().unwrap_or_default(),
        };
        Some(version).filter(|version| !version.is_empty())
    }

    /// Returns `metadata.resourceVersion`, if it is a number.
    pub(super) fn version(&self) -> Option<NonZeroU64> {
        self.version_text()?.parse().ok()
    }

    /// Returns the time of the creation in seconds since 1970, 0 if absent.
    pub(super) fn created(&self) -> i64 {
        match self {
            Self::Read(object) => object.created(),
            Self::Unreadable { .. } => 0,
        }
    }

    /// Returns the event of the object, invalid if it cannot be read, and its problems.
    pub(super) fn convert(self, converter: &mut Converter) -> (Event, Vec<Problem>) {
        match self {
            Self::Read(object) => object.convert(converter),
            Self::Unreadable { name, field, message, .. } => {
                let object = T::object(name);
                let kind = ProblemKind::Invalid;
                (converter.invalid(object.clone()), vec![Problem { kind, object, field, message }])
            }
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
        let object = Parsed::<Service>::of(&text.parse().unwrap()).unwrap();
        assert_eq!(object.name().as_str(), "default/web");
        assert_eq!(object.version_text(), Some("7"));
        let Parsed::Unreadable { field, .. } = &object else { panic!("the object was read") };
        assert_eq!(field, "spec.ports[0].port");
    }

    #[test]
    fn an_object_of_the_wrong_shape_without_a_name_is_an_error() {
        for text in [r#"{"spec":{"ports":[{"port":"eighty"}]}}"#, "[1]"] {
            assert!(Parsed::<Service>::of(&text.parse().unwrap()).is_err(), "{text}");
        }
        assert!(Parsed::<Service>::of(&Value::Object(Default::default())).is_ok());
    }
}
