//! The endpoints of a slice, with their texts in one string.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::address::parse_ip;
use super::metadata::{Object, null_is_absent, object};
use super::text::{Span, Text, Texts};

/// One entry of `endpoints`.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoint {
    pub(super) address: FirstAddress,
    pub(super) conditions: EndpointConditions,
    pub(super) node_name: Span,
    pub(super) for_zones: Span,
    pub(super) for_nodes: Span,
    /// Only weights depend on it.
    pub(super) zone: Span,
    /// Name of the pod. Only weights depend on it.
    pub(super) pod: Span,
}

/// First of the `addresses` of an endpoint; the others have no meaning.
#[derive(Clone, Debug, Default)]
pub(super) enum FirstAddress {
    /// The list is empty.
    #[default]
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
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EndpointFields<'a> {
    #[serde(borrow, deserialize_with = "null_is_absent")]
    addresses: SmallVec<[Text<'a>; 1]>,
    #[serde(deserialize_with = "object")]
    conditions: EndpointConditions,
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "object")]
    hints: HintFields<'a>,
    #[serde(borrow)]
    zone: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "object")]
    target_ref: TargetFields<'a>,
}

/// The fields of `targetRef`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TargetFields<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
}

/// The fields of `hints`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HintFields<'a> {
    #[serde(borrow, deserialize_with = "null_is_absent")]
    for_zones: Hints<'a>,
    #[serde(borrow, deserialize_with = "null_is_absent")]
    for_nodes: Hints<'a>,
}

type Hints<'a> = SmallVec<[Object<Hint<'a>>; 2]>;

/// One zone or node of a hint.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Hint<'a> {
    #[serde(borrow, deserialize_with = "null_is_absent")]
    name: Text<'a>,
}

/// Parsed endpoints and their texts.
#[derive(Default)]
pub(super) struct Endpoints {
    pub(super) list: Vec<Endpoint>,
    pub(super) texts: Texts,
}

impl Endpoints {
    pub(super) fn with_room() -> Self {
        let list = Vec::with_capacity(FIRST_ENDPOINTS);
        Self { list, texts: Texts::with_capacity(FIRST_TEXTS) }
    }

    /// Appends an endpoint with all its names: the labels of the slice may not be parsed yet.
    fn push(&mut self, fields: EndpointFields<'_>) {
        let EndpointFields { addresses, conditions, node_name, hints, zone, target_ref } = fields;
        let Self { list, texts } = self;
        let mut add = |text: Option<Text<'_>>| texts.add(text.as_deref().unwrap_or_default());
        let (zone, pod, node_name) = (add(zone), add(target_ref.name), add(node_name));
        let mut add_list = |hints: Hints<'_>| {
            let names = hints.iter().map(|Object(hint)| &hint.name);
            names.fold(Span::default(), |list, name| texts.extend_list(list, name))
        };
        list.push(Endpoint {
            address: addresses
                .first()
                .map_or(FirstAddress::Missing, |text| FirstAddress::new(text)),
            conditions,
            node_name,
            for_zones: add_list(hints.for_zones),
            for_nodes: add_list(hints.for_nodes),
            zone,
            pod,
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

/// Initial capacity for endpoints: enough for most slices.
const FIRST_ENDPOINTS: usize = 8;

/// Initial capacity for their texts, in bytes.
const FIRST_TEXTS: usize = 512;

impl FirstAddress {
    pub(super) fn new(text: &str) -> Self {
        parse_ip(text).map_or_else(|| Self::Other(text.to_owned()), Self::Ip)
    }
}
