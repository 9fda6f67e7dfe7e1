//! core/v1 Service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ahash::HashSet;
use engine::model::{self, Change, Problem, Protocol, Resource, TrafficPolicy};
use engine::routing::served_services::SERVICE_PROXY_NAME;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nft::family::Family;
use serde::Deserialize;

use super::address::{parse_ip, parse_usable_ip};
use super::annotations::{
    affinity_of_all_ports, ended_connections, forwarding, port_ranges, scheduler, weights,
};
use super::converter::{Converter, Findings, MAX_LABEL, keep_distinct};
use super::metadata::{ObjectMeta, created, null_is_absent, object, objects};

/// A Service. Fields have the API's names and meanings; an absent string is empty.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Service {
    /// Name, namespace, version and the relevant labels.
    #[serde(default, deserialize_with = "object")]
    pub metadata: ObjectMeta,
    /// Specification.
    #[serde(default, deserialize_with = "object")]
    pub spec: ServiceSpec,
    /// Status of the load balancer.
    #[serde(default, deserialize_with = "object")]
    pub status: ServiceStatus,
}

/// `spec` of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// Type, ClusterIP if empty.
    #[serde(rename = "type", deserialize_with = "null_is_absent")]
    pub kind: String,
    /// `None` for headless services.
    #[serde(rename = "clusterIP", deserialize_with = "null_is_absent")]
    pub cluster_ip: String,
    /// One cluster IP for each family; the first is `clusterIP`.
    #[serde(rename = "clusterIPs", deserialize_with = "null_is_absent")]
    pub cluster_ips: Vec<String>,
    /// The families of `clusterIPs`.
    #[serde(deserialize_with = "null_is_absent")]
    pub ip_families: Vec<String>,
    /// Ports.
    #[serde(deserialize_with = "objects")]
    pub ports: Vec<ServicePort>,
    /// Addresses that are routed to this node by other means.
    #[serde(rename = "externalIPs", deserialize_with = "null_is_absent")]
    pub external_ips: Vec<String>,
    /// Client ranges that may use the load balancer.
    #[serde(deserialize_with = "null_is_absent")]
    pub load_balancer_source_ranges: Vec<String>,
    /// Cluster if empty.
    #[serde(deserialize_with = "null_is_absent")]
    pub internal_traffic_policy: String,
    /// Cluster if empty.
    #[serde(deserialize_with = "null_is_absent")]
    pub external_traffic_policy: String,
    /// None if empty.
    #[serde(deserialize_with = "null_is_absent")]
    pub session_affinity: String,
    /// Timeout of the affinity.
    #[serde(deserialize_with = "object")]
    pub session_affinity_config: SessionAffinityConfig,
    /// Port of the health check, 0 for none.
    #[serde(deserialize_with = "null_is_absent")]
    pub health_check_node_port: i64,
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Empty if unnamed.
    #[serde(deserialize_with = "null_is_absent")]
    pub name: String,
    /// TCP if absent.
    pub protocol: Option<String>,
    /// Port at the cluster IP.
    #[serde(deserialize_with = "null_is_absent")]
    pub port: i64,
    /// Port at the nodes, 0 for none.
    #[serde(deserialize_with = "null_is_absent")]
    pub node_port: i64,
}

/// `spec.sessionAffinityConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAffinityConfig {
    /// Settings of `sessionAffinity: ClientIP`.
    #[serde(rename = "clientIP", deserialize_with = "object")]
    pub client_ip: ClientIp,
}

/// `spec.sessionAffinityConfig.clientIP`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIp {
    /// Seconds, 10800 if absent.
    pub timeout_seconds: Option<i64>,
}

/// `status` of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// Its load balancer.
    #[serde(deserialize_with = "object")]
    pub load_balancer: LoadBalancerStatus,
}

/// `status.loadBalancer`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    /// Addresses of the load balancer.
    #[serde(deserialize_with = "objects")]
    pub ingress: Vec<LoadBalancerIngress>,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerIngress {
    /// Empty if it has only a host name.
    #[serde(deserialize_with = "null_is_absent")]
    pub ip: String,
    /// VIP if absent.
    pub ip_mode: Option<String>,
}

impl Converter {
    /// Converts a Service; `Gone` if it is not routed here.
    pub fn service(&mut self, object: &Service) -> (Change<model::Service>, Vec<Problem>) {
        let mut findings = Findings::new(Resource::Services, &object.metadata);
        let found = convert(object, self, &mut findings);
        findings.conclude(found)
    }
}

/// Converts a Service; `None` if it is not routed.
fn convert(
    object: &Service,
    converter: &mut Converter,
    findings: &mut Findings,
) -> Option<model::Service> {
    let spec = &object.spec;
    let proxy_name = object.metadata.labels.get(SERVICE_PROXY_NAME);
    if !converter.services().admit(&findings.name(), proxy_name) || !has_cluster_ip(spec, findings)
    {
        return None;
    }
    let external_traffic_policy = external_traffic_policy(spec, findings);
    let health_check =
        findings.optional_port("spec.healthCheckNodePort", spec.health_check_node_port);
    let (mut session_affinity, mut scheduler) =
        (session_affinity(spec, findings), scheduler(&object.metadata, findings));
    if let Some(hash) = affinity_of_all_ports(&object.metadata, session_affinity, findings) {
        (session_affinity, scheduler) = (None, Some(hash));
    }
    let checked = spec.kind == "LoadBalancer" && external_traffic_policy == TrafficPolicy::Local;
    Some(model::Service {
        name: findings.name(),
        created: created(&object.metadata),
        cluster_ips: cluster_ips(spec, findings),
        external_ips: external_ips(spec, findings),
        load_balancer_ips: load_balancer_ips(&object.status, findings),
        source_ranges: source_ranges(spec, findings),
        internal_traffic_policy: traffic_policy(
            "spec.internalTrafficPolicy",
            &spec.internal_traffic_policy,
            findings,
        ),
        external_traffic_policy,
        session_affinity,
        scheduler,
        weights: weights(&object.metadata, findings),
        forwarding: forwarding(&object.metadata, findings),
        ended_connections: ended_connections(&object.metadata, findings),
        health_check_node_port: health_check.filter(|_| checked),
        ports: ports(spec, converter, findings),
        port_ranges: port_ranges(&object.metadata, findings),
    })
}

/// Returns whether the service has a cluster IP, by type and field.
fn has_cluster_ip(spec: &ServiceSpec, findings: &mut Findings) -> bool {
    match spec.kind.as_str() {
        "" | "ClusterIP" | "NodePort" | "LoadBalancer" => {
            let first = first_cluster_ip(spec);
            !first.is_empty() && first != "None"
        }
        "ExternalName" => false,
        other => {
            let expected = "ClusterIP, NodePort, LoadBalancer or ExternalName";
            findings.refuse("spec.type", format!("\"{other}\" is not {expected}"));
            false
        }
    }
}

/// Returns `clusterIP`, or the first of `clusterIPs` if a manifest has only these.
fn first_cluster_ip(spec: &ServiceSpec) -> &str {
    match (spec.cluster_ip.as_str(), spec.cluster_ips.first()) {
        ("", Some(first)) => first,
        (single, _) => single,
    }
}

fn cluster_ips(spec: &ServiceSpec, findings: &mut Findings) -> Vec<IpAddr> {
    let mut addresses = Vec::with_capacity(spec.cluster_ips.len().max(1));
    if spec.cluster_ips.is_empty() {
        let family = spec.ip_families.first().map(String::as_str);
        add_cluster_ip("spec.clusterIP", &spec.cluster_ip, family, (&mut addresses, findings));
        return addresses;
    }
    for (i, text) in spec.cluster_ips.iter().enumerate() {
        let family = spec.ip_families.get(i).map(String::as_str);
        if family.is_none() && !spec.ip_families.is_empty() {
            // kube-proxy iterates over ipFamilies: an address without a family is not used.
            break;
        }
        let field = format!("spec.clusterIPs[{i}]");
        add_cluster_ip(&field, text, family, (&mut addresses, findings));
    }
    let first = parse_ip(first_cluster_ip(spec));
    if first.is_none() || first != spec.cluster_ips.first().and_then(|text| parse_ip(text)) {
        findings.refuse("spec.clusterIP", "is not the first of spec.clusterIPs");
    }
    addresses
}

/// Adds one cluster IP, which must be of the stated family and the only one of it.
fn add_cluster_ip(
    field: &str,
    text: &str,
    stated: Option<&str>,
    (addresses, findings): (&mut Vec<IpAddr>, &mut Findings),
) {
    let address = match parse_usable_ip(text) {
        Ok(address) => address,
        Err(message) => return findings.refuse(field, message),
    };
    let family = Family::of(address);
    if let Some(stated) = stated.filter(|stated| *stated != family.name()) {
        let message = format!("{address} is not of the family \"{stated}\" of spec.ipFamilies");
        return findings.refuse(field, message);
    }
    if addresses.iter().any(|other| Family::of(*other) == family) {
        let message = format!("{address} is a second {} address: one is possible", family.name());
        return findings.refuse(field, message);
    }
    addresses.push(address);
}

fn external_ips(spec: &ServiceSpec, findings: &mut Findings) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (i, text) in spec.external_ips.iter().enumerate() {
        // Blank entries come from templates; kube-proxy also ignores them silently.
        if !text.trim().is_empty() {
            addresses.extend(findings.ip(format_args!("spec.externalIPs[{i}]"), text));
        }
    }
    keep_distinct(&mut addresses);
    addresses
}

fn load_balancer_ips(status: &ServiceStatus, findings: &mut Findings) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (i, ingress) in status.load_balancer.ingress.iter().enumerate() {
        let by_address = matches!(ingress.ip_mode.as_deref(), None | Some("VIP"));
        if by_address && !ingress.ip.is_empty() {
            let field = format!("status.loadBalancer.ingress[{i}].ip");
            addresses.extend(findings.ip(field, &ingress.ip));
        }
    }
    keep_distinct(&mut addresses);
    addresses
}

/// One address of each family that is never the source of a packet (RFC 1122 section 3.2.1.3, RFC
/// 4291 section 2.7).
const IMPOSSIBLE_SOURCES: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 128)),
];

/// Returns the ranges that restrict sources. A range of all addresses lifts the restriction of its
/// family. Without a valid entry, the addresses are closed to all sources.
fn source_ranges(spec: &ServiceSpec, findings: &mut Findings) -> Vec<IpNet> {
    let mut ranges = Vec::new();
    for (i, text) in spec.load_balancer_source_ranges.iter().enumerate() {
        let field = format_args!("spec.loadBalancerSourceRanges[{i}]");
        ranges.extend(findings.range(field, text.trim(), "192.0.2.0/24"));
    }
    keep_distinct(&mut ranges);
    if ranges.is_empty() && !spec.load_balancer_source_ranges.is_empty() {
        ranges.extend(IMPOSSIBLE_SOURCES);
    }
    let open = ranges.iter().filter(|range| range.prefix_len() == 0);
    let open: Vec<_> = open.map(|range| Family::of(range.addr())).collect();
    ranges.retain(|range| !open.contains(&Family::of(range.addr())));
    ranges
}

fn traffic_policy(field: &str, text: &str, findings: &mut Findings) -> TrafficPolicy {
    match text {
        "" | "Cluster" => TrafficPolicy::Cluster,
        "Local" => TrafficPolicy::Local,
        other => {
            findings.refuse(field, format!("\"{other}\" is not Cluster or Local"));
            TrafficPolicy::Cluster
        }
    }
}

fn external_traffic_policy(spec: &ServiceSpec, findings: &mut Findings) -> TrafficPolicy {
    let policy =
        traffic_policy("spec.externalTrafficPolicy", &spec.external_traffic_policy, findings);
    match spec.kind.as_str() {
        "LoadBalancer" | "NodePort" => policy,
        _ if !spec.external_ips.is_empty() => policy,
        _ => TrafficPolicy::Cluster,
    }
}

fn session_affinity(spec: &ServiceSpec, findings: &mut Findings) -> Option<Duration> {
    let stated = spec.session_affinity_config.client_ip.timeout_seconds;
    match spec.session_affinity.as_str() {
        "" | "None" => None,
        "ClientIP" => {
            let seconds = stated.unwrap_or(DEFAULT_AFFINITY);
            let timeout = u64::try_from(seconds).ok().filter(|it| (1..=MAX_AFFINITY).contains(it));
            if timeout.is_none() {
                let message = format!("{seconds} is not in 1 to {MAX_AFFINITY} seconds");
                findings.refuse("spec.sessionAffinityConfig.clientIP.timeoutSeconds", message);
            }
            timeout.map(Duration::from_secs)
        }
        other => {
            findings.refuse("spec.sessionAffinity", format!("\"{other}\" is not None or ClientIP"));
            None
        }
    }
}

/// Default session affinity timeout in seconds (core/v1 `DefaultClientIPServiceAffinitySeconds`).
const DEFAULT_AFFINITY: i64 = 10_800;
/// Longest session affinity timeout in the API: a day, in seconds.
const MAX_AFFINITY: u64 = 86_400;

fn ports(
    spec: &ServiceSpec,
    converter: &mut Converter,
    findings: &mut Findings,
) -> Vec<model::ServicePort> {
    let mut ports = Vec::with_capacity(spec.ports.len());
    let mut seen = SeenPorts::default();
    for (i, object) in spec.ports.iter().enumerate() {
        let protocol = object.protocol.as_deref();
        let protocol = findings.protocol(format_args!("spec.ports[{i}].protocol"), protocol);
        let number = findings.port(format_args!("spec.ports[{i}].port"), object.port);
        let node_port = format_args!("spec.ports[{i}].nodePort");
        let node_port = findings.optional_port(node_port, object.node_port);
        findings.check_name(format_args!("spec.ports[{i}].name"), &object.name, MAX_LABEL);
        let (Some(protocol), Some(number)) = (protocol, number) else { continue };
        let name = converter.text(&object.name);
        let port = model::ServicePort { name, protocol, port: number, node_port };
        match seen.repeated(&port) {
            Some((field, message)) => {
                findings.leave_out(format_args!("spec.ports[{i}].{field}"), message)
            }
            None => {
                // Most services have one port.
                if spec.ports.len() > 1 {
                    seen.add(&port);
                }
                ports.push(port);
            }
        }
    }
    ports
}

/// Values that two ports of a service with the same protocol must not share.
#[derive(Default)]
struct SeenPorts {
    numbers: HashSet<(Protocol, NonZeroU16)>,
    names: HashSet<(Protocol, Arc<str>)>,
    node_ports: HashSet<(Protocol, NonZeroU16)>,
}

impl SeenPorts {
    fn add(&mut self, port: &model::ServicePort) {
        self.numbers.insert((port.protocol, port.port));
        self.names.insert((port.protocol, Arc::clone(&port.name)));
        self.node_ports.extend(port.node_port.map(|it| (port.protocol, it)));
    }

    /// Returns the field in which `new` repeats an earlier port, which is kept.
    fn repeated(&self, new: &model::ServicePort) -> Option<(&'static str, String)> {
        let model::ServicePort { protocol, port, ref name, node_port } = *new;
        if self.numbers.contains(&(protocol, port)) {
            return Some(("port", format!("{protocol} port {port} is there already: left out")));
        }
        if self.names.contains(&(protocol, Arc::clone(name))) {
            let message = format!("a {protocol} port named \"{name}\" is there already: left out");
            return Some(("name", message));
        }
        let is_repeated = node_port.is_some_and(|it| self.node_ports.contains(&(protocol, it)));
        is_repeated
            .then(|| ("nodePort", format!("another {protocol} port has this node port: left out")))
    }
}
