//! The probe's objects in the Kubernetes API, as JSON.

use std::net::{IpAddr, SocketAddr};

use nft::family::Family;
use serde_json::{Value, json};

use super::settings::Protocol;

/// Name of the Service and of its port, prefix of the EndpointSlice's name, and value of labels.
pub const NAME: &str = "deltaproxy-probe";

/// Label of the probe's namespaces, with the value [`NAME`].
pub const LABEL: &str = "app.kubernetes.io/managed-by";

/// Annotation of a namespace with the name of the node of the probe that created it.
pub const NODE: &str = "deltaproxy-probe/node";

/// Port of the Service.
pub(super) const PORT: u16 = 80;

/// Path of the list of all namespaces.
pub(super) const NAMESPACES: &str = "/api/v1/namespaces";

/// Returns the path of a namespace.
pub(super) fn namespace_path(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}")
}

/// Returns the path of the Services of a namespace.
pub(super) fn services_path(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/services")
}

/// Returns the path of the EndpointSlices of a namespace.
pub(super) fn slices_path(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

/// Returns the path of the probe's Service.
pub(super) fn service_path(namespace: &str) -> String {
    format!("{}/{NAME}", services_path(namespace))
}

/// Returns the path of the probe's EndpointSlice.
pub(super) fn slice_path(namespace: &str) -> String {
    format!("{}/{NAME}", slices_path(namespace))
}

/// Returns the Namespace.
pub(super) fn namespace(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {LABEL: NAME},
            "annotations": {NODE: node},
        },
    })
}

/// Returns a Service without a selector, of `family` or else of the cluster's first family.
pub(super) fn service(namespace: &str, protocol: Protocol, family: Option<Family>) -> Value {
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {LABEL: NAME}},
        "spec": {
            "type": "ClusterIP",
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": NAME, "protocol": protocol.name(), "port": PORT}],
        },
    });
    if let Some(family) = family {
        service["spec"]["ipFamilies"] = json!([family.name()]);
    }
    service
}

/// Returns the EndpointSlice with this endpoint.
pub(super) fn slice(namespace: &str, protocol: Protocol, endpoint: SocketAddr) -> Value {
    let family = Family::of(endpoint.ip());
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": NAME,
                "endpointslice.kubernetes.io/managed-by": NAME,
                LABEL: NAME,
            },
        },
        "addressType": family.name(),
        "endpoints": [{
            "addresses": [endpoint.ip()],
            "conditions": {"ready": true, "serving": true, "terminating": false},
        }],
        "ports": ports(protocol, endpoint.port()),
    })
}

/// Returns the merge patch that replaces the endpoint by the one at this port.
pub(super) fn change(protocol: Protocol, port: u16) -> Value {
    json!({"ports": ports(protocol, port)})
}

fn ports(protocol: Protocol, port: u16) -> Value {
    json!([{"name": NAME, "protocol": protocol.name(), "port": port}])
}

/// Returns the ClusterIP of a Service that the API server has created.
pub(super) fn cluster_ip(service: &Value) -> Option<IpAddr> {
    service["spec"]["clusterIP"].as_str()?.parse().ok()
}

/// Returns the resource version of an object.
pub(super) fn version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_slice_has_the_family_and_the_labels_that_proxies_read() {
        let slice = slice("a", Protocol::Udp, "[fd00::2]:53".parse().unwrap());
        assert_eq!(slice["addressType"], "IPv6");
        assert_eq!(slice["endpoints"][0]["addresses"], json!(["fd00::2"]));
        assert_eq!(slice["ports"], json!([{"name": NAME, "protocol": "UDP", "port": 53}]));
        let labels = &slice["metadata"]["labels"];
        assert_eq!(labels["kubernetes.io/service-name"], NAME);
        assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], NAME);
        assert_eq!(labels["service.kubernetes.io/headless"], Value::Null);
    }

    #[test]
    fn a_service_without_a_family_leaves_the_choice_to_the_server() {
        let service = |family| service("a", Protocol::Tcp, family);
        assert_eq!(service(None)["spec"]["ipFamilies"], Value::Null);
        assert_eq!(service(Some(Family::Ip6))["spec"]["ipFamilies"], json!(["IPv6"]));
        assert_eq!(service(None)["spec"]["selector"], Value::Null);
    }

    #[test]
    fn a_headless_service_has_no_cluster_ip() {
        let answer = |ip: &str| json!({"spec": {"clusterIP": ip}});
        assert_eq!(cluster_ip(&answer("fd00::1")), Some("fd00::1".parse().unwrap()));
        assert_eq!(cluster_ip(&answer("None")), None);
        assert_eq!(cluster_ip(&json!({})), None);
    }
}
