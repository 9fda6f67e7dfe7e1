//! The endpoints of a slice: parsed by serde from any format, or quickly from JSON text.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::address::parse_ip;
use super::metadata::{Object, null_is_absent, object};
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
    /// Returns an endpoint with these conditions only.
    pub(super) fn new(conditions: EndpointConditions) -> Self {
        let (address, none) = (FirstAddress::Missing, Span::default());
        Self { address, conditions, node_name: none, for_zones: none, for_nodes: none }
    }
}

/// First of the `addresses` of an endpoint; the others have no meaning.
#[derive(Clone, Debug)]
pub(super) enum FirstAddress {
    /// The list is empty.
    Missing,
    /// An IP address.
    Ip(IpAddr),
    /// Other text.
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

/// Fields of an endpoint with texts borrowed from the input.
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
    #[serde(borrow)]
    pub(super) zone: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "object")]
    pub(super) target_ref: TargetFields<'a>,
}

/// The fields of `targetRef`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TargetFields<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}

/// Names of an endpoint that only weights depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names {
    pub(super) zone: Span,
    pub(super) pod: Span,
}

/// The first string of a list.
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

/// Parsed endpoints and their texts.
#[derive(Default)]
pub(super) struct Endpoints {
    pub(super) list: Vec<Endpoint>,
    pub(super) texts: Texts,
    /// Names of each endpoint; empty if not kept.
    pub(super) names: Vec<Names>,
}

/// Names of endpoints to keep, of those that only weights depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptNames {
    None,
    All,
}

impl Endpoints {
    pub(super) fn with_room() -> Self {
        let list = Vec::with_capacity(FIRST_ENDPOINTS);
        Self { list, texts: Texts::with_capacity(FIRST_TEXTS), names: Vec::new() }
    }

    pub(super) fn push(&mut self, fields: EndpointFields<'_>, names: KeptNames) {
        let EndpointFields { addresses, conditions, node_name, hints, zone, target_ref } = fields;
        if names == KeptNames::All {
            let mut add =
                |text: Option<Text<'_>>| self.texts.add(text.as_deref().unwrap_or_default());
            let names = Names { zone: add(zone), pod: add(target_ref.name) };
            self.names.push(names);
        }
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
        // Names are kept for all slices here: their metadata may not be parsed yet.
        while let Some(Object(fields)) = input.next_element()? {
            endpoints.push(fields, KeptNames::All);
        }
        Ok(endpoints)
    }
}

/// Initial capacity for endpoints: enough for most slices.
const FIRST_ENDPOINTS: usize = 8;

/// Initial capacity for their texts, in bytes.
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
