//! A synthetic cluster for benchmarks: an engine that holds it, and its objects.
//!
//! Service `n` has one TCP port, and its endpoints are in one slice.

#![allow(dead_code, reason = "each measurement and test that includes it uses a part")]

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::ops::Range;
use std::time::Duration;

use engine::model::{
    Change, Endpoint, EndpointPort, EndpointSlice, Event, ObjectName, Resource, Service,
    ServicePort,
};
use engine::routing::Routing;
use engine::{Engine, FoundTables};
use nft::TableFlags;

/// Maximum size of a transaction in bytes, enough for all of them.
pub(crate) const MAX_BATCH: usize = 64 << 20;

/// Returns an engine after its last commit, with these numbers of services and endpoints of each.
pub(crate) fn engine(services: u32, endpoints: u32) -> Engine {
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    for number in 0..services {
        engine.apply([service(number), slice(number, 0..endpoints)]);
    }
    engine.apply(Resource::ALL.map(Event::Listed));
    engine.replace_installed_state(FoundTables::nothing());
    while engine.next_transaction(MAX_BATCH).is_some() {
        engine.committed(Duration::ZERO);
    }
    engine
}

/// Returns service `number`.
pub(crate) fn service(number: u32) -> Event {
    let cluster_ip = Ipv4Addr::from(0x0a60_0000 + number).into();
    Event::Service(Change::Is(Service {
        ports: vec![ServicePort::tcp("http", port(80))],
        ..Service::new(service_name(number), vec![cluster_ip])
    }))
}

/// Returns the slice of service `number` with these endpoints.
pub(crate) fn slice(number: u32, endpoints: Range<u32>) -> Event {
    let endpoint = |i| Endpoint::ready(IpAddr::from(endpoint_address(number, i)));
    Event::EndpointSlice(Change::Is(EndpointSlice {
        name: ObjectName::namespaced("bench", &format!("service-{number}-x7k2p")),
        service: service_name(number),
        ports: [EndpointPort::tcp("http", port(8080))].into(),
        endpoints: endpoints.map(endpoint).collect(),
        triggered: None,
        weighing: None,
    }))
}

/// Returns the line of a watch, as the API server writes it, for a changed slice of service
/// `number`.
pub(crate) fn watch_line(number: u32, endpoints: Range<u32>) -> String {
    let mut line = format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{{"name":"service-{number}-x7k2p","generateName":"service-{number}-","namespace":"bench","uid":"0c2b52f6-9d53-4a9e-a4a7-3ab3a53e2b3c","resourceVersion":"8231577","generation":12,"creationTimestamp":"2026-11-02T09:13:44Z","labels":{{"app":"service-{number}","endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"service-{number}"}},"annotations":{{"endpoints.kubernetes.io/last-change-trigger-time":"2026-11-21T07:09:47Z"}},"ownerReferences":[{{"apiVersion":"v1","kind":"Service","name":"service-{number}","uid":"6f6f2b6e-5d0f-4a1f-8a7c-6a7c0b1f7d52","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"discovery.k8s.io/v1","time":"2026-11-21T07:09:47Z","fieldsType":"FieldsV1","fieldsV1":{{"f:addressType":{{}},"f:endpoints":{{}},"f:metadata":{{"f:annotations":{{".":{{}}}},"f:generateName":{{}},"f:labels":{{".":{{}}}}}},"f:ports":{{}}}}}}]}},"addressType":"IPv4","endpoints":["#
    );
    for i in endpoints.clone() {
        let (separator, ip) =
            (if i > endpoints.start { "," } else { "" }, endpoint_address(number, i));
        write!(
            line,
            r#"{separator}{{"addresses":["{ip}"],"conditions":{{"ready":true,"serving":true,"terminating":false}},"targetRef":{{"kind":"Pod","namespace":"bench","name":"service-{number}-6d4cf56db6-{i}","uid":"f3a1e0a5-7f3c-4a64-9c3f-5f8a7b0d9e11"}},"nodeName":"node-{i}","zone":"zone-a"}}"#
        )
        .expect("a string takes all that is written");
    }
    line.push_str(r#"],"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}}"#);
    line
}

/// Likewise, for a service with zone hints.
pub(crate) fn watch_line_with_hints(number: u32, endpoints: Range<u32>) -> String {
    let hints = r#""zone":"zone-a","hints":{"forZones":[{"name":"zone-a"}]}"#;
    watch_line(number, endpoints).replace(r#""zone":"zone-a""#, hints)
}

/// Returns the address of endpoint `i` of a service.
pub(crate) fn endpoint_address(service: u32, i: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0000 + service * 8 + i)
}

pub(crate) fn service_name(number: u32) -> ObjectName {
    ObjectName::namespaced("bench", &format!("service-{number}"))
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("no port here is 0")
}
