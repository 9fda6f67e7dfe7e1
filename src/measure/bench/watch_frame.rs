//! Frames of a watch as an API server of Kubernetes 1.36 writes them in protobuf, with all usual
//! fields.
//!
//! Fields that readers ignore are included: managed fields, owners, references to pods, and the empty
//! fields that Go's encoder writes. The numbers of fields are those of the published message
//! definitions.

use std::net::Ipv4Addr;

use daemon::protobuf_message::Message;
use engine::model::Resource;

use super::cluster::{Cluster, NODE_NAME, NODES, SLICE_SIZE, State, ZONES};

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFrame {
    /// Watched resource.
    pub resource: Resource,
    change: &'static str,
    /// The object in its envelope.
    object: Vec<u8>,
}

/// Returns the external IP of a service, if it has one.
pub(super) fn external_ip(service: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_EXTERNAL_IP + service)
}

/// Namespaces over which services are spread.
const NAMESPACES: u32 = 100;

/// First external IP: 198.18.0.1.
const FIRST_EXTERNAL_IP: u32 = 0xc612_0001;

/// First bytes of an object (protobuf.go of apimachinery's serializers).
const PREFIX: &[u8] = b"k8s\0";

const CREATED: &str = "2026-01-01T00:00:00Z";

/// The same time in seconds since 1970.
const CREATED_SECONDS: u64 = 1_767_225_600;

const SERVICE_FIELDS: &str = r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}"#;

const SLICE_FIELDS: &str = r#"{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{".":{},"f:endpoints.kubernetes.io/last-change-trigger-time":{}},"f:generateName":{},"f:labels":{".":{},"f:endpointslice.kubernetes.io/managed-by":{},"f:kubernetes.io/service-name":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"00000000-0000-4000-8000-000000000000\"}":{}}},"f:ports":{}}"#;

/// Frames of the objects of a cluster.
impl Cluster {
    /// Returns the frame of this node, in `zone` if given.
    pub fn node(&mut self, zone: Option<&str>) -> WatchFrame {
        WatchFrame::node(NODE_NAME, zone, self.next_version())
    }

    /// Returns the frames that create a service: the Service and its slices.
    pub fn whole(&mut self, service: u32) -> Vec<WatchFrame> {
        let mut frames = vec![self.service(service)];
        let slices = self.slice_count(service);
        frames.extend((0..slices).map(|slice| self.slice(service, slice)));
        frames
    }

    /// Returns the frames that remove a service, and resets its state.
    pub(super) fn remove(&mut self, service: u32) -> Vec<WatchFrame> {
        let frames = self.whole(service).iter().map(WatchFrame::deleted).collect();
        self.changed.remove(&service);
        frames
    }

    /// Returns the frame of a Service.
    pub fn service(&mut self, service: u32) -> WatchFrame {
        let version = self.next_version();
        let unchanged = State::default();
        let state = self.changed.get(&service).unwrap_or(&unchanged);
        WatchFrame::service(service, version, state)
    }

    /// Returns the frame of a slice of a service.
    pub fn slice(&mut self, service: u32, slice: usize) -> WatchFrame {
        let version = self.next_version();
        let changed = self.changed.get(&service).map(|state| &state.endpoints);
        // A service that has not changed stores no endpoints.
        let original = changed.is_none().then(|| self.original(service));
        let all = changed.into_iter().flatten().copied().chain(original.into_iter().flatten());
        let endpoints = all.skip(slice * SLICE_SIZE).take(SLICE_SIZE);
        WatchFrame::slice((service, slice), version, endpoints)
    }
}

impl WatchFrame {
    /// Returns the frame of a Service.
    fn service(number: u32, version: u64, state: &State) -> Self {
        let name = format!("service-{number}");
        let cluster_ip = Cluster::cluster_ip(number).to_string();
        let external_ip = state.is_external.then(|| external_ip(number).to_string());
        let metadata = metadata([&name, "", &namespace(number)], number, [version, 0])
            .entry(11, "app", &name)
            .message(17, &managed("kubectl", "v1", SERVICE_FIELDS));
        let target_port = new().number(1, 0).number(2, 8080).text(3, "");
        let port = new()
            .text(1, "http")
            .text(2, protocol(number))
            .number(3, 80)
            .message(4, &target_port)
            .number(5, 0);
        let spec = new()
            .message(1, &port)
            .entry(2, "app", &name)
            .texts_from(3, [&cluster_ip, "ClusterIP"])
            .texts(5, external_ip.as_deref())
            .texts_from(7, ["None", ""])
            .texts_from(10, ["", ""])
            .number(12, 0)
            .flag(13, false)
            .texts_from(17, ["SingleStack", &cluster_ip, "IPv4"])
            .text(22, if state.is_local { "Local" } else { "Cluster" });
        let status = new().message(1, &new());
        let message = new().message(1, &metadata).message(2, &spec).message(3, &status);
        Self::modified(Resource::Services, ("v1", "Service"), &message)
    }

    /// Returns the frame of a slice of a service, with these endpoints.
    fn slice(
        (service, slice): (u32, usize),
        version: u64,
        endpoints: impl Iterator<Item = u32>,
    ) -> Self {
        let (name, namespace) = (format!("service-{service}"), namespace(service));
        let owner = new().text(1, "Service").texts_from(3, [&name, &uid(service), "v1"]);
        let owner = owner.flag(6, true).flag(7, true);
        let manager = "endpointslice-controller.k8s.io";
        let fields = managed("kube-controller-manager", "discovery.k8s.io/v1", SLICE_FIELDS);
        let names = [&format!("{name}-{slice}"), &format!("{name}-"), &namespace];
        let metadata = metadata(names.map(String::as_str), service, [version; 2])
            .entry(11, "app", &name)
            .entry(11, "endpointslice.kubernetes.io/managed-by", manager)
            .entry(11, "kubernetes.io/service-name", &name)
            .entry(12, "endpoints.kubernetes.io/last-change-trigger-time", CREATED)
            .message(13, &owner)
            .message(17, &fields);
        let mut message = new().message(1, &metadata);
        for endpoint in endpoints {
            message = message.message(2, &encode_endpoint(endpoint, &name, &namespace));
        }
        let port = new().text(1, "http").text(2, protocol(service)).number(3, 8080);
        let message = message.message(3, &port).text(4, "IPv4");
        Self::modified(Resource::EndpointSlices, ("discovery.k8s.io/v1", "EndpointSlice"), &message)
    }

    fn node(name: &str, zone: Option<&str>, version: u64) -> Self {
        let mut metadata = metadata([name, "", ""], 0, [version, 0])
            .entry(11, "kubernetes.io/hostname", name)
            .entry(11, "kubernetes.io/os", "linux");
        if let Some(zone) = zone {
            metadata = metadata.entry(11, "topology.kubernetes.io/zone", zone);
        }
        let spec = new().texts_from(1, ["10.244.0.0/24", "", ""]).flag(4, false);
        let spec = spec.text(7, "10.244.0.0/24");
        let status = new()
            .text(3, "")
            .message(5, &new().text(1, "InternalIP").text(2, "192.0.2.1"))
            .message(5, &new().text(1, "Hostname").text(2, name))
            .message(6, &new().message(1, &new().number(1, 0)))
            .message(7, &new().texts_from(1, [""; 10]));
        let message = new().message(1, &metadata).message(2, &spec).message(3, &status);
        Self::modified(Resource::Nodes, ("v1", "Node"), &message)
    }

    fn modified(resource: Resource, (version, kind): (&str, &str), message: &Message) -> Self {
        let types = new().texts_from(1, [version, kind]);
        let envelope = new().message(1, &types).message(2, message).texts_from(3, ["", ""]);
        let object = [PREFIX, envelope.as_bytes()].concat();
        Self { resource, change: "MODIFIED", object }
    }

    /// Returns the frame of the object's deletion.
    pub(super) fn deleted(&self) -> Self {
        Self { change: "DELETED", ..self.clone() }
    }

    /// Returns the event after its length (framer.go of apimachinery), as one read of the connection
    /// delivers it.
    pub(super) fn received(&self) -> Vec<u8> {
        let event = new().text(1, self.change).message(2, &new().bytes(1, &self.object));
        // The events of the bench are far below 4 GiB.
        let length = u32::try_from(event.as_bytes().len()).unwrap_or(u32::MAX);
        [&length.to_be_bytes(), event.as_bytes()].concat()
    }
}

fn encode_endpoint(number: u32, service: &str, namespace: &str) -> Message {
    let zone = ZONES[number as usize % ZONES.len()];
    let name = format!("{service}-{number:x}");
    let pod = new().texts_from(1, ["Pod", namespace, &name, &uid(number), "", "", ""]);
    new()
        .text(1, &Cluster::endpoint_address(number).to_string())
        .message(2, &new().flag(1, true).flag(2, true).flag(3, false))
        .message(4, &pod)
        .text(6, &format!("node-{}", number % NODES))
        .text(7, zone)
        .message(8, &new().message(1, &new().text(1, zone)))
}

/// Returns the metadata of an object with this name, prefix of a generated name and namespace.
fn metadata(
    [name, prefix, namespace]: [&str; 3],
    number: u32,
    [version, generation]: [u64; 2],
) -> Message {
    let texts = [name, prefix, namespace, "", &uid(number), &version.to_string()];
    new().texts_from(1, texts).number(7, generation).message(8, &created())
}

fn managed(manager: &str, version: &str, fields: &str) -> Message {
    new()
        .texts_from(1, [manager, "Update", version])
        .message(4, &created())
        .text(6, "FieldsV1")
        .message(7, &new().text(1, fields))
        .text(8, "")
}

fn created() -> Message {
    new().number(1, CREATED_SECONDS).number(2, 0)
}

fn new() -> Message {
    Message::default()
}

fn protocol(service: u32) -> &'static str {
    if Cluster::takes_traffic(service) { "UDP" } else { "TCP" }
}

fn namespace(service: u32) -> String {
    format!("bench-{}", service % NAMESPACES)
}

fn uid(number: u32) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn assert_encodes(frame: &WatchFrame, change: &str, object: &Value) {
        let event = test_messages::event(&json!({"type": change, "object": object})).unwrap();
        assert_eq!(frame.received(), test_messages::frame(&event), "{object:#}");
    }

    fn managed(manager: &str, version: &str, fields: &str) -> Value {
        let fields: Value = serde_json::from_str(fields).unwrap();
        json!([{
            "manager": manager, "operation": "Update", "apiVersion": version, "time": CREATED,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }])
    }

    #[test]
    fn a_service_is_encoded_by_the_published_definitions() {
        let state = State { is_local: true, is_external: true, ..State::default() };
        let expected = json!({
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {
                "name": "service-109", "namespace": "bench-9", "uid": uid(109),
                "resourceVersion": "9", "creationTimestamp": CREATED,
                "labels": {"app": "service-109"},
                "managedFields": managed("kubectl", "v1", SERVICE_FIELDS),
            },
            "spec": {
                "ports": [{"name": "http", "protocol": "UDP", "port": 80, "targetPort": 8080}],
                "selector": {"app": "service-109"},
                "clusterIP": "10.96.0.110", "clusterIPs": ["10.96.0.110"],
                "externalIPs": ["198.18.0.110"], "type": "ClusterIP", "sessionAffinity": "None",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "internalTrafficPolicy": "Local",
            },
            "status": {"loadBalancer": {}},
        });
        let frame = WatchFrame::service(109, 9, &state);
        assert_encodes(&frame, "MODIFIED", &expected);
        assert_encodes(&frame.deleted(), "DELETED", &expected);
    }

    #[test]
    fn a_slice_is_encoded_by_the_published_definitions() {
        let endpoint = |address, number: u32, node, zone| {
            json!({
                "addresses": [address],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {
                    "kind": "Pod", "namespace": "bench-7", "name": format!("service-7-{number:x}"),
                    "uid": uid(number),
                },
                "nodeName": node, "zone": zone, "hints": {"forZones": [{"name": zone}]},
            })
        };
        let fields = managed("kube-controller-manager", "discovery.k8s.io/v1", SLICE_FIELDS);
        let expected = json!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": "service-7-1", "generateName": "service-7-", "namespace": "bench-7",
                "uid": uid(7), "resourceVersion": "300", "generation": 300,
                "creationTimestamp": CREATED,
                "labels": {
                    "app": "service-7",
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                    "kubernetes.io/service-name": "service-7",
                },
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": CREATED},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": "service-7", "uid": uid(7),
                    "controller": true, "blockOwnerDeletion": true,
                }],
                "managedFields": fields,
            },
            "addressType": "IPv4",
            "endpoints": [
                endpoint("11.0.0.2", 1, "node-1", "zone-b"),
                endpoint("11.0.2.189", 700, "node-200", "zone-b"),
            ],
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        });
        let frame = WatchFrame::slice((7, 1), 300, [1, 700].into_iter());
        assert_encodes(&frame, "MODIFIED", &expected);
    }

    #[test]
    fn a_node_is_encoded_by_the_published_definitions() {
        let labels = json!({
            "kubernetes.io/hostname": "node-0", "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": "zone-a",
        });
        let expected = json!({
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {
                "name": "node-0", "uid": uid(0), "resourceVersion": "2",
                "creationTimestamp": CREATED, "labels": labels,
            },
            "spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "192.0.2.1"},
                {"type": "Hostname", "address": "node-0"},
            ]},
        });
        assert_encodes(&WatchFrame::node("node-0", Some("zone-a"), 2), "MODIFIED", &expected);
    }
}
