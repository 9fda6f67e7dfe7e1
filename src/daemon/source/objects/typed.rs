//! The kind of an answer, which must be the requested one.
//!
//! A cache or gateway that maps a path wrongly answers with another list, which may have the form of
//! an empty one, or with objects that have the names of others.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};

use super::text::Text;

/// Longest text of the answer in an error.
const SHOWN: usize = 63;

/// An object has another kind than the requested one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an object has the kind {kind:?} of {version:?}: expected {expected}")]
pub(in crate::source) struct OtherKind {
    version: String,
    kind: String,
    expected: String,
}

/// Checks version and kind of an object.
pub(in crate::source) fn check_kind(
    found: (&str, &str),
    expected: (&str, &str),
) -> Result<(), OtherKind> {
    if found == expected {
        return Ok(());
    }
    let (version, kind) = (shown(found.0), shown(found.1));
    Err(OtherKind { version, kind, expected: format!("{} of {}", expected.1, expected.0) })
}

/// Returns the start of a text of the answer.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// A `T` in JSON, with its `apiVersion` and `kind`, which are empty if absent.
#[derive(Debug)]
pub(in crate::source) struct Typed<'a, T> {
    version: Text<'a>,
    kind: Text<'a>,
    object: T,
}

impl<T> Typed<'_, T> {
    /// Returns the object, which has this version and kind.
    pub(in crate::source) fn of(self, expected: (&str, &str)) -> Result<T, OtherKind> {
        check_kind((&self.version, &self.kind), expected)?;
        Ok(self.object)
    }

    /// Returns the object, an item of a list: those of an API server name no kind.
    pub(in crate::source) fn item_of(self, expected: (&str, &str)) -> Result<T, OtherKind> {
        if self.version.is_empty() && self.kind.is_empty() {
            return Ok(self.object);
        }
        self.of(expected)
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Typed<'a, T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_map(TypedVisitor(PhantomData))
    }
}

struct TypedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TypedVisitor<T> {
    type Value = Typed<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let (version, kind) = Default::default();
        let mut rest = Rest { map, version, kind };
        let object = T::deserialize(MapAccessDeserializer::new(&mut rest))?;
        let Rest { version, kind, .. } = rest;
        Ok(Typed { version, kind, object })
    }
}

/// The fields of an object but these two.
struct Rest<'de, A> {
    map: A,
    version: Text<'de>,
    kind: Text<'de>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<Text<'de>>()? {
            let place = match &*key {
                "apiVersion" => &mut self.version,
                "kind" => &mut self.kind,
                _ => return seed.deserialize(Cow::from(key).into_deserializer()).map(Some),
            };
            *place = self.map.next_value::<Option<Text<'de>>>()?.unwrap_or_default();
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
