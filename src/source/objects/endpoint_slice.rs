//! discovery.k8s.io/v1 EndpointSlice.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::address::parse_ip;
use super::converter::{Converter, Findings, MAX_LABEL, family};
use super::metadata::{HEADLESS, SERVICE_NAME, label, null_is_absent, object, objects, slim};
use crate::model::{self, Conditions, ObjectName, Zones};

/// An EndpointSlice. Fields have the API's names and meanings; an absent string is empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// Name, namespace, version and the labels that matter.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// IPv4, IPv6 or FQDN.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub address_type: String,
    /// Endpoints.
    #[serde(default, deserialize_with = "objects")]
    pub endpoints: Vec<Endpoint>,
    /// Ports of all of them.
    #[serde(default, deserialize_with = "objects")]
    pub ports: Vec<EndpointPort>,
}

/// One entry of `endpoints`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// The first address; others have no meaning.
    #[serde(deserialize_with = "null_is_absent")]
    pub addresses: FirstAddress,
    /// What it can be used for.
    #[serde(deserialize_with = "object")]
    pub conditions: EndpointConditions,
    /// The node it is on.
    pub node_name: Option<String>,
    /// Who should prefer it.
    #[serde(deserialize_with = "object")]
    pub hints: EndpointHints,
}

/// `addresses` of an endpoint, of which the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FirstAddress {
    /// The list is empty.
    #[default]
    Missing,
    /// It is an IP address.
    Ip(IpAddr),
    /// It is something else.
    Other(String),
}

/// `conditions` of an endpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// True if absent.
    pub ready: Option<bool>,
    /// True if absent.
    pub serving: Option<bool>,
    /// False if absent.
    pub terminating: Option<bool>,
}

/// `hints` of an endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// Zones that should prefer it.
    #[serde(deserialize_with = "objects")]
    pub for_zones: Vec<Hint>,
    /// Nodes that should prefer it.
    #[serde(deserialize_with = "objects")]
    pub for_nodes: Vec<Hint>,
}

/// One zone or node of a hint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hint {
    /// Its name.
    #[serde(deserialize_with = "null_is_absent")]
    pub name: String,
}

/// One entry of `ports`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    /// Name of the service's port, empty if unnamed: the API server fills in an absent one so.
    #[serde(deserialize_with = "null_is_absent")]
    pub name: String,
    /// TCP if absent.
    pub protocol: Option<String>,
    /// Absent or 0: this port is not routed.
    pub port: Option<i64>,
}

/// The model of a slice; `None` if it is not routed.
pub(super) fn convert(
    object: &EndpointSlice,
    converter: &mut Converter,
    findings: &mut Findings,
) -> Option<model::EndpointSlice> {
    if label(&object.metadata, HEADLESS).is_some() || object.address_type == "FQDN" {
        return None;
    }
    if !matches!(object.address_type.as_str(), "IPv4" | "IPv6") {
        let message = format!("\"{}\" is not IPv4, IPv6 or FQDN", object.address_type);
        findings.refuse("addressType", message);
        return None;
    }
    let Some(service) = label(&object.metadata, SERVICE_NAME).filter(|name| !name.is_empty())
    else {
        let message = format!("label {SERVICE_NAME} is missing: it belongs to no service");
        findings.leave_out("metadata.labels", message);
        return None;
    };
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    Some(model::EndpointSlice {
        name: findings.name(),
        service: ObjectName::namespaced(namespace, service),
        ports: ports(object, converter, findings),
        endpoints: endpoints(object, converter, findings),
    })
}

fn ports(
    object: &EndpointSlice,
    converter: &mut Converter,
    findings: &mut Findings,
) -> Vec<model::EndpointPort> {
    let mut ports = Vec::with_capacity(object.ports.len());
    for (i, entry) in object.ports.iter().enumerate() {
        let Some(number) = entry.port.filter(|number| *number != 0) else { continue };
        let protocol =
            findings.protocol(format_args!("ports[{i}].protocol"), entry.protocol.as_deref());
        let port = findings.port(format_args!("ports[{i}].port"), number);
        findings.check_name(format_args!("ports[{i}].name"), &entry.name, MAX_LABEL);
        if let (Some(protocol), Some(port)) = (protocol, port) {
            ports.push(model::EndpointPort { name: converter.text(&entry.name), protocol, port });
        }
    }
    ports
}

fn endpoints(
    object: &EndpointSlice,
    converter: &mut Converter,
    findings: &mut Findings,
) -> Vec<model::Endpoint> {
    let mut endpoints = Vec::with_capacity(object.endpoints.len());
    for (i, endpoint) in object.endpoints.iter().enumerate() {
        match usable_address(&endpoint.addresses, &object.address_type) {
            Ok(address) => endpoints.push(model::Endpoint {
                address,
                conditions: conditions(endpoint, converter),
                zones: zones(endpoint, converter),
            }),
            Err((field, message)) => {
                findings.leave_out(format_args!("endpoints[{i}].{field}"), message);
            }
        }
    }
    endpoints
}

/// The address, or the field that is wrong and why.
fn usable_address(
    first: &FirstAddress,
    address_type: &str,
) -> Result<IpAddr, (&'static str, String)> {
    match first {
        FirstAddress::Ip(address) if family(*address) == address_type => Ok(*address),
        FirstAddress::Ip(address) => {
            Err(("addresses[0]", format!("{address} is not of addressType {address_type}")))
        }
        FirstAddress::Other(text) => {
            Err(("addresses[0]", format!("\"{text}\" is not an IP address")))
        }
        FirstAddress::Missing => Err(("addresses", "is empty: expected an address".into())),
    }
}

fn conditions(endpoint: &Endpoint, converter: &Converter) -> Conditions {
    let for_nodes = &endpoint.hints.for_nodes;
    Conditions {
        ready: endpoint.conditions.ready.unwrap_or(true),
        serving: endpoint.conditions.serving.unwrap_or(true),
        terminating: endpoint.conditions.terminating.unwrap_or(false),
        local: endpoint.node_name.as_deref().is_some_and(|name| converter.is_this_node(name)),
        has_node_hints: !for_nodes.is_empty(),
        hinted_for_node: for_nodes.iter().any(|hint| converter.is_this_node(&hint.name)),
    }
}

fn zones(endpoint: &Endpoint, converter: &mut Converter) -> Option<Arc<Zones>> {
    let for_zones = &endpoint.hints.for_zones;
    if for_zones.is_empty() {
        return None;
    }
    let names: Vec<&str> = for_zones.iter().map(|hint| hint.name.as_str()).collect();
    Some(converter.zones(&names))
}

impl<'de> Deserialize<'de> for FirstAddress {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_seq(AddressesVisitor)
    }
}

/// Reads addresses without keeping their text: there are a million of them.
struct AddressesVisitor;

impl<'de> Visitor<'de> for AddressesVisitor {
    type Value = FirstAddress;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of addresses")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Some(AddressText(first)) = list.next_element()? else {
            return Ok(FirstAddress::Missing);
        };
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}

struct AddressText(FirstAddress);

impl<'de> Deserialize<'de> for AddressText {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_str(AddressVisitor)
    }
}

struct AddressVisitor;

impl Visitor<'_> for AddressVisitor {
    type Value = AddressText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address as a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let other = || FirstAddress::Other(text.to_owned());
        Ok(AddressText(parse_ip(text).map_or_else(other, FirstAddress::Ip)))
    }
}
