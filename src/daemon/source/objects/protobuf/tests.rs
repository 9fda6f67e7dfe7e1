//! Objects encoded by the definitions of Kubernetes give the same events as their JSON.
//!
//! The definitions are in `netlink-tests/messages/kubernetes.proto`, which Kubernetes' types wrote.

use engine::model::{Event, Problem};
use engine::routing::ServedServices;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use test_messages as messages;

use super::envelope::Marker;
use super::*;
use crate::source::Wanted;
use crate::source::objects::resource::Followed;
use crate::source::objects::{Converter, EndpointSlice, Node, Service, ServiceCidr};

const NODE: &str = "node-a";

/// What an object becomes on a node that needs its own Node alone, and on one that needs all.
type Converted = [(Event, Vec<Problem>); 2];

fn converted<T: Followed>(object: &T) -> Converted {
    let services = ServedServices::default();
    [false, true].map(|other_nodes| {
        let wanted = Wanted { node: NODE, services: &services, other_nodes };
        object.clone().convert(&mut Converter::of(wanted))
    })
}

fn of_json<T: Followed>(object: &Value) -> Converted {
    // Through text, whose strings are borrowed.
    converted::<T>(&serde_json::from_str(&object.to_string()).unwrap())
}

fn of_protobuf<T: Followed>(kind: &str, object: &Value) -> Converted {
    let message = messages::message(kind, object).unwrap();
    converted(&T::from_protobuf(Fields::of(&message)).unwrap())
}

/// Texts that are valid in some fields and not in others.
fn text() -> impl Strategy<Value = Value> {
    let usual = select(vec![
        "",
        "web",
        "10.96.0.1",
        "10.96.0.2",
        "fd00::1",
        "10.0.0.0/8",
        "::/0",
        "None",
        "IPv4",
        "IPv6",
        "FQDN",
        "TCP",
        "UDP",
        "Local",
        "Cluster",
        "ClientIP",
        "LoadBalancer",
        "NodePort",
        "VIP",
        "Proxy",
        NODE,
        "zone-a",
        "ExternalName",
        "true",
        "7",
    ]);
    prop_oneof![9 => usual.prop_map(Value::from), 1 => "\\PC{0,12}".prop_map(Value::from)]
}

fn texts() -> impl Strategy<Value = Value> {
    vec(text(), 0..4).prop_map(Value::from)
}

fn number() -> impl Strategy<Value = Value> {
    let usual = select(vec![0, 1, 80, 8080, 65535, 65536, -1, i32::MAX, i32::MIN]);
    prop_oneof![usual, any::<i32>()].prop_map(Value::from)
}

fn flag() -> impl Strategy<Value = Value> {
    any::<bool>().prop_map(Value::from)
}

/// An object with some of these fields.
fn some(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let fields = fields.into_iter().map(|(name, value)| {
        option::weighted(0.8, value.prop_map(move |it| (name.to_owned(), it)))
    });
    fields
        .collect::<Vec<_>>()
        .prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()))
        .boxed()
}

fn list(item: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    vec(item, 0..4).prop_map(Value::from).boxed()
}

fn metadata() -> BoxedStrategy<Value> {
    let time = select(vec!["2024-02-29T23:59:59Z", "1970-01-01T00:00:00Z", "1969-07-20T20:17:40Z"]);
    let labels = some(vec![
        ("kubernetes.io/service-name", text().boxed()),
        ("service.kubernetes.io/service-proxy-name", Just("x".into()).boxed()),
        ("service.kubernetes.io/headless", Just("".into()).boxed()),
        ("topology.kubernetes.io/zone", text().boxed()),
        ("deltaproxy.io/weighted", text().boxed()),
        ("app", text().boxed()),
    ]);
    // Two of the labels remove a Service or a slice, and so most objects should lack them.
    let labels = (labels, prop::bool::weighted(0.2)).prop_map(|(mut labels, keeps)| {
        if !keeps && let Some(labels) = labels.as_object_mut() {
            labels.retain(|key, _| !key.starts_with("service.kubernetes.io"));
        }
        labels
    });
    let annotations = some(vec![
        (
            "endpoints.kubernetes.io/last-change-trigger-time",
            time.clone().prop_map(Value::from).boxed(),
        ),
        ("deltaproxy.io/scheduler", select(vec!["mh", "rr", "?"]).prop_map(Value::from).boxed()),
        (
            "deltaproxy.io/weights",
            select(vec!["pod-1=3", "=", "zone-a=0"]).prop_map(Value::from).boxed(),
        ),
        ("deltaproxy.io/weight", text().boxed()),
        (
            "deltaproxy.io/forwarding",
            select(vec!["direct", "translate", "?", ""]).prop_map(Value::from).boxed(),
        ),
        (
            "service.cilium.io/forwarding-mode",
            select(vec!["dsr", "snat", "?"]).prop_map(Value::from).boxed(),
        ),
        ("other", text().boxed()),
    ]);
    let managed = json!([{"manager": "m", "operation": "Update", "time": "2024-01-01T00:00:00Z",
                          "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
    let known = some(vec![
        ("namespace", select(vec!["default", "a b"]).prop_map(Value::from).boxed()),
        ("resourceVersion", Just("7".into()).boxed()),
        ("generation", number().boxed()),
        ("creationTimestamp", time.clone().prop_map(Value::from).boxed()),
        ("labels", labels.boxed()),
        ("annotations", annotations),
        ("finalizers", texts().boxed()),
        ("managedFields", Just(managed).boxed()),
    ]);
    (known, prop::bool::weighted(0.2), prop::bool::weighted(0.1))
        .prop_map(|(mut metadata, is_leaving, is_nameless)| {
            if is_leaving {
                metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z".into();
            }
            if !is_nameless {
                metadata["name"] = "web".into();
            }
            metadata
        })
        .boxed()
}

fn service() -> BoxedStrategy<Value> {
    let port = some(vec![
        ("name", text().boxed()),
        ("protocol", text().boxed()),
        ("port", number().boxed()),
        ("targetPort", prop_oneof![number(), text()].boxed()),
        ("nodePort", number().boxed()),
        ("appProtocol", text().boxed()),
    ]);
    let affinity = some(vec![("clientIP", some(vec![("timeoutSeconds", number().boxed())]))]);
    let ingress = some(vec![
        ("ip", text().boxed()),
        ("hostname", text().boxed()),
        ("ipMode", text().boxed()),
    ]);
    let spec = some(vec![
        ("type", text().boxed()),
        ("clusterIP", text().boxed()),
        ("clusterIPs", texts().boxed()),
        ("ipFamilies", texts().boxed()),
        ("ports", list(port)),
        ("externalIPs", texts().boxed()),
        ("loadBalancerSourceRanges", texts().boxed()),
        ("internalTrafficPolicy", text().boxed()),
        ("externalTrafficPolicy", text().boxed()),
        ("sessionAffinity", text().boxed()),
        ("sessionAffinityConfig", affinity),
        ("healthCheckNodePort", number().boxed()),
        ("loadBalancerIP", text().boxed()),
        ("externalName", text().boxed()),
        ("publishNotReadyAddresses", flag().boxed()),
        ("ipFamilyPolicy", text().boxed()),
        ("loadBalancerClass", text().boxed()),
        ("trafficDistribution", text().boxed()),
    ]);
    // Usually the service has a cluster IP, without which nothing else matters. Fields that refuse
    // the service are often absent, because then only its problems are compared.
    let spec = (spec, prop::bool::weighted(0.8), prop::bool::weighted(0.3));
    let spec = spec.prop_map(|(mut spec, is_usual, is_valid)| {
        if is_valid {
            spec = json!({"ports": [{"port": 80}], "externalIPs": spec["externalIPs"]});
        }
        if is_usual {
            spec["type"] = "LoadBalancer".into();
            spec["clusterIP"] = "10.96.0.1".into();
        }
        spec
    });
    let status = some(vec![("loadBalancer", some(vec![("ingress", list(ingress))]))]);
    some(vec![("metadata", metadata()), ("spec", spec.boxed()), ("status", status)])
}

fn endpoint_slice() -> BoxedStrategy<Value> {
    let conditions = some(vec![
        ("ready", flag().boxed()),
        ("serving", flag().boxed()),
        ("terminating", flag().boxed()),
    ]);
    let names = || list(some(vec![("name", text().boxed())]));
    let endpoint = some(vec![
        ("addresses", texts().boxed()),
        ("conditions", conditions),
        ("hostname", text().boxed()),
        ("targetRef", some(vec![("kind", text().boxed()), ("name", text().boxed())])),
        ("nodeName", text().boxed()),
        ("zone", text().boxed()),
        ("hints", some(vec![("forZones", names()), ("forNodes", names())])),
    ]);
    let port = some(vec![
        ("name", text().boxed()),
        ("protocol", text().boxed()),
        ("port", number().boxed()),
        ("appProtocol", text().boxed()),
    ]);
    let family = prop_oneof![8 => Just(Value::from("IPv4")), 2 => text()];
    some(vec![
        ("metadata", metadata()),
        ("addressType", family.boxed()),
        ("endpoints", list(endpoint)),
        ("ports", list(port)),
    ])
}

fn node() -> BoxedStrategy<Value> {
    let taint = some(vec![
        ("key", select(vec!["ToBeDeletedByClusterAutoscaler", "x"]).prop_map(Value::from).boxed()),
        ("value", text().boxed()),
        ("effect", text().boxed()),
    ]);
    let kinds = select(vec!["InternalIP", "ExternalIP", "Hostname"]).prop_map(Value::from);
    let address = some(vec![("type", kinds.boxed()), ("address", text().boxed())]);
    let spec = some(vec![
        ("podCIDR", text().boxed()),
        ("podCIDRs", texts().boxed()),
        ("taints", list(taint)),
        ("providerID", text().boxed()),
        ("unschedulable", flag().boxed()),
    ]);
    let condition = some(vec![
        ("type", select(vec!["Ready", "x"]).prop_map(Value::from).boxed()),
        ("status", select(vec!["True", "False", ""]).prop_map(Value::from).boxed()),
        ("lastHeartbeatTime", Just("2024-02-29T23:59:59Z".into()).boxed()),
        ("reason", text().boxed()),
    ]);
    let status = some(vec![
        ("phase", text().boxed()),
        ("conditions", list(condition)),
        ("addresses", list(address)),
    ]);
    // This node's, or another one.
    let name = select(vec![NODE, "node-b"]).prop_map(Value::from);
    let metadata = (metadata(), name).prop_map(|(mut metadata, name)| {
        if metadata.get("name").is_some() {
            metadata["name"] = name;
        }
        metadata
    });
    some(vec![("metadata", metadata.boxed()), ("spec", spec), ("status", status)])
}

fn service_cidr() -> BoxedStrategy<Value> {
    some(vec![("metadata", metadata()), ("spec", some(vec![("cidrs", texts().boxed())]))])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn services_are_the_same_as_in_json(object in service()) {
        prop_assert_eq!(of_protobuf::<Service>("Service", &object), of_json::<Service>(&object));
    }

    #[test]
    fn endpoint_slices_are_the_same_as_in_json(object in endpoint_slice()) {
        prop_assert_eq!(
            of_protobuf::<EndpointSlice>("EndpointSlice", &object),
            of_json::<EndpointSlice>(&object)
        );
    }

    #[test]
    fn nodes_are_the_same_as_in_json(object in node()) {
        prop_assert_eq!(of_protobuf::<Node>("Node", &object), of_json::<Node>(&object));
    }

    #[test]
    fn service_cidrs_are_the_same_as_in_json(object in service_cidr()) {
        prop_assert_eq!(
            of_protobuf::<ServiceCidr>("ServiceCIDR", &object),
            of_json::<ServiceCidr>(&object)
        );
    }

    #[test]
    fn any_bytes_are_an_object_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Service::from_protobuf(Fields::of(&bytes));
        let _ = EndpointSlice::from_protobuf(Fields::of(&bytes));
        let _ = Frame::read(&bytes, ("v1", "Service"));
        let _ = Page::read(&[b"k8s\0", &bytes[..]].concat(), ("v1", "Service"));
        let _ = read_status(&bytes);
    }

    #[test]
    fn an_event_that_ends_early_is_an_error(
        object in service(),
        place in any::<prop::sample::Index>(),
    ) {
        let event = json!({"type": "ADDED", "object": typed("Service", object)});
        let event = messages::event(&event).unwrap();
        let end = place.index(event.len());
        prop_assert!(Frame::read(&event[..end], ("v1", "Service")).is_err());
    }
}

fn typed(kind: &str, mut object: Value) -> Value {
    object["kind"] = kind.into();
    object["apiVersion"] = "v1".into();
    object
}

/// Go's encoder writes fields that are no pointers always, and JSON leaves them out if empty.
#[test]
fn empty_values_that_the_server_writes_are_the_same_as_absent_ones() {
    let named = || json!({"name": "web", "namespace": "default", "resourceVersion": "7"});
    let written = |mut metadata: Value| {
        for field in ["generateName", "selfLink", "uid"] {
            metadata[field] = "".into();
        }
        metadata["generation"] = 0.into();
        metadata["creationTimestamp"] = json!({});
        metadata
    };
    let port = json!({"name": "", "protocol": "TCP", "port": 80, "nodePort": 0,
                      "targetPort": {"type": 0, "intVal": 0, "strVal": ""}});
    let sparse = json!({
        "metadata": named(),
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                 "ports": [{"protocol": "TCP", "port": 80}]},
    });
    let full = json!({
        "metadata": written(named()),
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                 "ports": [port], "sessionAffinity": "", "loadBalancerIP": "",
                 "externalName": "", "externalTrafficPolicy": "", "healthCheckNodePort": 0,
                 "publishNotReadyAddresses": false},
        "status": {"loadBalancer": {}},
    });
    assert_eq!(of_protobuf::<Service>("Service", &full), of_json::<Service>(&sparse));

    let node = |metadata: Value, spec| json!({"metadata": metadata, "spec": spec});
    let own = || json!({"name": NODE, "resourceVersion": "7"});
    let mut full = written(own());
    full["namespace"] = "".into();
    let spec = json!({"podCIDR": "", "providerID": "", "unschedulable": false});
    let full = node(full, spec);
    assert_eq!(of_protobuf::<Node>("Node", &full), of_json::<Node>(&node(own(), json!({}))));
}

#[test]
fn a_text_that_is_not_utf_8_does_not_fail_its_object() {
    let object = json!({"metadata": {"name": "web", "namespace": "default",
                                     "annotations": {"deltaproxy.io/scheduler": "????"}}});
    let mut message = messages::message("Service", &object).unwrap();
    let at = message.windows(4).position(|bytes| bytes == b"????").unwrap();
    message[at..at + 4].fill(0xff);
    let service = Service::from_protobuf(Fields::of(&message)).unwrap();
    let text = service.metadata.annotations.get("deltaproxy.io/scheduler").unwrap();
    assert_eq!(text, "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn each_event_of_a_watch_is_read() {
    let object = typed("Node", json!({"metadata": {"name": "a", "resourceVersion": "7"}}));
    let read = |change: &str, object: &Value| {
        let event = messages::event(&json!({"type": change, "object": object})).unwrap();
        format!("{:?}", Frame::read(&event, ("v1", "Node")).map_err(|error| error.to_string()))
    };
    assert!(read("ADDED", &object).starts_with("Ok(Changed("));
    assert!(read("MODIFIED", &object).starts_with("Ok(Changed("));
    assert!(read("DELETED", &object).starts_with("Ok(Deleted("));
    let marker = Marker { resource_version: "7".into(), ends_list: false };
    assert_eq!(read("BOOKMARK", &object), format!("Ok(Bookmark({marker:?}))"));
    let mut end = object.clone();
    end["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    let marker = Marker { ends_list: true, ..marker };
    assert_eq!(read("BOOKMARK", &end), format!("Ok(Bookmark({marker:?}))"));
    let status = typed("Status", json!({"code": 410, "message": "old", "reason": "Expired"}));
    assert!(read("ERROR", &status).contains("code: 410, message: \"old\", reason: \"Expired\""));
    assert!(read("OTHER", &object).contains("a watch event has the unknown type"));
    let service = typed("Service", json!({}));
    assert!(read("ADDED", &service).contains("an object has the kind"));
}

#[test]
fn an_envelope_of_another_form_is_an_error() {
    let error = |bytes: &[u8]| Page::read(bytes, ("v1", "Node")).unwrap_err();
    assert_eq!(error(b""), FormError::NoEnvelope);
    assert_eq!(error(b"{\"kind\":\"NodeList\"}"), FormError::NoEnvelope);
    assert_eq!(error(b"k8s\0\x1a\x04gzip"), FormError::Encoded("gzip".into()));
    assert_eq!(error(b"k8s\0\x12\x05x"), FormError::Wire(WireError::Truncated));
}
