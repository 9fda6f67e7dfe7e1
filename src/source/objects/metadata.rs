//! Object metadata, read without what is large and unused.
//!
//! `managedFields`, annotations, owner references and foreign labels are skipped while parsing:
//! they are most of an object's bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::text::Text;
use crate::model::ObjectName;

/// Names the service an EndpointSlice belongs to.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Its presence hands a Service to another proxy (KEP-2447).
pub(super) const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Its presence marks the EndpointSlices of a headless Service.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The zone of a Node.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

const KEPT_LABELS: [&str; 4] = [SERVICE_NAME, SERVICE_PROXY_NAME, HEADLESS, ZONE];

/// The model's name of an object: `namespace/name`, or `name` if it has no namespace.
pub fn object_name(metadata: &ObjectMeta) -> ObjectName {
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    full_name(namespace.unwrap_or_default(), name.unwrap_or_default())
}

/// The model's name of an object of a namespace, or of none if that is empty.
pub(super) fn full_name(namespace: &str, name: &str) -> ObjectName {
    match namespace {
        "" => ObjectName::cluster_scoped(name),
        namespace => ObjectName::namespaced(namespace, name),
    }
}

/// What is kept of the metadata of an EndpointSlice, before it is copied.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SliceMetadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    pub(super) resource_version: Option<String>,
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) labels: SliceLabels<'a>,
}

/// The labels of an EndpointSlice that matter.
#[derive(Debug, Default)]
pub(super) struct SliceLabels<'a> {
    /// Label [`SERVICE_NAME`].
    pub(super) service_name: Option<Text<'a>>,
    /// It has the label [`HEADLESS`].
    pub(super) is_headless: bool,
}

/// The value of a label.
pub(super) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Seconds since 1970 of the creation, 0 if it is not said.
pub(super) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// Reads the few fields that are kept; for `deserialize_with`.
pub(super) fn slim<'de, D: Deserializer<'de>>(input: D) -> Result<ObjectMeta, D::Error> {
    let kept: Kept = object(input)?;
    Ok(ObjectMeta {
        name: kept.name,
        namespace: kept.namespace,
        resource_version: kept.resource_version,
        creation_timestamp: kept.creation_timestamp,
        deletion_timestamp: kept.deletion_timestamp,
        labels: kept.labels.and_then(|labels| labels.0),
        ..ObjectMeta::default()
    })
}

/// Reads null like an absent field, as the API server does; for `deserialize_with`.
pub(super) fn null_is_absent<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

/// Reads an object and nothing else, null like an absent one; for `deserialize_with`.
pub(super) fn object<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<Object<T>>::deserialize(input)?.map(|object| object.0).unwrap_or_default())
}

/// Reads a list of objects and nothing else, null like an absent one; for `deserialize_with`.
pub(super) fn objects<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<Vec<Object<T>>>::deserialize(input)?.unwrap_or_default();
    Ok(list.into_iter().map(|object| object.0).collect())
}

/// Reads a list of objects like [`objects`], which is kept in place if it is short.
pub(super) fn few_objects<'de, D, T>(input: D) -> Result<SmallVec<[T; 2]>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Few<T>>::deserialize(input)?.map(|list| list.0).unwrap_or_default())
}

/// A `T` that was an object: serde's derived structs also accept lists, by position.
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

/// A list of objects.
struct Few<T>(SmallVec<[T; 2]>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(FewVisitor(PhantomData))
    }
}

struct FewVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
    type Value = Few<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut few = SmallVec::new();
        while let Some(Object(next)) = list.next_element()? {
            few.push(next);
        }
        Ok(Few(few))
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<KeptLabels>,
}

/// The labels of [`KEPT_LABELS`]; others are never allocated.
struct KeptLabels(Option<BTreeMap<String, String>>);

impl<'de> Deserialize<'de> for KeptLabels {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = KeptLabels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kept: Option<BTreeMap<String, String>> = None;
        while let Some(LabelKey(key)) = map.next_key()? {
            match key {
                Some(key) => {
                    kept.get_or_insert_default().insert(key.to_owned(), map.next_value()?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(KeptLabels(kept))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for SliceLabels<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(SliceLabelsVisitor)
    }
}

struct SliceLabelsVisitor;

impl<'de> Visitor<'de> for SliceLabelsVisitor {
    type Value = SliceLabels<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LabelsVisitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = SliceLabels::default();
        while let Some(LabelKey(key)) = map.next_key()? {
            match key {
                Some(SERVICE_NAME) => labels.service_name = Some(map.next_value()?),
                Some(key) => {
                    map.next_value::<Text<'_>>()?;
                    labels.is_headless |= key == HEADLESS;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(labels)
    }
}

/// A label's key if it is one we keep.
struct LabelKey(Option<&'static str>);

impl<'de> Deserialize<'de> for LabelKey {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = LabelKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label's key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<LabelKey, E> {
        Ok(LabelKey(KEPT_LABELS.into_iter().find(|kept| *kept == key)))
    }
}
