//! Tests of the conversion: tables of JSON objects and the resulting model or problems.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::model::{
    self, Change, EndpointNames, Event, Forwarding, HashedSource, ObjectName, Problem, Protocol,
    Scheduler, TrafficPolicy, Weights,
};
use engine::routing::ServedServices;
use serde_json::{Value, json};

use super::*;
use crate::source::Wanted;

const NODE: &str = "node-a";

/// Converts a Service with a cluster IP, a port and these fields of `spec`.
fn service_with(spec: Value) -> (Change<model::Service>, Vec<Problem>) {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
    });
    merge(&mut object["spec"], spec);
    service(object)
}

fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { panic!("not an object") };
    for (key, value) in from {
        into[key] = value;
    }
}

fn service(object: Value) -> (Change<model::Service>, Vec<Problem>) {
    Converter::new(NODE).service(&serde_json::from_value(object).unwrap())
}

fn slice(object: Value) -> (Change<model::EndpointSlice>, Vec<Problem>) {
    Converter::new(NODE).endpoint_slice(serde_json::from_value(object).unwrap())
}

/// Converts a slice of service `web` with these additional fields.
fn slice_with(fields: Value) -> (Change<model::EndpointSlice>, Vec<Problem>) {
    let mut object = json!({
        "metadata": {"name": "s", "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "web", "other": "label"}},
        "addressType": "IPv4",
    });
    merge(&mut object, fields);
    slice(object)
}

#[track_caller]
fn is<T: std::fmt::Debug>((change, problems): (Change<T>, Vec<Problem>)) -> T {
    assert_eq!(problems, [], "problems");
    match change {
        Change::Is(object) => object,
        Change::Invalid(name) | Change::Gone(name) => panic!("{name} is not usable"),
    }
}

/// Returns the object and the fields that were left out of it.
#[track_caller]
fn partly<T: std::fmt::Debug>((change, problems): (Change<T>, Vec<Problem>)) -> (T, Vec<String>) {
    match change {
        Change::Is(object) => (object, problems.into_iter().map(|it| it.field).collect()),
        Change::Invalid(name) | Change::Gone(name) => panic!("{name}: {problems:?}"),
    }
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Converts a Service with these annotations and labels.
fn annotated(annotations: &Value, labels: &Value) -> (Change<model::Service>, Vec<Problem>) {
    service(json!({
        "metadata": {"name": "web", "namespace": "shop", "annotations": annotations,
                     "labels": labels},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
    }))
}

#[test]
fn an_unsupported_scheduler_is_replaced_by_the_nearest() {
    let read = |name: &str| {
        let (change, problems) = annotated(&json!({"deltaproxy.io/scheduler": name}), &json!({}));
        let Change::Is(service) = change else { panic!("{change:?}") };
        let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
        (service.scheduler, texts.join("\n"))
    };
    let maglev = Some(Scheduler::Maglev(HashedSource::Address));
    assert_eq!(read("mh"), (maglev, String::new()));
    assert_eq!(read("rr"), (Some(Scheduler::Random), String::new()));
    assert_eq!(read(""), (None, String::new()));
    let (nearest, text) = read("dh");
    assert_eq!(nearest, maglev);
    let expected = "Service shop/web: metadata.annotations[deltaproxy.io/scheduler]: scheduler dh \
                    is not supported: a service is one destination";
    assert!(text.starts_with(expected) && text.ends_with("mh is used instead"), "{text}");
    let (unknown, text) = read("best\u{7}");
    assert_eq!(unknown, None);
    assert!(
        text.ends_with(
            r#""best\u{7}" is no scheduler: expected random, rr, wrr, lc, wlc, sh, sh-port, mh or mh-port"#
        ),
        "{text}"
    );
}

#[test]
fn weights_by_name_need_the_label_that_comes_with_the_slices() {
    let (key, label) = ("deltaproxy.io/weights", "deltaproxy.io/weighted");
    let service = is(annotated(&json!({key: "zone/a=2, *=1"}), &json!({label: "true"})));
    assert_eq!(service.weights, Some(Weights::parse("zone/a=2,*=1").unwrap()));
    assert_eq!(
        is(annotated(&json!({key: "*=3"}), &json!(null))).weights,
        Weights::parse("*=3").ok()
    );
    let (service, problems) = annotated(&json!({key: "zone/a=2"}), &json!({}));
    assert!(matches!(service, Change::Is(model::Service { weights: Some(_), .. })));
    assert!(problems[0].message.starts_with("label deltaproxy.io/weighted is missing"));
    let (service, problems) = annotated(&json!({key: "a=2"}), &json!({}));
    assert!(matches!(service, Change::Is(model::Service { weights: None, .. })));
    assert!(problems[0].message.contains("expected zone/NAME=N"), "{problems:?}");
}

#[test]
fn endpoint_names_are_kept_only_for_labelled_slices() {
    let endpoints = json!([
        {"addresses": ["10.0.0.1"], "nodeName": "n1", "zone": "a", "targetRef": {"name": "web-1"}},
        {"addresses": ["127.0.0.1"], "zone": "left out"},
        {"addresses": ["10.0.0.2"], "targetRef": null},
    ]);
    let plain = slice_with(json!({"endpoints": endpoints}));
    let Change::Is(plain) = plain.0 else { panic!("{plain:?}") };
    assert_eq!(plain.weighing, None);
    let metadata = |key: &str, annotations: Value| {
        json!({"name": "s", "namespace": "default", "annotations": annotations,
               "labels": {"kubernetes.io/service-name": "web", key: ""}})
    };
    let metadata_of_weighted = metadata("deltaproxy.io/weighted", json!({}));
    let weighted = slice_with(json!({"metadata": metadata_of_weighted, "endpoints": endpoints}));
    let Change::Is(weighted) = weighted.0 else { panic!("{weighted:?}") };
    let name = |zone: &str, node: &str, pod: &str| EndpointNames {
        zone: zone.into(),
        node: node.into(),
        pod: pod.into(),
    };
    let names = [name("a", "n1", "web-1"), name("", "", "")];
    assert_eq!(*weighted.weighing.unwrap().names, names);
    assert_eq!(weighted.endpoints.len(), 2);
    let with_weight = |weight: &str| {
        let metadata = metadata("other", json!({"deltaproxy.io/weight": weight}));
        slice_with(json!({"metadata": metadata, "endpoints": []}))
    };
    assert_eq!(is(with_weight(" 3 ")).weighing.unwrap().weight, Some(3));
    let (slice, problems) = partly(with_weight("-1"));
    assert_eq!(
        (slice.weighing, problems),
        (None, vec!["metadata.annotations[deltaproxy.io/weight]".into()])
    );
}

/// A converter that follows all nodes.
fn converter_of_all_nodes() -> Converter {
    let services = ServedServices::default();
    Converter::of(Wanted { node: NODE, services: &services, other_nodes: true })
}

#[test]
fn the_forwarding_of_a_service_is_that_of_our_annotation_else_of_ciliums() {
    let (ours, ciliums) = ("deltaproxy.io/forwarding", "service.cilium.io/forwarding-mode");
    let (direct, translate) = (Some(Forwarding::Direct), Some(Forwarding::Translate));
    for (annotations, expected) in [
        (json!({}), None),
        (json!({ours: ""}), None),
        (json!({ours: "direct"}), direct),
        (json!({ours: "translate"}), translate),
        (json!({ciliums: "dsr"}), direct),
        (json!({ciliums: "SNAT"}), translate),
        (json!({ours: "direct", ciliums: "snat"}), direct),
        (json!({ours: "translate", ciliums: "dsr"}), translate),
        (json!({ours: "", ciliums: "dsr"}), direct),
        (json!({ours: "direct", ciliums: "unheard"}), direct),
    ] {
        let service = is(annotated(&annotations, &json!({})));
        assert_eq!(service.forwarding, expected, "{annotations}");
    }
}

#[test]
fn an_unknown_forwarding_is_a_problem_with_the_expectation() {
    let (ours, ciliums) = ("deltaproxy.io/forwarding", "service.cilium.io/forwarding-mode");
    for (annotations, field, message) in [
        (
            json!({ours: "dsr", ciliums: "dsr"}),
            ours,
            r#""dsr" is no forwarding: expected direct or translate"#,
        ),
        (
            json!({ciliums: "hybrid\u{7}"}),
            ciliums,
            r#""hybrid\u{7}" is no forwarding: expected dsr or snat"#,
        ),
    ] {
        let (change, problems) = annotated(&annotations, &json!({}));
        assert!(matches!(change, Change::Is(model::Service { forwarding: None, .. })));
        let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected = format!("Service shop/web: metadata.annotations[{field}]: {message}");
        assert_eq!(texts, [expected.replace('\u{7}', r"\u{7}")]);
    }
}

#[test]
fn the_scope_of_session_affinity_is_a_port_or_the_whole_service() {
    let read = |affinity: &str, scope: &str| {
        let (change, problems) = service(json!({
            "metadata": {"name": "web", "namespace": "shop",
                         "annotations": {"deltaproxy.io/affinity-scope": scope}},
            "spec": {"clusterIP": "10.96.0.1", "sessionAffinity": affinity, "ports": [{"port": 80}]},
        }));
        let problems: Vec<_> = problems.into_iter().map(|it| it.message).collect();
        let Change::Is(service) = change else { panic!("{change:?}") };
        (service.session_affinity.is_some(), service.scheduler, problems.join("\n"))
    };
    let hash = Some(Scheduler::Maglev(HashedSource::AddressForAllPorts));
    for (affinity, scope, expected) in [
        ("ClientIP", "service", (false, hash, "")),
        ("ClientIP", "port", (true, None, "")),
        ("ClientIP", "", (true, None, "")),
        ("None", "service", (false, None, "has no effect without spec.sessionAffinity ClientIP")),
        ("ClientIP", "pod", (true, None, r#"is "pod": expected service or port"#)),
    ] {
        let (is_sticky, scheduler, problems) = read(affinity, scope);
        assert_eq!((is_sticky, scheduler, &*problems), expected, "{affinity} {scope}");
    }
}

#[test]
fn nodes_of_endpoints_are_kept_only_while_all_nodes_are_followed() {
    let fields = json!({"endpoints": [
        {"addresses": ["10.0.0.1"], "nodeName": "n1"},
        {"addresses": ["127.0.0.1"], "nodeName": "left out"},
        {"addresses": ["10.0.0.2"], "nodeName": "n1"},
        {"addresses": ["10.0.0.3"]},
    ]});
    let (plain, _) = partly(slice_with(fields.clone()));
    assert_eq!(plain.weighing, None);
    let mut object = json!({
        "metadata": {"name": "s", "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
    });
    merge(&mut object, fields);
    let mut converter = converter_of_all_nodes();
    let mut read = |object: &Value| {
        let object = serde_json::from_value(object.clone()).unwrap();
        *partly(converter.endpoint_slice(object)).0.weighing.unwrap()
    };
    let followed = read(&object);
    assert!(followed.names.is_empty() && followed.weight.is_none());
    assert_eq!(followed.nodes.iter().map(|it| &***it).collect::<Vec<_>>(), ["n1", "n1", ""]);
    let again = read(&object);
    assert!(Arc::ptr_eq(&followed.nodes[0], &again.nodes[1]), "a name is stored once");
    object["metadata"]["labels"]["deltaproxy.io/weighted"] = "".into();
    let weighted = read(&object);
    let nodes: Vec<_> = weighted.names.iter().map(|it| &*it.node).collect();
    assert_eq!((nodes, weighted.nodes.len()), (vec!["n1", "n1", ""], 0));
    object["endpoints"] = json!([]);
    object["metadata"]["labels"] = json!({"kubernetes.io/service-name": "web"});
    let object = serde_json::from_value(object).unwrap();
    assert_eq!(is(converter.endpoint_slice(object)).weighing, None);
}

#[test]
fn a_full_service_is_read_field_by_field() {
    let service = is(service(json!({
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "1970-01-01T00:01:00Z",
                     "managedFields": [{"manager": 1}], "annotations": null, "labels": null},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::0001"],
            "ipFamilies": ["IPv4", "IPv6"], "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "externalIPs": ["192.0.2.010", "192.0.2.10"],
            "loadBalancerSourceRanges": [" 192.0.2.77/24 ", "2001:db8::/32"],
            "ports": [{"name": "http", "port": 80, "nodePort": 30080, "targetPort": "x"},
                      {"name": "dns", "port": 53, "protocol": "UDP"}],
        },
        "status": {"loadBalancer": {"ingress": [
            {"ip": "203.0.113.1", "ipMode": "VIP"}, {"ip": "203.0.113.2", "ipMode": "Proxy"},
            {"hostname": "lb.example.com"}, {"ip": "2001:db8::1"}]}},
    })));
    assert_eq!(service.name, ObjectName::namespaced("shop", "web"));
    assert_eq!(service.created, 60);
    assert_eq!(service.cluster_ips, ips(&["10.96.0.1", "fd00::1"]));
    assert_eq!(service.external_ips, ips(&["192.0.2.10"]));
    assert_eq!(service.load_balancer_ips, ips(&["203.0.113.1", "2001:db8::1"]));
    let ranges = ["192.0.2.0/24", "2001:db8::/32"].map(|range| range.parse().unwrap());
    assert_eq!(service.source_ranges, ranges);
    assert_eq!(service.internal_traffic_policy, TrafficPolicy::Local);
    assert_eq!(service.external_traffic_policy, TrafficPolicy::Local);
    assert_eq!(service.session_affinity, Some(Duration::from_secs(60)));
    assert_eq!(service.health_check_node_port.map(u16::from), Some(30001));
    let ports: Vec<_> = service
        .ports
        .iter()
        .map(|it| (&*it.name, it.protocol, it.port.get(), it.node_port.map(u16::from)))
        .collect();
    let dns = ("dns", Protocol::Udp, 53, None);
    assert_eq!(ports, [("http", Protocol::Tcp, 80, Some(30080)), dns]);
}

#[test]
fn services_without_an_address_or_of_another_proxy_are_gone() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"clusterIP": ""}),
        json!({"clusterIP": null}),
        json!({"clusterIP": "", "clusterIPs": ["None"]}),
        json!({"type": "ExternalName"}),
        json!({"type": "ExternalName", "clusterIP": "bad", "ports": [{"port": 0}]}),
    ] {
        let gone = (Change::Gone(ObjectName::namespaced("default", "web")), vec![]);
        assert_eq!(service_with(spec.clone()), gone, "{spec}");
    }
    let labels = json!({"service.kubernetes.io/service-proxy-name": ""});
    let foreign =
        json!({"metadata": {"name": "a", "labels": labels}, "spec": {"clusterIP": "::1"}});
    assert_eq!(service(foreign), (Change::Gone(ObjectName::cluster_scoped("a")), vec![]));
}

#[test]
fn an_impossible_value_leaves_out_the_service_and_names_the_field() {
    let affinity = |seconds: i64| json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
    let timeout = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    let cases = [
        (json!({"clusterIP": "10.96.0.300"}), "spec.clusterIP"),
        (json!({"clusterIPs": ["10.96.0.1", "x"]}), "spec.clusterIPs[1]"),
        (json!({"clusterIPs": ["10.96.0.2"]}), "spec.clusterIP"),
        (json!({"clusterIPs": ["10.96.0.1", "10.96.0.2"]}), "spec.clusterIPs[1]"),
        (json!({"ipFamilies": ["IPv6"]}), "spec.clusterIP"),
        (json!({"clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv9"]}), "spec.clusterIPs[0]"),
        (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
        (json!({"ports": [{}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 80}, {"port": 70000}]}), "spec.ports[1].port"),
        (json!({"ports": [{"port": -1}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 80, "nodePort": 70000}]}), "spec.ports[0].nodePort"),
        (json!({"ports": [{"port": 80, "protocol": "XYZ"}]}), "spec.ports[0].protocol"),
        (json!({"ports": [{"port": 80, "protocol": "tcp"}]}), "spec.ports[0].protocol"),
        (json!({"ports": [{"port": 80, "name": "a\"b"}]}), "spec.ports[0].name"),
        (json!({"ports": [{"port": 80, "name": "x".repeat(64)}]}), "spec.ports[0].name"),
        (json!({"type": "Other"}), "spec.type"),
        (json!({"internalTrafficPolicy": "local"}), "spec.internalTrafficPolicy"),
        (json!({"externalTrafficPolicy": "x"}), "spec.externalTrafficPolicy"),
        (json!({"sessionAffinity": "x"}), "spec.sessionAffinity"),
        (json!({"healthCheckNodePort": 70000}), "spec.healthCheckNodePort"),
        (affinity(0), timeout),
        (affinity(86_401), timeout),
        (affinity(-1), timeout),
    ];
    for (spec, field) in cases {
        let (change, problems) = service_with(spec.clone());
        assert_eq!(change, Change::Invalid(ObjectName::namespaced("default", "web")), "{spec}");
        assert_eq!(problems[0].field, field, "{spec}");
        assert_eq!(problems[0].object.to_string(), "Service default/web");
    }
}

#[test]
fn a_bad_entry_of_a_list_leaves_the_rest_of_the_service() {
    let (service, left_out) = partly(service_with(json!({
        "externalIPs": ["x", "", " ", "192.0.2.1"],
        "loadBalancerSourceRanges": ["10.0.0.0/33", "10.0.0.0/8"],
    })));
    assert_eq!(left_out, ["spec.externalIPs[0]", "spec.loadBalancerSourceRanges[0]"]);
    assert_eq!(service.external_ips, ips(&["192.0.2.1"]));
    assert_eq!(service.source_ranges, ["10.0.0.0/8".parse().unwrap()]);
    let ingress = json!([{"ip": "x"}, {"ip": "192.0.2.2"}]);
    let (service, left_out) = partly(self::service(json!({
        "metadata": {"name": "web"}, "spec": {"clusterIP": "10.0.0.1"},
        "status": {"loadBalancer": {"ingress": ingress}},
    })));
    assert_eq!(left_out, ["status.loadBalancer.ingress[0].ip"]);
    assert_eq!(service.load_balancer_ips, ips(&["192.0.2.2"]));
}

#[test]
fn a_repeated_port_is_left_out_and_the_first_stays() {
    let cases = [
        (json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]), "port"),
        (json!([{"name": "a", "port": 80}, {"name": "a", "port": 81}]), "name"),
        (
            json!([{"port": 80, "name": "a", "nodePort": 3}, {"port": 81, "nodePort": 3}]),
            "nodePort",
        ),
    ];
    for (ports, field) in cases {
        let (service, left_out) = partly(service_with(json!({"ports": ports})));
        assert_eq!(left_out, [format!("spec.ports[1].{field}")]);
        assert_eq!(service.ports.len(), 1);
        assert_eq!(service.ports[0].port.get(), 80);
    }
    let ports = json!([{"port": 53}, {"port": 53, "protocol": "UDP"}]);
    assert_eq!(is(service_with(json!({"ports": ports}))).ports.len(), 2);
}

#[test]
fn a_source_range_of_length_0_allows_all_sources_of_its_family() {
    let ranges = json!(["10.0.0.0/8", "::/0", "2001:db8::/32"]);
    let service = is(service_with(json!({"loadBalancerSourceRanges": ranges})));
    assert_eq!(service.source_ranges, ["10.0.0.0/8".parse().unwrap()]);
}

#[test]
fn load_balancer_addresses_are_closed_if_no_source_range_is_valid() {
    let ranges = json!({"loadBalancerSourceRanges": ["10.0.0.0/33", "x"]});
    let (service, left_out) = partly(service_with(ranges));
    let fields = ["spec.loadBalancerSourceRanges[0]", "spec.loadBalancerSourceRanges[1]"];
    assert_eq!(left_out, fields);
    let impossible = ["255.255.255.255/32", "ff00::/128"].map(|range| range.parse().unwrap());
    assert_eq!(service.source_ranges, impossible);
    let service = is(service_with(json!({"loadBalancerSourceRanges": []})));
    assert_eq!(service.source_ranges, []);
}

#[test]
fn addresses_that_no_service_can_have_are_left_out_of_lists() {
    let (service, left_out) = partly(service(json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "clusterIP": "10.96.0.1", "ports": [{"port": 80}],
            "externalIPs": ["127.0.0.1", "192.0.2.1", "224.0.0.1"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "0.0.0.0"}, {"ip": "192.0.2.2"}, {"ip": "::1"}]}},
    })));
    let ingress = |i: usize| format!("status.loadBalancer.ingress[{i}].ip");
    let external = |i: usize| format!("spec.externalIPs[{i}]");
    assert_eq!(left_out, [external(0), external(2), ingress(0), ingress(2)]);
    assert_eq!(service.external_ips, ips(&["192.0.2.1"]));
    assert_eq!(service.load_balancer_ips, ips(&["192.0.2.2"]));
    let (change, _) = service_with(json!({"clusterIP": "169.254.1.1"}));
    assert!(matches!(change, Change::Invalid(_)), "{change:?}");

    let endpoint = |address: &str| json!({"addresses": [address]});
    let addresses = ["127.0.0.1", "10.0.0.1", "169.254.0.9", "0.0.0.0"];
    let (slice, left_out) = partly(slice_with(json!({"endpoints": addresses.map(endpoint)})));
    let fields = [0, 2, 3].map(|i| format!("endpoints[{i}].addresses[0]"));
    assert_eq!(left_out, fields);
    let kept: Vec<_> = slice.endpoints.iter().map(|endpoint| endpoint.address).collect();
    assert_eq!(kept, ips(&["10.0.0.1"]));
}

#[test]
fn external_traffic_policy_counts_only_where_the_type_gives_it_a_meaning() {
    let cases = [
        (json!({"type": "ClusterIP"}), TrafficPolicy::Cluster),
        (json!({"type": "ClusterIP", "externalIPs": ["192.0.2.1"]}), TrafficPolicy::Local),
        (json!({"type": "NodePort"}), TrafficPolicy::Local),
        (json!({"type": "LoadBalancer"}), TrafficPolicy::Local),
    ];
    for (mut spec, expected) in cases {
        merge(&mut spec, json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 9}));
        let service = is(service_with(spec.clone()));
        assert_eq!(service.external_traffic_policy, expected, "{spec}");
        let checked = spec["type"] == "LoadBalancer";
        assert_eq!(service.health_check_node_port.is_some(), checked, "{spec}");
    }
}

#[test]
fn client_ip_affinity_lasts_three_hours_by_default() {
    for spec in [
        json!({"sessionAffinity": "ClientIP"}),
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {}}}),
    ] {
        let service = is(service_with(spec));
        assert_eq!(service.session_affinity, Some(Duration::from_secs(10_800)));
    }
    assert_eq!(is(service_with(json!({"sessionAffinity": "None"}))).session_affinity, None);
}

#[test]
fn endpoints_have_the_conditions_of_their_object_or_the_defaults() {
    let slice = is(slice_with(json!({
        "ports": [{"name": "http", "port": 8080, "protocol": "SCTP"}, {"port": 1},
                  {"name": "none"}, {"name": "zero", "port": 0}],
        "endpoints": [
            {"addresses": ["10.0.0.1", "ignored"], "nodeName": NODE},
            {"addresses": ["10.0.0.2"], "nodeName": "NODE-A",
             "conditions": {"ready": false, "serving": null, "terminating": true}},
            {"addresses": ["10.0.0.03"], "hints": {"forZones": [{"name": "z1"}, {"name": "z2"}],
                                                  "forNodes": [{"name": "other"}, {"name": NODE}]}},
        ],
    })));
    assert_eq!(slice.service, ObjectName::namespaced("default", "web"));
    let ports: Vec<_> =
        slice.ports.iter().map(|it| (&*it.name, it.protocol, it.port.get())).collect();
    assert_eq!(ports, [("http", Protocol::Sctp, 8080), ("", Protocol::Tcp, 1)]);
    let usable = model::Conditions { ready: true, serving: true, ..Default::default() };
    let expected = [
        model::Conditions { local: true, ..usable },
        model::Conditions { ready: false, terminating: true, ..usable },
        model::Conditions { has_node_hints: true, hinted_for_node: true, ..usable },
    ];
    let conditions: Vec<_> = slice.endpoints.iter().map(|it| it.conditions).collect();
    assert_eq!(conditions, expected);
    let last = slice.endpoints.get(2).unwrap();
    assert_eq!(last.address, ips(&["10.0.0.3"])[0]);
    let zones: Vec<_> = last.zones.iter().flat_map(|it| it.iter()).collect();
    assert_eq!(zones.iter().map(|zone| &***zone).collect::<Vec<_>>(), ["z1", "z2"]);
    assert_eq!(slice.endpoints.get(0).unwrap().zones, None);
}

#[test]
fn a_node_without_a_name_has_no_local_endpoints() {
    let object = json!({"metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "w"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": ""}]});
    let object = serde_json::from_value(object).unwrap();
    let slice = is(Converter::new("").endpoint_slice(object));
    assert!(!slice.endpoints.get(0).unwrap().conditions.local);
}

#[test]
fn the_trigger_time_of_a_slice_is_read() {
    let triggered = |annotations: Value| {
        let mut object = serde_json::json!({
            "metadata": {"name": "s", "namespace": "default",
                         "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
        });
        object["metadata"]["annotations"] = annotations;
        is(slice(object)).triggered
    };
    let key = "endpoints.kubernetes.io/last-change-trigger-time";
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_763_804_220, 123_456_789);
    let both = json!({"other": "x", key: "2025-11-22T09:37:00.123456789Z", "z": "y"});
    assert_eq!(triggered(both), Some(time));
    assert_eq!(triggered(json!({key: "yesterday"})), None);
    assert_eq!(triggered(json!({"other": "2025-11-22T09:37:00Z"})), None);
    assert_eq!(triggered(Value::Null), None);
}

#[test]
fn headless_and_fqdn_slices_are_gone_without_a_problem() {
    let gone = (Change::Gone(ObjectName::namespaced("default", "s")), vec![]);
    assert_eq!(
        slice_with(json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]})),
        gone
    );
    let labels = json!({"service.kubernetes.io/headless": "", "kubernetes.io/service-name": "web"});
    let metadata = json!({"name": "s", "namespace": "default", "labels": labels});
    assert_eq!(slice_with(json!({"metadata": metadata})), gone);
}

#[test]
fn a_slice_of_no_service_is_gone_with_a_problem() {
    let (change, problems) = slice(json!({"metadata": {"name": "s"}, "addressType": "IPv6"}));
    assert_eq!(change, Change::Gone(ObjectName::cluster_scoped("s")));
    assert_eq!(problems[0].field, "metadata.labels");
}

#[test]
fn bad_endpoints_are_left_out_and_bad_ports_leave_out_the_slice() {
    let (slice, left_out) = partly(slice_with(json!({"endpoints": [
        {"addresses": ["x"]}, {"addresses": []}, {}, {"addresses": ["::1"]}, {"addresses": ["10.0.0.9"]}]})));
    let first = |i| format!("endpoints[{i}].addresses[0]");
    let list = |i| format!("endpoints[{i}].addresses");
    assert_eq!(left_out, [first(0), list(1), list(2), first(3)]);
    assert_eq!(slice.endpoints.len(), 1);
    let cases = [
        (json!({"ports": [{"port": 70000}]}), "ports[0].port"),
        (json!({"ports": [{"port": 80, "protocol": "XYZ"}]}), "ports[0].protocol"),
        (json!({"addressType": "IPX"}), "addressType"),
        (json!({"addressType": null}), "addressType"),
    ];
    for (fields, field) in cases {
        let (change, problems) = slice_with(fields);
        assert_eq!(change, Change::Invalid(ObjectName::namespaced("default", "s")));
        assert_eq!(problems[0].field, field);
    }
}

#[test]
fn a_node_gives_its_zone_addresses_and_ranges() {
    let node = json!({
        "metadata": {"name": NODE, "labels": {"topology.kubernetes.io/zone": "z", "x": "y"}},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "bad"], "taints": [{"key": "x"}]},
        "status": {"addresses": [
            {"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "h"},
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "bad"}]},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    let (found, left_out) = partly(Converter::new(NODE).node(&node));
    assert_eq!(left_out, ["status.addresses[3].address", "spec.podCIDRs[1]"]);
    assert_eq!(found.zone.as_deref(), Some("z"));
    assert_eq!(found.addresses, ips(&["10.0.0.1", "192.0.2.1"]));
    assert_eq!(found.pod_cidrs, ["10.244.1.0/24".parse().unwrap()]);
    assert!(!found.leaving);
}

#[test]
fn a_node_is_leaving_when_deleted_or_tainted_by_the_autoscaler() {
    let taint =
        json!({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]});
    for object in [
        json!({"metadata": {"name": NODE, "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"name": NODE}, "spec": taint}),
    ] {
        let node: Node = serde_json::from_value(object).unwrap();
        assert!(is(Converter::new(NODE).node(&node)).leaving);
    }
}

fn node_event(converter: &mut Converter, node: Value) -> Event {
    serde_json::from_value::<Node>(node).unwrap().convert(converter).0
}

#[test]
fn other_nodes_are_peers_while_they_are_followed() {
    let node = |name: &str| json!({"metadata": {"name": name}});
    let mut all = converter_of_all_nodes();
    assert!(matches!(node_event(&mut all, node(NODE)), Event::Node(Change::Is(_))));
    assert!(matches!(node_event(&mut all, node("b")), Event::Peer(Change::Is(_))));
    assert!(matches!(node_event(&mut all, node("a/b")), Event::Peer(Change::Invalid(_))));
    let mut own = Converter::new(NODE);
    assert!(matches!(node_event(&mut own, node("b")), Event::Node(Change::Is(_))));
    let object = |name: &str| Node::object(ObjectName::cluster_scoped(name));
    assert!(matches!(all.gone(object("b")), Event::Peer(Change::Gone(_))));
    assert!(matches!(all.invalid(object("b")), Event::Peer(Change::Invalid(_))));
    assert!(matches!(all.gone(object(NODE)), Event::Node(Change::Gone(_))));
    assert!(matches!(own.gone(object("b")), Event::Node(Change::Gone(_))));
    let service = Service::object(ObjectName::namespaced("default", "b"));
    assert!(matches!(all.gone(service), Event::Service(Change::Gone(_))));
}

#[test]
fn a_peer_has_its_internal_addresses_and_is_ready_by_its_condition() {
    let addresses = json!([
        {"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "h"},
        {"type": "InternalIP", "address": "fd00::1"}, {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "bad"}]);
    let mut object = json!({"metadata": {"name": "b"}, "status": {"addresses": addresses}});
    let read = |object: &Value| {
        let node: Node = serde_json::from_value(object.clone()).unwrap();
        partly(converter_of_all_nodes().peer(&node))
    };
    let (peer, left_out) = read(&object);
    assert_eq!(left_out, ["status.addresses[5].address"]);
    assert_eq!(peer.name, ObjectName::cluster_scoped("b"));
    assert_eq!((peer.addresses, peer.ready), (ips(&["fd00::1", "10.0.0.1"]), false));
    for (kind, status, expected) in [
        ("Ready", "True", true),
        ("Ready", "False", false),
        ("Ready", "Unknown", false),
        ("DiskPressure", "True", false),
    ] {
        object["status"]["conditions"] = json!([
            {"type": "MemoryPressure", "status": "False"},
            {"type": kind, "status": status, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]);
        assert_eq!(read(&object).0.ready, expected, "{kind} {status}");
    }
    object["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(!read(&object).0.ready);
}

#[test]
fn a_service_cidr_gives_its_ranges_without_host_bits() {
    let object =
        json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.3.0/16", "x"]}});
    let object: ServiceCidr = serde_json::from_value(object).unwrap();
    let (found, left_out) = partly(Converter::new(NODE).service_cidr(&object));
    assert_eq!(found.name, ObjectName::cluster_scoped("kubernetes"));
    assert_eq!(found.cidrs, ["10.96.0.0/16".parse().unwrap()]);
    assert_eq!(left_out, ["spec.cidrs[1]"]);
}

#[test]
fn an_object_without_a_name_is_invalid() {
    let (change, problems) = service(json!({"spec": {"clusterIP": "10.0.0.1"}}));
    assert!(matches!(change, Change::Invalid(_)));
    assert_eq!(problems[0].field, "metadata.name");
}

#[test]
fn a_name_that_no_api_server_accepts_is_refused() {
    let cases = [
        (json!({"name": "a/b"}), "metadata.name"),
        (json!({"name": "a\n"}), "metadata.name"),
        (json!({"name": "é"}), "metadata.name"),
        (json!({"name": "x".repeat(254)}), "metadata.name"),
        (json!({"name": "a", "namespace": "x".repeat(64)}), "metadata.namespace"),
    ];
    for (metadata, field) in cases {
        let object = json!({"metadata": metadata, "spec": {"clusterIP": "10.0.0.1"}});
        let (change, problems) = service(object);
        assert!(matches!(change, Change::Invalid(_)));
        assert_eq!(problems[0].field, field);
    }
}

#[test]
fn wrong_types_are_errors_with_the_path_of_the_field() {
    let cases = [
        (r#"{"spec":{"ports":[{"port":"80"}]}}"#, "spec.ports[0].port"),
        (r#"{"spec":{"clusterIPs":"x"}}"#, "spec.clusterIPs"),
        (r#"{"spec":[]}"#, "spec"),
        (r#"{"metadata":[]}"#, "metadata"),
        (r#"{"spec":{"ports":[["http","TCP",80,0]]}}"#, "spec.ports[0]"),
        (
            r#"{"metadata":{"labels":{"kubernetes.io/service-name":1}}}"#,
            "metadata.labels.kubernetes.io/service-name",
        ),
        (r#"{"metadata":{"creationTimestamp":"today"}}"#, "metadata.creationTimestamp"),
        (
            r#"{"status":{"loadBalancer":{"ingress":[{"ip":5}]}}}"#,
            "status.loadBalancer.ingress[0].ip",
        ),
    ];
    for (text, path) in cases {
        let mut parser = serde_json::Deserializer::from_str(text);
        let error = serde_path_to_error::deserialize::<_, Service>(&mut parser).unwrap_err();
        assert_eq!(error.path().to_string(), path);
    }
}
