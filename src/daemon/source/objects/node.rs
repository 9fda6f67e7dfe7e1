//! core/v1 Node and networking.k8s.io/v1 ServiceCIDR.

use std::net::IpAddr;
use std::sync::Arc;

use engine::model::{self, Change, Problem, Resource};
use ipnet::IpNet;
use serde::Deserialize;

use super::converter::{Converter, Findings, keep_distinct};
use super::metadata::{ObjectMeta, ZONE, null_is_absent, object, objects};

/// A Node. Fields have the API's names and meanings; an absent string is empty.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    /// Name, version, deletion and the zone label.
    #[serde(default, deserialize_with = "object")]
    pub metadata: ObjectMeta,
    /// Specification.
    #[serde(default, deserialize_with = "object")]
    pub spec: NodeSpec,
    /// Status.
    #[serde(default, deserialize_with = "object")]
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The first of `podCIDRs`.
    #[serde(rename = "podCIDR", deserialize_with = "null_is_absent")]
    pub pod_cidr: String,
    /// Ranges of the pods on this node.
    #[serde(rename = "podCIDRs", deserialize_with = "null_is_absent")]
    pub pod_cidrs: Vec<String>,
    /// Taints.
    #[serde(deserialize_with = "objects")]
    pub taints: Vec<Taint>,
}

/// One entry of `spec.taints`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Key of the taint.
    #[serde(deserialize_with = "null_is_absent")]
    pub key: String,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Addresses of the node.
    #[serde(deserialize_with = "objects")]
    pub addresses: Vec<NodeAddress>,
    /// Conditions of the node.
    #[serde(deserialize_with = "objects")]
    pub conditions: Vec<NodeCondition>,
}

/// One entry of `status.conditions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeCondition {
    /// Ready and others.
    #[serde(rename = "type", deserialize_with = "null_is_absent")]
    pub kind: String,
    /// True, False or Unknown.
    #[serde(deserialize_with = "null_is_absent")]
    pub status: String,
}

/// One entry of `status.addresses`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// InternalIP, ExternalIP, Hostname and others.
    #[serde(rename = "type", deserialize_with = "null_is_absent")]
    pub kind: String,
    /// An IP address or a host name, depending on the type.
    #[serde(deserialize_with = "null_is_absent")]
    pub address: String,
}

/// A ServiceCIDR, of networking.k8s.io/v1 or v1beta1.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ServiceCidr {
    /// Name and version.
    #[serde(default, deserialize_with = "object")]
    pub metadata: ObjectMeta,
    /// Specification.
    #[serde(default, deserialize_with = "object")]
    pub spec: ServiceCidrSpec,
}

/// `spec` of a ServiceCIDR.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceCidrSpec {
    /// At most one range of each family.
    #[serde(deserialize_with = "null_is_absent")]
    pub cidrs: Vec<String>,
}

impl Converter {
    /// Converts another node's Node.
    pub fn peer(&self, object: &Node) -> (Change<model::Peer>, Vec<Problem>) {
        let mut findings = Findings::new(Resource::Nodes, &object.metadata);
        let found = convert_peer(object, &mut findings);
        findings.conclude(Some(found))
    }

    /// Converts this node's Node.
    pub fn node(&mut self, object: &Node) -> (Change<model::Node>, Vec<Problem>) {
        let mut findings = Findings::new(Resource::Nodes, &object.metadata);
        let found = convert_node(object, self, &mut findings);
        findings.conclude(Some(found))
    }

    /// Converts a ServiceCIDR.
    pub fn service_cidr(
        &mut self,
        object: &ServiceCidr,
    ) -> (Change<model::ServiceCidr>, Vec<Problem>) {
        let mut findings = Findings::new(Resource::ServiceCidrs, &object.metadata);
        let found = convert_service_cidr(object, &mut findings);
        findings.conclude(Some(found))
    }
}

/// Converts this node's Node.
fn convert_node(object: &Node, converter: &mut Converter, findings: &mut Findings) -> model::Node {
    let zone = object.metadata.labels.get(ZONE).map(|zone| -> Arc<str> { converter.text(zone) });
    let tainted = object.spec.taints.iter().any(|taint| taint.key == LEAVING_TAINT);
    model::Node {
        name: findings.name(),
        zone,
        addresses: addresses(&["InternalIP", "ExternalIP"], &object.status, findings),
        pod_cidrs: pod_cidrs(&object.spec, findings),
        leaving: tainted || object.metadata.deletion_timestamp.is_some(),
    }
}

/// Converts another node's Node.
fn convert_peer(object: &Node, findings: &mut Findings) -> model::Peer {
    let mut conditions = object.status.conditions.iter();
    let is_ready = conditions.any(|it| it.kind == "Ready" && it.status == "True");
    model::Peer {
        name: findings.name(),
        addresses: addresses(&["InternalIP"], &object.status, findings),
        ready: is_ready && object.metadata.deletion_timestamp.is_none(),
    }
}

/// Taint of a node that the cluster autoscaler will remove: load balancers should drain it.
const LEAVING_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Converts a ServiceCIDR.
fn convert_service_cidr(object: &ServiceCidr, findings: &mut Findings) -> model::ServiceCidr {
    let cidrs = cidrs("spec.cidrs", &object.spec.cidrs, findings);
    model::ServiceCidr { name: findings.name(), cidrs }
}

/// Returns the addresses of these types, in the order of the types.
fn addresses(kinds: &[&str], status: &NodeStatus, findings: &mut Findings) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for kind in kinds {
        for (i, entry) in status.addresses.iter().enumerate().filter(|(_, it)| it.kind == *kind) {
            let field = format_args!("status.addresses[{i}].address");
            addresses.extend(findings.ip(field, &entry.address));
        }
    }
    keep_distinct(&mut addresses);
    addresses
}

fn pod_cidrs(spec: &NodeSpec, findings: &mut Findings) -> Vec<IpNet> {
    if spec.pod_cidrs.is_empty() && !spec.pod_cidr.is_empty() {
        return cidrs("spec.podCIDR", std::slice::from_ref(&spec.pod_cidr), findings);
    }
    cidrs("spec.podCIDRs", &spec.pod_cidrs, findings)
}

fn cidrs(field: &str, texts: &[String], findings: &mut Findings) -> Vec<IpNet> {
    let texts = texts.iter().enumerate();
    let read = |(i, text): (_, &String)| {
        findings.range(format_args!("{field}[{i}]"), text, "10.96.0.0/16")
    };
    texts.filter_map(read).collect()
}
