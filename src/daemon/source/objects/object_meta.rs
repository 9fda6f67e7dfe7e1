//! `ObjectMeta` with the fields that routing needs, under the names of the API.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::metadata::{KeptTexts, null_is_absent};
use super::text::Text;

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
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
    #[serde(deserialize_with = "null_is_absent")]
    pub labels: KeptTexts<String>,
    /// Annotations that routing needs.
    #[serde(deserialize_with = "null_is_absent")]
    pub annotations: KeptTexts<String>,
}

/// A time of the API, as in RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Text::deserialize(input)?.parse().map(Self).map_err(D::Error::custom)
    }
}
