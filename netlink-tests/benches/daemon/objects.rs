//! Services and slices as long as real ones, with fields that are not read.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

pub(super) fn service(number: u32) -> Value {
    let cluster_ip = Ipv4Addr::from(0x0a60_0000 + number).to_string();
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": metadata(number, &name(number)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "clusterIPs": [cluster_ip],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "selector": {"app": name(number)},
            "trafficDistribution": "PreferClose",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// A slice of a service with these endpoints.
pub(super) fn slice(number: u32, part: usize, addresses: impl Iterator<Item = u32>) -> Value {
    let mut metadata = metadata(number, &format!("{}-{part:05x}", name(number)));
    metadata["labels"]["kubernetes.io/service-name"] = name(number).into();
    metadata["labels"]["endpointslice.kubernetes.io/managed-by"] =
        "endpointslice-controller".into();
    json!({
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": addresses.map(|address| endpoint(number, address)).collect::<Vec<_>>(),
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    })
}

pub(super) fn endpoint(number: u32, address: u32) -> Value {
    let zone = format!("zone-{}", address % 3);
    json!({
        "addresses": [Ipv4Addr::from(address).to_string()],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": format!("node-{}", address % 1_000 + 2),
        "zone": zone,
        "hints": {"forZones": [{"name": zone}]},
        "targetRef": {
            "kind": "Pod",
            "namespace": namespace(number),
            "name": format!("{}-{address:08x}", name(number)),
            "uid": uid(address),
        },
    })
}

fn metadata(number: u32, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": namespace(number),
        "uid": uid(number),
        "generation": 7,
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": {"app": self::name(number), "team": namespace(number)},
        "managedFields": [{
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-03-01T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:team": {}}}},
        }],
    })
}

fn name(number: u32) -> String {
    format!("service-{number}")
}

fn namespace(number: u32) -> String {
    format!("team-{}", number % 100)
}

fn uid(number: u32) -> String {
    format!("{number:08x}-0000-4000-8000-0123456789ab")
}
