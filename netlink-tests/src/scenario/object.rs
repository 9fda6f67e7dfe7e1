//! Kubernetes objects in few words, for both families at once.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::expect::{Family, Protocol};
use super::hosts::{NODE_NAME, address_of, is_on_node};
use test_hosts::ip6_of;

/// An object of a manifest.
pub trait Object {
    /// The API objects that it stands for.
    fn documents(&self) -> Vec<Value>;
}

/// An API object as it is.
#[derive(Debug, Clone)]
pub struct Raw(pub Value);

impl Object for Raw {
    fn documents(&self) -> Vec<Value> {
        vec![self.0.clone()]
    }
}

/// A Service in namespace `default`, dual stack by default.
#[derive(Debug, Clone)]
pub struct Service {
    name: String,
    cluster_ip: Option<Ipv4Addr>,
    families: Vec<Family>,
    ports: Vec<Value>,
    external_ips: Vec<String>,
    load_balancer_ips: Vec<String>,
    labels: Value,
    annotations: Value,
    /// Fields that override all others.
    spec: Vec<(String, Value)>,
}

impl Service {
    /// A Service with a ClusterIP and its IPv6 twin, and no port.
    #[must_use]
    #[track_caller]
    pub fn new(name: &str, cluster_ip: &str) -> Self {
        let cluster_ip = Some(parse(cluster_ip));
        Self { cluster_ip, ..Self::headless(name) }
    }

    /// A Service without ClusterIP.
    #[must_use]
    pub fn headless(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cluster_ip: None,
            families: Family::ALL.to_vec(),
            ports: Vec::new(),
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            labels: json!({}),
            annotations: json!({}),
            spec: Vec::new(),
        }
    }

    /// Only one family.
    #[must_use]
    pub fn only(mut self, family: Family) -> Self {
        self.families = vec![family];
        self
    }

    /// `port` of TCP, UDP and SCTP, named `p80-tcp` and so on.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.node_port(port, 0)
    }

    /// As [`Self::port`], and the same node port (0: none) for each protocol.
    #[must_use]
    pub fn node_port(mut self, port: u16, node_port: u16) -> Self {
        for protocol in Protocol::ALL {
            self = self.named_port(&port_name(port, protocol), protocol, port, node_port);
        }
        self
    }

    /// A port of one protocol; node port 0: none.
    #[must_use]
    pub fn named_port(mut self, name: &str, protocol: Protocol, port: u16, node_port: u16) -> Self {
        let mut object = json!({"name": name, "protocol": protocol.name(), "port": port});
        if node_port != 0 {
            object["nodePort"] = json!(node_port);
        }
        self.ports.push(object);
        self
    }

    /// One more external IP, and its IPv6 twin.
    #[must_use]
    #[track_caller]
    pub fn external_ip(mut self, ip: &str) -> Self {
        self.external_ips.extend(twins(ip, &self.families));
        self
    }

    /// One more IP of a load balancer (`ipMode` VIP), and its IPv6 twin.
    #[must_use]
    #[track_caller]
    pub fn load_balancer_ip(mut self, ip: &str) -> Self {
        self.load_balancer_ips.extend(twins(ip, &self.families));
        self
    }

    /// External traffic policy Local.
    #[must_use]
    pub fn external_local(self) -> Self {
        self.spec("externalTrafficPolicy", json!("Local"))
    }

    /// Internal traffic policy Local.
    #[must_use]
    pub fn internal_local(self) -> Self {
        self.spec("internalTrafficPolicy", json!("Local"))
    }

    /// Sets a field of the spec; it overrides those of other methods.
    #[must_use]
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.spec.push((field.to_owned(), value));
        self
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, label: &str, value: &str) -> Self {
        self.labels[label] = json!(value);
        self
    }

    /// Sets an annotation.
    #[must_use]
    pub fn annotation(mut self, annotation: &str, value: &str) -> Self {
        self.annotations[annotation] = json!(value);
        self
    }

    fn kind(&self) -> &'static str {
        let has_node_port = self.ports.iter().any(|port| port.get("nodePort").is_some());
        match (self.load_balancer_ips.is_empty(), has_node_port) {
            (false, _) => "LoadBalancer",
            (true, true) => "NodePort",
            (true, false) => "ClusterIP",
        }
    }
}

impl Object for Service {
    fn documents(&self) -> Vec<Value> {
        let cluster_ips: Vec<_> = match self.cluster_ip {
            Some(ip) => self.families.iter().map(|family| family.of(ip).to_string()).collect(),
            None => vec!["None".to_owned()],
        };
        let ingress: Vec<_> = self.load_balancer_ips.iter().map(|ip| json!({"ip": ip})).collect();
        let families: Vec<_> = self.families.iter().map(|family| family.name()).collect();
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "namespace": "default", "labels": self.labels,
                         "annotations": self.annotations},
            "spec": {
                "type": self.kind(),
                "clusterIP": cluster_ips[0],
                "clusterIPs": cluster_ips,
                "ipFamilies": families,
                "ports": self.ports,
                "externalIPs": self.external_ips,
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        for (field, value) in &self.spec {
            object["spec"][field] = value.clone();
        }
        vec![object]
    }
}

/// An EndpointSlice of a Service and its IPv6 twin.
#[derive(Debug, Clone)]
pub struct Slice {
    service: String,
    suffix: String,
    families: Vec<Family>,
    ports: Vec<Value>,
    endpoints: Vec<Endpoint>,
    labels: Value,
    annotations: Value,
}

impl Slice {
    /// An empty slice of a service, with the target port 8080 for its port 80.
    #[must_use]
    pub fn new(service: &str) -> Self {
        let empty = Self {
            service: service.to_owned(),
            suffix: "1".to_owned(),
            families: Family::ALL.to_vec(),
            ports: Vec::new(),
            endpoints: Vec::new(),
            labels: json!({}),
            annotations: json!({}),
        };
        empty.target(80, 8080)
    }

    /// A further slice of the same service; the first has the suffix 1.
    #[must_use]
    pub fn suffix(mut self, suffix: &str) -> Self {
        suffix.clone_into(&mut self.suffix);
        self
    }

    /// Only one family.
    #[must_use]
    pub fn only(mut self, family: Family) -> Self {
        self.families = vec![family];
        self
    }

    /// Forgets the ports.
    #[must_use]
    pub fn without_ports(mut self) -> Self {
        self.ports.clear();
        self
    }

    /// The target port of the service's `port`, for TCP, UDP and SCTP. For port 80 it replaces
    /// the default.
    #[must_use]
    pub fn target(mut self, port: u16, target: u16) -> Self {
        for protocol in Protocol::ALL {
            self = self.named_target(&port_name(port, protocol), protocol, target);
        }
        self
    }

    /// The target port of a named port of one protocol.
    #[must_use]
    pub fn named_target(mut self, name: &str, protocol: Protocol, target: u16) -> Self {
        let object = json!({"name": name, "protocol": protocol.name(), "port": target});
        self.ports.retain(|port| {
            (&port["name"], &port["protocol"]) != (&object["name"], &object["protocol"])
        });
        self.ports.push(object);
        self
    }

    /// Ready endpoints on these hosts.
    #[must_use]
    pub fn endpoints(mut self, hosts: &str) -> Self {
        self.endpoints.extend(hosts.split_whitespace().map(Endpoint::new));
        self
    }

    /// One more endpoint.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, label: &str, value: &str) -> Self {
        self.labels[label] = json!(value);
        self
    }

    /// Sets an annotation.
    #[must_use]
    pub fn annotation(mut self, annotation: &str, value: &str) -> Self {
        self.annotations[annotation] = json!(value);
        self
    }

    fn document(&self, family: Family) -> Value {
        let mut labels = self.labels.clone();
        labels["kubernetes.io/service-name"] = json!(self.service);
        let name = format!("{}-{}-{}", self.service, self.suffix, family.name().to_lowercase());
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": "default", "labels": labels,
                         "annotations": self.annotations},
            "addressType": family.name(),
            "ports": self.ports,
            "endpoints": self.endpoints.iter().map(|it| it.document(family)).collect::<Vec<_>>(),
        })
    }
}

impl Object for Slice {
    fn documents(&self) -> Vec<Value> {
        self.families.iter().map(|family| self.document(*family)).collect()
    }
}

/// One endpoint of a slice: a host of the lab, ready by default.
#[derive(Debug, Clone)]
pub struct Endpoint {
    address: Ipv4Addr,
    node: Option<&'static str>,
    conditions: Value,
    hints: Value,
    pod: Option<String>,
}

impl Endpoint {
    /// The host of the lab with this name, on its node, or any address, on another node.
    #[must_use]
    #[track_caller]
    pub fn new(host: &str) -> Self {
        let node = Some(if is_on_node(host) { NODE_NAME } else { "node-b" });
        let address = host.parse().unwrap_or_else(|_| address_of(host));
        Self { address, node, conditions: json!({}), hints: json!({}), pod: None }
    }

    /// On a node of this name.
    #[must_use]
    pub fn on_node(mut self, node: &'static str) -> Self {
        self.node = Some(node);
        self
    }

    /// Without a node name.
    #[must_use]
    pub fn missing_node(mut self) -> Self {
        self.node = None;
        self
    }

    /// Conditions ready, serving and terminating.
    #[must_use]
    pub fn conditions(mut self, ready: bool, serving: bool, terminating: bool) -> Self {
        self.conditions = json!({"ready": ready, "serving": serving, "terminating": terminating});
        self
    }

    /// The name of its pod.
    #[must_use]
    pub fn pod(mut self, name: &str) -> Self {
        self.pod = Some(name.to_owned());
        self
    }

    /// Hints for a zone.
    #[must_use]
    pub fn zone(mut self, zone: &str) -> Self {
        self.hints["forZones"] = json!([{"name": zone}]);
        self
    }

    /// Hints for a node.
    #[must_use]
    pub fn for_node(mut self, node: &str) -> Self {
        self.hints["forNodes"] = json!([{"name": node}]);
        self
    }

    fn document(&self, family: Family) -> Value {
        let mut object = json!({
            "addresses": [family.of(self.address).to_string()],
            "conditions": self.conditions,
            "hints": self.hints,
        });
        if let Some(node) = self.node {
            object["nodeName"] = json!(node);
        }
        if let Some(pod) = &self.pod {
            object["targetRef"] = json!({"kind": "Pod", "name": pod});
        }
        object
    }
}

/// A ServiceCIDR.
#[derive(Debug, Clone)]
pub struct ServiceCidr {
    name: String,
    cidrs: Vec<String>,
}

impl ServiceCidr {
    /// A ServiceCIDR of this name with these ranges.
    #[must_use]
    pub fn new(name: &str, cidrs: &[&str]) -> Self {
        Self { name: name.to_owned(), cidrs: cidrs.iter().map(|&cidr| cidr.to_owned()).collect() }
    }
}

impl Object for ServiceCidr {
    fn documents(&self) -> Vec<Value> {
        vec![json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": self.name},
            "spec": {"cidrs": self.cidrs},
        })]
    }
}

fn port_name(port: u16, protocol: Protocol) -> String {
    format!("p{port}-{}", protocol.name().to_lowercase())
}

#[track_caller]
fn twins(ip: &str, families: &[Family]) -> Vec<String> {
    let ip = parse(ip);
    families.iter().map(|family| family.of(ip).to_string()).collect()
}

#[track_caller]
fn parse(ip: &str) -> Ipv4Addr {
    ip.parse().unwrap_or_else(|_| panic!("not an IPv4 address: {ip}"))
}

impl Family {
    /// The address of this family: `ip` or its IPv6 twin.
    #[must_use]
    pub fn of(self, ip: Ipv4Addr) -> IpAddr {
        match self {
            Self::Ipv4 => ip.into(),
            Self::Ipv6 => ip6_of(ip).into(),
        }
    }
}
