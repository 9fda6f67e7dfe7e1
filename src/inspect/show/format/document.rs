//! JSON and YAML output.
//!
//! Both are one document with the same fields, written service by service.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::IpAddr;
use std::num::NonZeroU16;

use engine::model::Target;
use engine::ruleset::{Frontend, Refusal, Unserved};
use nft::Counter;
use serde::Serialize;

use crate::show::connections::Counts;
use crate::show::row::{EndpointRow, Row, Scheduler};
use crate::show::services::Entry;
use crate::show::view::View;

/// A frontend.
#[derive(Debug, Serialize)]
struct FrontendItem<'a> {
    /// `namespace/name`; absent if the tables have none.
    #[serde(skip_serializing_if = "str::is_empty")]
    service: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    port_name: &'a str,
    family: &'static str,
    /// Absent for node ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    /// Absent for port ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// Ports of port ranges, such as `10000-20000`; absent for a single port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    port_ranges: Vec<String>,
    /// Addresses of the node that serve a node port; absent if all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_addresses: Option<&'a BTreeSet<IpAddr>>,
    protocol: String,
    kind: &'static str,
    /// Sources that may use the address, as CIDRs; absent if all may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    source_ranges: Vec<String>,
    /// `null` if the tables are equal with both policies.
    policy: Option<&'static str>,
    /// `random`, `wrr`, `lc`, `mh`, `mh-port`, `affinity`, `refuse` or `drop`.
    scheduler: &'static str,
    /// Choice of an endpoint, also with affinity; absent without endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity_clients: Option<u32>,
    /// Nodes hand packets to each other; absent if not.
    #[serde(skip_serializing_if = "is_false")]
    direct_return: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<ConnectionsItem>,
    /// Absent if the tables have no counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<Counted>,
    /// A count for each reason for which the address may refuse packets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refused>,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    address: IpAddr,
    /// Absent for port ranges: it is that of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// `serving`, `elsewhere`, `draining` or `gone`.
    state: &'static str,
    /// `null` if the endpoint is in no list.
    local: Option<bool>,
    /// Slots in the list for connections from outside.
    slots: u32,
    chance: f64,
    chance_from_pods: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity_clients: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<ConnectionsItem>,
    /// Absent if the tables have no counters of endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<Counted>,
}

/// Connections that the kernel has counted, and the bytes of their first packets.
#[derive(Debug, Serialize)]
struct Counted {
    connections: u64,
    bytes: u64,
}

/// Packets that were rejected or dropped.
#[derive(Debug, Serialize)]
struct Refused {
    reason: &'static str,
    packets: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ConnectionsItem {
    active: u32,
    new: u32,
    ended: u32,
    /// Connections in the flowtable; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    offloaded: Option<u32>,
    /// Connections absent from the last dump.
    #[serde(skip_serializing_if = "Option::is_none")]
    began: Option<u32>,
    /// Age of the oldest connection that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_seconds: Option<u64>,
}

/// A draining endpoint.
#[derive(Debug, Serialize)]
struct Draining<'a> {
    service: &'a str,
    frontend: String,
    endpoint: String,
    connections: u32,
    /// `null` if conntrack stores no timestamps.
    oldest_seconds: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

impl DocumentFormat {
    /// Writes a document as a whole.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write(self, out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
        match self {
            Self::Json => {
                serde_json::to_writer(&mut *out, document)?;
                writeln!(out)
            }
            Self::Yaml => {
                let text = serde_saphyr::to_string(document).map_err(io::Error::other)?;
                out.write_all(text.as_bytes())
            }
        }
    }

    /// Writes a list item by item, below `name`: in JSON a line for each.
    fn write_list(
        self,
        out: &mut dyn Write,
        (view, name): (&View<'_>, &str),
        items: impl Iterator<Item = impl Serialize>,
    ) -> io::Result<()> {
        let (torn, mut items) = (view.services.is_torn(), items.peekable());
        match self {
            Self::Json => {
                write!(out, "{{\"torn\":{torn},\"{name}\":[")?;
                for (n, item) in items.enumerate() {
                    write!(out, "{}", if n == 0 { "\n" } else { ",\n" })?;
                    serde_json::to_writer(&mut *out, &item)?;
                }
                writeln!(out, "\n]}}")
            }
            Self::Yaml if items.peek().is_none() => writeln!(out, "torn: {torn}\n{name}: []"),
            Self::Yaml => {
                writeln!(out, "torn: {torn}\n{name}:")?;
                // A list of one item continues the list under the key above.
                items.try_for_each(|item| self.write(out, &[item]))
            }
        }
    }
}

/// Writes `{"services": [...]}`, an item for each frontend.
///
/// # Errors
/// Errors of `out`.
pub fn services(out: &mut dyn Write, view: &View<'_>, format: DocumentFormat) -> io::Result<()> {
    let items = view.rows().map(|row| FrontendItem::new(view, &row));
    format.write_list(out, (view, "services"), items)
}

/// Writes `{"draining": [...]}`, an item for each draining endpoint.
///
/// # Errors
/// Errors of `out`.
pub fn draining_document(
    out: &mut dyn Write,
    view: &View<'_>,
    format: DocumentFormat,
) -> io::Result<()> {
    let items = view.draining().map(|(entry, target, counts)| Draining {
        service: &entry.label,
        frontend: view.address(&entry.frontend),
        endpoint: entry.endpoint(target),
        connections: counts.live(),
        oldest_seconds: view.age(counts.oldest).map(|age| age.as_secs()),
    });
    format.write_list(out, (view, "draining"), items)
}

impl<'a> FrontendItem<'a> {
    fn new(view: &View<'a>, row: &Row<'a>) -> Self {
        let (service, port_name) = row.entry.name();
        let frontend = &row.entry.frontend;
        let (address, port) = match *frontend {
            Frontend::Address { address, port, .. } => (Some(address), Some(port)),
            Frontend::NodePort { port, .. } => (None, Some(port)),
            Frontend::Ranges { address, .. } => (Some(address), None),
        };
        let family = frontend.family();
        let node_addresses = match frontend {
            Frontend::Address { .. } | Frontend::Ranges { .. } => None,
            Frontend::NodePort { .. } => view.services.node_port_addresses(family),
        };
        let (scheduler, choice, affinity_seconds) = match row.scheduler {
            Scheduler::Chosen(choice) => (choice.name(), Some(choice.name()), None),
            Scheduler::Affinity(choice, seconds) => ("affinity", Some(choice.name()), seconds),
            Scheduler::Unserved(Unserved::Refuse) => ("refuse", None, None),
            Scheduler::Unserved(Unserved::Drop) => ("drop", None, None),
        };
        Self {
            service,
            port_name,
            family: family.name(),
            address,
            port: port.map(NonZeroU16::get),
            port_ranges: row.entry.port_ranges(),
            node_addresses,
            protocol: frontend.protocol().to_string(),
            kind: row.kind.name(),
            source_ranges: row
                .entry
                .source_ranges
                .iter()
                .flatten()
                .map(ToString::to_string)
                .collect(),
            policy: row.policy.map(|policy| policy.name()),
            scheduler,
            choice,
            affinity_seconds,
            affinity_clients: row.clients,
            direct_return: row.entry.is_direct,
            connections: row.connections.as_ref().map(|counts| ConnectionsItem::new(view, counts)),
            counted: row.entry.counted.map(Counted::from),
            refused: row.entry.refused.iter().copied().map(Refused::from).collect(),
            endpoints: row.endpoints.iter().map(|it| Endpoint::new(view, row.entry, it)).collect(),
        }
    }
}

impl Endpoint {
    fn new(view: &View<'_>, entry: &Entry, endpoint: &EndpointRow) -> Self {
        let Target { address, port } = endpoint.target;
        let connections =
            view.connections.map(|_| ConnectionsItem::new(view, &endpoint.connections));
        Self {
            address,
            port: (!entry.keeps_port()).then_some(port.get()),
            state: endpoint.state.name(),
            local: endpoint.is_local,
            slots: endpoint.slots,
            chance: endpoint.share,
            chance_from_pods: endpoint.internal_share,
            affinity_clients: endpoint.clients,
            connections,
            counted: endpoint.counted.map(Counted::from),
        }
    }
}

impl From<Counter> for Counted {
    fn from(counter: Counter) -> Self {
        Self { connections: counter.packets, bytes: counter.bytes }
    }
}

impl From<(Refusal, Counter)> for Refused {
    fn from((reason, Counter { packets, bytes }): (Refusal, Counter)) -> Self {
        Self { reason: reason.name(), packets, bytes }
    }
}

impl ConnectionsItem {
    fn new(view: &View<'_>, counts: &Counts) -> Self {
        Self {
            active: counts.active,
            new: counts.new,
            ended: counts.ended,
            offloaded: Some(counts.offloaded).filter(|offloaded| *offloaded > 0),
            began: view.has_began().then_some(counts.began),
            oldest_seconds: view.age(counts.oldest).map(|age| age.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::sample::{SampleServices, written};
    use super::*;

    #[test]
    fn json_and_yaml_are_one_document_of_the_same_fields() {
        let sample = SampleServices::new();
        let json: Value = serde_json::from_str(&written(|out| {
            services(out, &sample.view(), DocumentFormat::Json)
        }))
        .unwrap();
        let yaml = written(|out| services(out, &sample.view(), DocumentFormat::Yaml));
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
    }

    #[test]
    fn source_ranges_and_the_addresses_of_node_ports_are_there_if_they_limit() {
        let read = |sample: &SampleServices| -> Value {
            serde_json::from_str(&written(|out| {
                services(out, &sample.view(), DocumentFormat::Json)
            }))
            .unwrap()
        };
        let all = read(&SampleServices::new());
        let services = all["services"].as_array().unwrap().iter();
        assert!(services.clone().all(|it| it["source_ranges"].is_null()), "{all}");
        assert!(services.clone().all(|it| it["node_addresses"].is_null()), "{all}");
        let sample = SampleServices::new().with_source_ranges(&["192.0.2.0/24"]);
        let limited = read(&sample.with_node_port_addresses(&["192.168.50.2"]));
        let services = limited["services"].as_array().unwrap();
        assert_eq!(services[0]["source_ranges"], serde_json::json!(["192.0.2.0/24"]));
        assert_eq!(services[3]["node_addresses"], serde_json::json!(["192.168.50.2"]));
    }

    #[test]
    fn an_address_with_direct_return_says_so() {
        let sample = SampleServices::new().direct();
        let all: Value = serde_json::from_str(&written(|out| {
            services(out, &sample.view(), DocumentFormat::Json)
        }))
        .unwrap();
        let marks =
            all["services"].as_array().unwrap().iter().map(|it| it["direct_return"].clone());
        let marked: Vec<_> = marks.collect();
        assert_eq!(marked, [Value::Null, Value::Null, true.into(), Value::Null]);
    }

    #[test]
    fn refused_packets_are_there_with_their_reason() {
        let sample = SampleServices::new().refusing();
        let all: Value = serde_json::from_str(&written(|out| {
            services(out, &sample.view(), DocumentFormat::Json)
        }))
        .unwrap();
        let refused = serde_json::json!([{ "reason": "no_endpoint", "packets": 12, "bytes": 720 }]);
        assert_eq!(all["services"][0]["refused"], refused);
        assert_eq!(all["services"][1]["refused"], Value::Null);
    }

    #[test]
    fn what_was_counted_is_there_if_the_tables_have_counters() {
        let read = |sample: &SampleServices| -> Value {
            serde_json::from_str(&written(|out| {
                services(out, &sample.view(), DocumentFormat::Json)
            }))
            .unwrap()
        };
        let counted =
            |document: &Value, place: usize| document["services"][place]["counted"].clone();
        let one = serde_json::json!({ "connections": 1, "bytes": 60 });
        let document = read(&SampleServices::new().counted());
        assert_eq!(counted(&document, 0), Value::Null, "it has no endpoint");
        assert_eq!(counted(&document, 1), one);
        assert_eq!(document["services"][1]["endpoints"][0]["counted"], one);
        assert_eq!(counted(&read(&SampleServices::new()), 1), Value::Null);
    }
}
