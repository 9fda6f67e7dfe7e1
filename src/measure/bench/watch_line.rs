//! Lines of a watch as an API server of Kubernetes 1.36 writes them, with all usual fields.
//!
//! Fields that readers ignore are included: managed fields, owners, references to pods.

use std::fmt::Write;
use std::net::Ipv4Addr;

use engine::model::Resource;

/// One event of a watch: a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchLine {
    /// Watched resource.
    pub resource: Resource,
    /// The line, without its newline.
    pub text: String,
}

/// Variable fields of a Service.
#[derive(Clone, Debug)]
pub(super) struct ServiceObject {
    pub(super) number: u32,
    pub(super) version: u64,
    pub(super) cluster_ip: Ipv4Addr,
    pub(super) protocol: &'static str,
    pub(super) is_local: bool,
    pub(super) is_external: bool,
}

/// Variable fields of an EndpointSlice.
#[derive(Clone, Debug)]
pub(super) struct SliceObject {
    pub(super) service: u32,
    pub(super) slice: usize,
    pub(super) version: u64,
    pub(super) protocol: &'static str,
    pub(super) endpoints: Vec<EndpointObject>,
}

/// Variable fields of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct EndpointObject {
    pub(super) number: u32,
    pub(super) address: Ipv4Addr,
    pub(super) node: u32,
    pub(super) zone: &'static str,
}

/// Returns the external IP of a service, if it has one.
pub(super) fn external_ip(service: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_EXTERNAL_IP + service)
}

/// Namespaces over which services are spread.
const NAMESPACES: u32 = 100;

/// First external IP: 198.18.0.1.
const FIRST_EXTERNAL_IP: u32 = 0xc612_0001;

const CREATED: &str = "2026-01-01T00:00:00Z";

const SERVICE_FIELDS: &str = r#""managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}}]"#;

const SLICE_FIELDS: &str = r#""managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"discovery.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{".":{},"f:endpoints.kubernetes.io/last-change-trigger-time":{}},"f:generateName":{},"f:labels":{".":{},"f:endpointslice.kubernetes.io/managed-by":{},"f:kubernetes.io/service-name":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"00000000-0000-4000-8000-000000000000\"}":{}}},"f:ports":{}}}]"#;

impl WatchLine {
    pub(super) fn service(object: &ServiceObject) -> Self {
        let ServiceObject { number, version, cluster_ip, protocol, is_local, is_external } = object;
        let namespace = number % NAMESPACES;
        let policy = if *is_local { "Local" } else { "Cluster" };
        let external = if *is_external {
            format!(r#""externalIPs":["{}"],"#, external_ip(*number))
        } else {
            String::new()
        };
        let text = format!(
            r#"{{"type":"MODIFIED","object":{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"service-{number}","namespace":"bench-{namespace}","uid":"{}","resourceVersion":"{version}","creationTimestamp":"{CREATED}","labels":{{"app":"service-{number}"}},{SERVICE_FIELDS}}},"spec":{{"ports":[{{"name":"http","protocol":"{protocol}","port":80,"targetPort":8080}}],"selector":{{"app":"service-{number}"}},"clusterIP":"{cluster_ip}","clusterIPs":["{cluster_ip}"],{external}"type":"ClusterIP","sessionAffinity":"None","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"{policy}"}},"status":{{"loadBalancer":{{}}}}}}}}"#,
            uid(*number)
        );
        Self { resource: Resource::Services, text }
    }

    pub(super) fn slice(object: &SliceObject) -> Self {
        let SliceObject { service, slice, version, protocol, endpoints } = object;
        let namespace = service % NAMESPACES;
        let mut text = format!(
            r#"{{"type":"MODIFIED","object":{{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{{"name":"service-{service}-{slice}","generateName":"service-{service}-","namespace":"bench-{namespace}","uid":"{}","resourceVersion":"{version}","generation":{version},"creationTimestamp":"{CREATED}","labels":{{"app":"service-{service}","endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"service-{service}"}},"annotations":{{"endpoints.kubernetes.io/last-change-trigger-time":"{CREATED}"}},"ownerReferences":[{{"apiVersion":"v1","kind":"Service","name":"service-{service}","uid":"{}","controller":true,"blockOwnerDeletion":true}}],{SLICE_FIELDS}}},"addressType":"IPv4","endpoints":["#,
            uid(*service),
            uid(*service)
        );
        for (i, endpoint) in endpoints.iter().enumerate() {
            text.push_str(if i > 0 { "," } else { "" });
            write_endpoint(&mut text, endpoint, (*service, namespace));
        }
        let ports =
            format!(r#"],"ports":[{{"name":"http","protocol":"{protocol}","port":8080}}]}}}}"#);
        text.push_str(&ports);
        Self { resource: Resource::EndpointSlices, text }
    }

    pub(super) fn node(name: &str, zone: Option<&str>, version: u64) -> Self {
        let zone = zone.map(|zone| format!(r#","topology.kubernetes.io/zone":"{zone}""#));
        let zone = zone.unwrap_or_default();
        let text = format!(
            r#"{{"type":"MODIFIED","object":{{"kind":"Node","apiVersion":"v1","metadata":{{"name":"{name}","uid":"{}","resourceVersion":"{version}","creationTimestamp":"{CREATED}","labels":{{"kubernetes.io/hostname":"{name}","kubernetes.io/os":"linux"{zone}}}}},"spec":{{"podCIDR":"10.244.0.0/24","podCIDRs":["10.244.0.0/24"]}},"status":{{"addresses":[{{"type":"InternalIP","address":"192.0.2.1"}},{{"type":"Hostname","address":"{name}"}}]}}}}}}"#,
            uid(0)
        );
        Self { resource: Resource::Nodes, text }
    }

    /// Returns the line of the object's deletion.
    pub(super) fn deleted(&self) -> Self {
        Self { resource: self.resource, text: self.text.replacen("MODIFIED", "DELETED", 1) }
    }
}

fn write_endpoint(text: &mut String, endpoint: &EndpointObject, (service, namespace): (u32, u32)) {
    let EndpointObject { number, address, node, zone } = endpoint;
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        r#"{{"addresses":["{address}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},"targetRef":{{"kind":"Pod","namespace":"bench-{namespace}","name":"service-{service}-{number:x}","uid":"{}"}},"nodeName":"node-{node}","zone":"{zone}","hints":{{"forZones":[{{"name":"{zone}"}}]}}}}"#,
        uid(*number)
    );
}

fn uid(number: u32) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}
