//! Object metadata, parsed without its large unused parts.
//!
//! The parser skips `managedFields`, owner references, other labels and annotations: they are most
//! of an object's bytes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::SystemTime;

use engine::model::ObjectName;
use engine::routing::served_services::SERVICE_PROXY_NAME;
use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::text::Text;

/// Label with the service of an EndpointSlice.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label whose presence marks the EndpointSlices of a headless Service.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Label with the zone of a Node.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// Annotation with the time of the pod or Service change that caused the last change of an
/// EndpointSlice.
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Annotation with the scheduler of a Service.
pub(super) const SCHEDULER: &str = "deltaproxy.io/scheduler";

/// Annotation with the weights of the endpoints of a Service, by their names.
pub(super) const WEIGHTS: &str = "deltaproxy.io/weights";
/// Annotation with the forwarding of a Service.
pub(super) const FORWARDING: &str = "deltaproxy.io/forwarding";
/// Cilium's annotation for the same.
pub(super) const CILIUM_FORWARDING: &str = "service.cilium.io/forwarding-mode";
/// Annotation with the scope of session affinity: each port of a Service, or all.
pub(super) const AFFINITY_SCOPE: &str = "deltaproxy.io/affinity-scope";
/// Annotation with the port ranges of a Service.
pub(super) const PORT_RANGES: &str = "deltaproxy.io/port-ranges";
/// Annotation with what becomes of connections of a Service whose endpoints are gone.
pub(super) const ENDED_CONNECTIONS: &str = "deltaproxy.io/ended-connections";
/// Annotation with the weight of all endpoints of an EndpointSlice.
pub(super) const WEIGHT: &str = "deltaproxy.io/weight";
/// Label whose presence makes the parser keep the names of endpoints. Kubernetes copies labels of a
/// Service to its EndpointSlices, but not annotations.
pub(super) const WEIGHTED: &str = "deltaproxy.io/weighted";

/// Keys of the labels and annotations that are kept.
const KEPT: [&str; 14] = [
    SERVICE_NAME,
    SERVICE_PROXY_NAME,
    HEADLESS,
    ZONE,
    WEIGHTED,
    SCHEDULER,
    WEIGHTS,
    FORWARDING,
    CILIUM_FORWARDING,
    AFFINITY_SCOPE,
    PORT_RANGES,
    ENDED_CONNECTIONS,
    TRIGGERED,
    WEIGHT,
];

/// Returns the model's name of an object: `namespace/name`, or `name` without a namespace.
pub fn object_name(metadata: &ObjectMeta) -> ObjectName {
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    full_name(namespace.unwrap_or_default(), name.unwrap_or_default())
}

/// Returns the model's name of an object; an empty namespace means a cluster-scoped object.
pub(in crate::source) fn full_name(namespace: &str, name: &str) -> ObjectName {
    match namespace {
        "" => ObjectName::cluster_scoped(name),
        namespace => ObjectName::namespaced(namespace, name),
    }
}

/// Retained metadata of an EndpointSlice, borrowed from the input.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SliceMetadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) resource_version: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) labels: KeptTexts<Text<'a>>,
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) annotations: KeptTexts<Text<'a>>,
}

impl SliceMetadata<'_> {
    /// Returns the time of annotation [`TRIGGERED`]; `None` if it is invalid.
    pub(super) fn triggered(&self) -> Option<SystemTime> {
        self.annotations.get(TRIGGERED)?.parse::<Timestamp>().ok().map(SystemTime::from)
    }
}

/// Returns the creation time in seconds since 1970, 0 if absent.
pub(super) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// Deserializes null as an absent field, like the API server; for `deserialize_with`.
pub(super) fn null_is_absent<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

/// Deserializes only an object, null as an absent one; for `deserialize_with`.
pub(super) fn object<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<Object<T>>::deserialize(input)?.map(|object| object.0).unwrap_or_default())
}

/// Deserializes only a list of objects, null as an absent one; for `deserialize_with`.
pub(super) fn objects<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<Vec<Object<T>>>::deserialize(input)?.unwrap_or_default();
    Ok(list.into_iter().map(|object| object.0).collect())
}

/// A `T` from an object: serde's derived structs also accept lists, by position.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
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

/// Values of the labels or annotations in [`KEPT`], in its order; others are never allocated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptTexts<T>([Option<T>; KEPT.len()]);

impl<T: Deref<Target = str>> KeptTexts<T> {
    /// Stores a value if it is kept.
    #[cfg(feature = "api-server")]
    pub(super) fn keep<V: Into<T>>(&mut self, key: &str, value: V) {
        if let Some(place) = KEPT.iter().position(|kept| *kept == key) {
            self.0[place] = Some(value.into());
        }
    }

    /// Returns a kept value.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let mut kept = KEPT.iter().zip(&self.0);
        kept.find(|(kept, _)| **kept == key)?.1.as_deref()
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for KeptTexts<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(KeptVisitor(PhantomData))
    }
}

struct KeptVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for KeptVisitor<T> {
    type Value = KeptTexts<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = KeptTexts::default();
        while let Some(key) = map.next_key::<Text<'_>>()? {
            match KEPT.iter().position(|kept| **kept == *key) {
                Some(i) => values.0[i] = Some(map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(values)
    }
}
