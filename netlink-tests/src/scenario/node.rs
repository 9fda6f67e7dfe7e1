//! Node objects in few words.

use std::net::IpAddr;

use serde_json::{Value, json};
use test_hosts::{NODE_IP, NODE_IP6};

use super::hosts::NODE_NAME;
use super::object::Object;

/// A Node object, by default that of the lab's node.
#[derive(Debug, Clone)]
pub struct Node {
    name: &'static str,
    ready: Option<bool>,
    zone: Option<String>,
    addresses: Vec<IpAddr>,
    pod_cidrs: Vec<String>,
}

impl Node {
    /// The node with its two addresses and no zone.
    #[must_use]
    pub fn new() -> Self {
        Self::named(NODE_NAME)
    }

    /// A node of this name with the same addresses.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        let addresses = vec![NODE_IP.into(), NODE_IP6.into()];
        Self { name, ready: None, zone: None, addresses, pod_cidrs: Vec::new() }
    }

    /// Condition Ready.
    #[must_use]
    pub fn ready(mut self, ready: bool) -> Self {
        self.ready = Some(ready);
        self
    }

    /// The node's zone.
    #[must_use]
    pub fn zone(mut self, zone: &str) -> Self {
        self.zone = Some(zone.to_owned());
        self
    }

    /// The ranges of its pods.
    #[must_use]
    pub fn pod_cidrs(mut self, cidrs: &[&str]) -> Self {
        self.pod_cidrs = cidrs.iter().map(|&cidr| cidr.to_owned()).collect();
        self
    }

    /// Other addresses than usual.
    #[must_use]
    pub fn addresses(mut self, addresses: &[IpAddr]) -> Self {
        self.addresses = addresses.to_vec();
        self
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl Object for Node {
    fn documents(&self) -> Vec<Value> {
        let addresses = self.addresses.iter();
        let addresses: Vec<_> =
            addresses.map(|ip| json!({"type": "InternalIP", "address": ip.to_string()})).collect();
        let labels = match &self.zone {
            Some(zone) => json!({"topology.kubernetes.io/zone": zone}),
            None => json!({}),
        };
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"podCIDRs": self.pod_cidrs},
            "status": {"addresses": addresses},
        });
        if let Some(ready) = self.ready {
            let status = if ready { "True" } else { "False" };
            object["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
        }
        vec![object]
    }
}
