//! Small objects to push to the server. Names are `namespace/name`.

use serde_json::{Value, json};

/// A Service with a cluster IP and one TCP port named `http`.
pub fn service(name: &str, cluster_ip: &str, port: u16) -> Value {
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": metadata(name),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "clusterIPs": [cluster_ip],
            "ports": [{"name": "http", "protocol": "TCP", "port": port, "targetPort": port}],
        },
    })
}

/// The object with a label.
pub fn labelled(mut object: Value, label: &str, value: &str) -> Value {
    object["metadata"]["labels"][label] = value.into();
    object
}

/// An IPv4 EndpointSlice of a service in the same namespace, all endpoints ready.
pub fn endpoint_slice(name: &str, service: &str, addresses: &[&str], port: u16) -> Value {
    let endpoint = |address: &&str| json!({"addresses": [address], "conditions": {"ready": true}});
    let mut metadata = metadata(name);
    metadata["labels"] = json!({"kubernetes.io/service-name": service});
    json!({
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": port}],
    })
}

/// A Node with one internal address.
pub fn node(name: &str, address: &str) -> Value {
    json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    })
}

/// A ServiceCIDR with one range.
pub fn service_cidr(name: &str, range: &str) -> Value {
    json!({
        "kind": "ServiceCIDR",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": name},
        "spec": {"cidrs": [range]},
    })
}

fn metadata(name: &str) -> Value {
    let (namespace, name) = name.split_once('/').expect("a name is namespace/name");
    json!({"name": name, "namespace": namespace})
}
