//! discovery.k8s.io/v1 EndpointSlice.
//!
//! A cluster may have a million endpoints, and a change of one arrives with its whole slice. The
//! texts of a slice are therefore stored in one string, and no single endpoint needs an allocation.

use std::net::IpAddr;
use std::time::SystemTime;

use engine::model::{
    self, Change, Conditions, EndpointNames, ObjectName, ObjectRef, Problem, Resource, Weighing,
    Weight,
};
use nft::family::Family;
use serde::Deserialize;
use serde::de::Deserializer;
use smallvec::SmallVec;

use super::address::usable;
use super::annotations::shown;
use super::converter::{Converter, Findings, MAX_LABEL};
use super::endpoints::{Endpoint, Endpoints, FirstAddress};
use super::metadata::{
    HEADLESS, Object, SERVICE_NAME, SliceMetadata, WEIGHT, WEIGHTED, null_is_absent, object,
};
use super::text::{Span, Text, Texts};

/// An EndpointSlice, reduced during parsing.
#[derive(Clone, Debug, Default)]
pub struct EndpointSlice {
    texts: Texts,
    /// `metadata.resourceVersion`.
    #[cfg_attr(not(feature = "api-server"), expect(dead_code, reason = "manifests have none"))]
    version: Span,
    name: Span,
    namespace: Span,
    service: Span,
    is_headless: bool,
    address_type: Span,
    endpoints: Vec<Endpoint>,
    ports: SmallVec<[EndpointPort; 2]>,
    triggered: Option<SystemTime>,
    /// The slice has the label [`WEIGHTED`].
    keeps_names: bool,
    weight: Option<Box<str>>,
}

/// One entry of `ports`.
#[derive(Clone, Copy, Debug)]
struct EndpointPort {
    name: Span,
    protocol: Option<Span>,
    port: Option<i64>,
}

impl EndpointSlice {
    /// Returns namespace and name.
    #[cfg(feature = "api-server")]
    pub(super) fn full_name(&self) -> ObjectName {
        super::metadata::full_name(self.texts.at(self.namespace), self.texts.at(self.name))
    }

    /// Returns `metadata.resourceVersion`, empty if absent.
    #[cfg(feature = "api-server")]
    pub(super) fn version_text(&self) -> &str {
        self.texts.at(self.version)
    }

    /// Replaces the namespace.
    pub(super) fn move_to(&mut self, namespace: &str) {
        self.namespace = self.texts.add(namespace);
    }

    /// Returns the full name of the slice or of another object in its namespace. Same as
    /// `full_name`, but assembled in `texts`, without another allocation.
    fn name_beside(&mut self, name: Span) -> ObjectName {
        if self.namespace.is_empty() {
            ObjectName::written(self.texts.at(name))
        } else {
            let path = self.texts.add_path(self.namespace, name);
            ObjectName::written(self.texts.at(path))
        }
    }

    /// Returns whether an endpoint has a usable address.
    fn is_usable(&self, endpoint: &Endpoint) -> bool {
        usable_address(&endpoint.address, self.texts.at(self.address_type)).is_ok()
    }

    /// Returns empty findings for the slice, after a check of its name.
    pub(super) fn findings(&mut self) -> Findings {
        let name = self.name_beside(self.name);
        let object = ObjectRef { resource: Resource::EndpointSlices, name };
        Findings::named(object, (self.texts.at(self.namespace), self.texts.at(self.name)))
    }
}

impl Converter {
    /// Converts an EndpointSlice; `Gone` for those of headless services and of host names.
    pub fn endpoint_slice(
        &mut self,
        mut object: EndpointSlice,
    ) -> (Change<model::EndpointSlice>, Vec<Problem>) {
        let mut findings = object.findings();
        let found = convert(object, self, &mut findings);
        findings.conclude(found)
    }
}

/// Converts a slice; `None` if it is not routed.
fn convert(
    mut object: EndpointSlice,
    converter: &mut Converter,
    findings: &mut Findings,
) -> Option<model::EndpointSlice> {
    let address_type = object.texts.at(object.address_type);
    if object.is_headless || address_type == "FQDN" {
        return None;
    }
    if !matches!(address_type, "IPv4" | "IPv6") {
        findings.refuse("addressType", format!("\"{address_type}\" is not IPv4, IPv6 or FQDN"));
        return None;
    }
    if object.service.is_empty() {
        let message = format!("label {SERVICE_NAME} is missing: it belongs to no service");
        findings.leave_out("metadata.labels", message);
        return None;
    }
    Some(model::EndpointSlice {
        name: findings.name(),
        service: object.name_beside(object.service),
        ports: ports(&object, converter, findings),
        triggered: object.triggered,
        weighing: weighing(&object, converter, findings),
        endpoints: endpoints(&object, converter, findings),
    })
}

/// Returns the weight, and the kept names of the usable endpoints; `None` if there are none.
fn weighing(
    object: &EndpointSlice,
    converter: &mut Converter,
    findings: &mut Findings,
) -> Option<Box<Weighing>> {
    let EndpointSlice { texts, endpoints, keeps_names, .. } = object;
    let weight = object.weight.as_deref().and_then(|text| match text.trim().parse() {
        Ok(weight) => Some(weight),
        Err(_) => {
            let message = format!("{} is no weight: expected 0 to {}", shown(text), Weight::MAX);
            findings.leave_out(format_args!("metadata.annotations[{WEIGHT}]"), message);
            None
        }
    });
    let mut weighing = Weighing { weight, ..Weighing::default() };
    let usable = endpoints.iter().filter(|it| object.is_usable(it));
    if *keeps_names {
        let names = usable.map(|endpoint| EndpointNames {
            zone: converter.text(texts.at(endpoint.zone)),
            node: converter.text(texts.at(endpoint.node_name)),
            pod: texts.at(endpoint.pod).into(),
        });
        weighing.names = names.collect();
    } else if converter.follows_nodes() {
        let nodes = usable.map(|it| converter.node_name(texts.at(it.node_name)));
        weighing.nodes = nodes.collect();
    }
    (weighing != Weighing::default()).then(|| Box::new(weighing))
}

fn ports(
    object: &EndpointSlice,
    converter: &mut Converter,
    findings: &mut Findings,
) -> SmallVec<[model::EndpointPort; 1]> {
    let mut ports = SmallVec::with_capacity(object.ports.len());
    for (i, entry) in object.ports.iter().enumerate() {
        let Some(number) = entry.port.filter(|number| *number != 0) else { continue };
        let name = object.texts.at(entry.name);
        let protocol = entry.protocol.map(|protocol| object.texts.at(protocol));
        let protocol = findings.protocol(format_args!("ports[{i}].protocol"), protocol);
        let port = findings.port(format_args!("ports[{i}].port"), number);
        findings.check_name(format_args!("ports[{i}].name"), name, MAX_LABEL);
        if let (Some(protocol), Some(port)) = (protocol, port) {
            ports.push(model::EndpointPort { name: converter.text(name), protocol, port });
        }
    }
    ports
}

fn endpoints(
    object: &EndpointSlice,
    converter: &mut Converter,
    findings: &mut Findings,
) -> model::Endpoints {
    let EndpointSlice { texts, address_type, endpoints, .. } = object;
    let address_type = texts.at(*address_type);
    let usable = endpoints.iter().enumerate().filter_map(|(i, endpoint)| {
        match usable_address(&endpoint.address, address_type) {
            Ok(address) => Some(model::Endpoint {
                address,
                conditions: conditions(endpoint, texts, converter),
                zones: (!endpoint.for_zones.is_empty())
                    .then(|| converter.zones(texts.list_at(endpoint.for_zones))),
            }),
            Err((field, message)) => {
                findings.leave_out(format_args!("endpoints[{i}].{field}"), message);
                None
            }
        }
    });
    usable.collect()
}

/// Returns the address, or the wrong field and the reason.
fn usable_address(
    first: &FirstAddress,
    address_type: &str,
) -> Result<IpAddr, (&'static str, String)> {
    match first {
        FirstAddress::Ip(address) if Family::of(*address).name() == address_type => {
            usable(*address).map_err(|message| ("addresses[0]", message))
        }
        FirstAddress::Ip(address) => {
            Err(("addresses[0]", format!("{address} is not of addressType {address_type}")))
        }
        FirstAddress::Other(text) => {
            Err(("addresses[0]", format!("\"{text}\" is not an IP address")))
        }
        FirstAddress::Missing => Err(("addresses", "is empty: expected an address".into())),
    }
}

fn conditions(endpoint: &Endpoint, texts: &Texts, converter: &Converter) -> Conditions {
    let mut for_nodes = texts.list_at(endpoint.for_nodes);
    Conditions {
        ready: endpoint.conditions.ready.unwrap_or(true),
        serving: endpoint.conditions.serving.unwrap_or(true),
        terminating: endpoint.conditions.terminating.unwrap_or(false),
        local: converter.is_this_node(texts.at(endpoint.node_name)),
        has_node_hints: !endpoint.for_nodes.is_empty(),
        hinted_for_node: for_nodes.any(|name| converter.is_this_node(name)),
    }
}

/// Fields of a slice with texts borrowed from the input.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SliceFields<'a> {
    #[serde(borrow, deserialize_with = "object")]
    pub(super) metadata: SliceMetadata<'a>,
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) address_type: Text<'a>,
    #[serde(deserialize_with = "null_is_absent")]
    pub(super) endpoints: Endpoints,
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) ports: SmallVec<[Object<PortFields<'a>>; 2]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PortFields<'a> {
    /// Empty if unnamed, the API server's default for an absent name.
    #[serde(borrow, deserialize_with = "null_is_absent")]
    pub(super) name: Text<'a>,
    /// TCP if absent.
    #[serde(borrow)]
    pub(super) protocol: Option<Text<'a>>,
    /// Absent or 0 if the port is not routed.
    pub(super) port: Option<i64>,
}

impl<'de> Deserialize<'de> for EndpointSlice {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        SliceFields::deserialize(input).map(Self::from)
    }
}

/// Returns whether the names of endpoints are kept: the slice has the label [`WEIGHTED`].
pub(super) fn keeps_names(metadata: &SliceMetadata<'_>) -> bool {
    metadata.labels.get(WEIGHTED).is_some()
}

impl From<SliceFields<'_>> for EndpointSlice {
    fn from(fields: SliceFields<'_>) -> Self {
        let SliceFields { metadata, address_type, endpoints, ports } = fields;
        let triggered = metadata.triggered();
        let Endpoints { list: endpoints, mut texts } = endpoints;
        let keeps_names = keeps_names(&metadata);
        let mut add = |text: Option<&str>| text.map_or(Span::default(), |text| texts.add(text));
        Self {
            name: add(metadata.name.as_deref()),
            namespace: add(metadata.namespace.as_deref()),
            service: add(metadata.labels.get(SERVICE_NAME)),
            is_headless: metadata.labels.get(HEADLESS).is_some(),
            version: add(metadata.resource_version.as_deref()),
            address_type: add(Some(&address_type)),
            endpoints,
            ports: (ports.iter())
                .map(|Object(port)| EndpointPort {
                    name: add(Some(&port.name)),
                    protocol: port.protocol.as_deref().map(|protocol| add(Some(protocol))),
                    port: port.port,
                })
                .collect(),
            triggered,
            weight: metadata.annotations.get(WEIGHT).map(Into::into),
            keeps_names,
            texts,
        }
    }
}
