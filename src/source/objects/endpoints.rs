//! The endpoints of a slice: read by serde from anything, or quickly from a text of JSON.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::address::parse_ip;
use super::metadata::{Object, null_is_absent, object};
use super::shape::read_list;
use super::text::{Expected, Span, Text, Texts};

/// One entry of `endpoints`.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) address: FirstAddress,
    pub(super) conditions: EndpointConditions,
    pub(super) node_name: Span,
    pub(super) for_zones: Span,
    pub(super) for_nodes: Span,
}

impl Endpoint {
    /// An endpoint of which nothing else is said.
    pub(super) fn new(conditions: EndpointConditions) -> Self {
        let (address, none) = (FirstAddress::Missing, Span::default());
        Self { address, conditions, node_name: none, for_zones: none, for_nodes: none }
    }
}

/// `addresses` of an endpoint, of which the first counts; others have no meaning.
#[derive(Clone, Debug)]
pub(super) enum FirstAddress {
    /// The list is empty.
    Missing,
    /// It is an IP address.
    Ip(IpAddr),
    /// It is something else.
    Other(String),
}

/// `conditions` of an endpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointConditions {
    /// True if absent.
    pub(super) ready: Option<bool>,
    /// True if absent.
    pub(super) serving: Option<bool>,
    /// False if absent.
    pub(super) terminating: Option<bool>,
}

/// The fields of an endpoint, with texts that are still those of the JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EndpointFields<'a> {
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) addresses: FirstText<'a>,
    #[serde(deserialize_with = "object")]
    pub(super) conditions: EndpointConditions,
    #[serde(borrow)]
    pub(super) node_name: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "object")]
    pub(super) hints: HintFields<'a>,
}

/// The first of a list of texts.
#[derive(Debug, Default)]
pub(super) struct FirstText<'a>(pub(super) Option<Text<'a>>);

/// The fields of `hints`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HintFields<'a> {
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) for_zones: Hints<'a>,
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) for_nodes: Hints<'a>,
}

pub(super) type Hints<'a> = SmallVec<[Object<Hint<'a>>; 2]>;

/// One zone or node of a hint.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Hint<'a> {
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) name: Text<'a>,
}

/// Endpoints as they are read one by one, and their texts.
#[derive(Default)]
pub(super) struct Endpoints {
    pub(super) list: Vec<Endpoint>,
    pub(super) texts: Texts,
}

impl Endpoints {
    fn with_room() -> Self {
        let list = Vec::with_capacity(FIRST_ENDPOINTS);
        Self { list, texts: Texts::with_capacity(FIRST_TEXTS) }
    }

    pub(super) fn push(&mut self, fields: EndpointFields<'_>) {
        let EndpointFields { addresses, conditions, node_name, hints } = fields;
        self.list.push(Endpoint {
            address: addresses.0.map_or(FirstAddress::Missing, |text| FirstAddress::new(&text)),
            conditions,
            node_name: self.texts.add(node_name.as_deref().unwrap_or_default()),
            for_zones: self.texts.add_list(hints.for_zones.iter().map(|hint| &*hint.0.name)),
            for_nodes: self.texts.add_list(hints.for_nodes.iter().map(|hint| &*hint.0.name)),
        });
    }
}

impl<'de> Deserialize<'de> for Endpoints {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(EndpointsVisitor)
    }
}

struct EndpointsVisitor;

impl<'de> Visitor<'de> for EndpointsVisitor {
    type Value = Endpoints;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Self::Value, A::Error> {
        let mut endpoints = Endpoints::with_room();
        while let Some(Object(fields)) = input.next_element()? {
            endpoints.push(fields);
        }
        Ok(endpoints)
    }
}

/// Endpoints that were read quickly if that was possible.
#[derive(Default)]
pub(super) struct QuickEndpoints(Endpoints);

impl From<QuickEndpoints> for Endpoints {
    fn from(quick: QuickEndpoints) -> Self {
        quick.0
    }
}

impl<'de> Deserialize<'de> for QuickEndpoints {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_newtype_struct(RAW_VALUE, QuickVisitor).map(Self)
    }
}

/// By this name serde_json knows [`RawValue`](serde_json::value::RawValue), and passes on a value as its text after it has
/// checked that it is one. Others than serde_json's readers of text pass on the value itself, and
/// so would serde_json if it knew another name.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

struct QuickVisitor;

impl<'de> Visitor<'de> for QuickVisitor {
    type Value = Endpoints;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        EndpointsVisitor.expecting(f)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, input: D) -> Result<Endpoints, D::Error> {
        Endpoints::deserialize(input)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Endpoints, A::Error> {
        map.next_key::<IgnoredAny>()?;
        let text: Text<'_> = map.next_value()?;
        let mut endpoints = Endpoints::with_room();
        match read_list(&text, &mut endpoints) {
            Some(()) => Ok(endpoints),
            // Only serde has words for what is wrong.
            None => serde_json::from_str(&text).map_err(A::Error::custom),
        }
    }
}

/// Endpoints of a small slice: for most, the list need not grow.
const FIRST_ENDPOINTS: usize = 8;

/// Bytes for the texts of so many endpoints.
const FIRST_TEXTS: usize = 512;

impl FirstAddress {
    pub(super) fn new(text: &str) -> Self {
        parse_ip(text).map_or_else(|| Self::Other(text.to_owned()), Self::Ip)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for FirstText<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(FirstVisitor)
    }
}

struct FirstVisitor;

impl<'de> Visitor<'de> for FirstVisitor {
    type Value = FirstText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of addresses")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let first = list.next_element_seed(Expected("an address as a string"))?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FirstText(first))
    }
}
