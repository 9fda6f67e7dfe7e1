//! `ObjectMeta` with the fields that routing needs, under the names of the API.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error};

use super::text::Text;

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectMeta {
    /// Name within the namespace.
    pub name: Option<String>,
    /// Namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// Version that the API server gives to each change.
    pub resource_version: Option<String>,
    /// Time at which the object was created.
    pub creation_timestamp: Option<Time>,
    /// Time from which the object is being deleted.
    pub deletion_timestamp: Option<Time>,
    /// Labels that routing needs.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations that routing needs.
    pub annotations: Option<BTreeMap<String, String>>,
}

/// A time of the API, as in RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Text::deserialize(input)?.parse().map(Self).map_err(D::Error::custom)
    }
}
