//! Answers of Kubernetes' own serializers: protobuf gives the same as JSON.
//!
//! `netlink-tests/traces` has the JSON, and its folder `kubernetes` the protobuf.

use engine::model::{Change, Event, Problem};
use engine::routing::ServedServices;
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};

use super::format::{self, Format, ListPage, WatchItem};
use super::frames::Frames;
use super::parsed::Parsed;
use crate::source::Wanted;
use crate::source::objects::{Converter, EndpointSlice, Followed, Node, Service, ServiceCidr};

/// Lists with fields of all kinds, filled at random.
const FILLED: [&str; 4] =
    ["filled-services", "filled-endpointslices", "filled-nodes", "filled-servicecidrs"];

/// A list with a text that is not UTF-8.
const WRONG: &str = "wrong-utf-8-services";

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/../../netlink-tests/traces/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the body of a recorded answer in both formats.
fn bodies(name: &str) -> [(Format, Vec<u8>); 2] {
    let recorded = file(&format!("{name}.http"));
    let head = recorded.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let protobuf = file(&format!("kubernetes/{name}.protobuf"));
    [(Format::Json, recorded[head + 4..].to_vec()), (Format::Protobuf, protobuf)]
}

/// An object as the daemon gets it: its version, event and problems.
type Got = (Option<String>, Event, Vec<Problem>);

/// Gets an object as a node that follows all nodes.
fn got<T: Followed>(object: Parsed<T>) -> Got {
    let version = object.version_text().map(str::to_owned);
    let services = ServedServices::default();
    let wanted = Wanted { node: "node-a", services: &services, other_nodes: true };
    let (event, problems) = object.convert(&mut Converter::of(wanted));
    (version, event, problems)
}

/// Returns version, token and objects of a list.
fn list<T: Followed>(format: Format, body: &[u8]) -> (String, String, Vec<Got>) {
    let ListPage { items, version, next } = format::page::<T>(format, body).unwrap();
    (version, next, items.into_iter().map(got).collect())
}

/// Asserts that a list is the same in both formats, and returns its objects.
#[track_caller]
fn same_list<T: Followed>(name: &str, bodies: [(Format, Vec<u8>); 2]) -> Vec<Got> {
    let [json, protobuf] = bodies.map(|(format, body)| list::<T>(format, &body));
    assert_eq!(json, protobuf, "{name}");
    assert!(!json.0.is_empty() && !json.2.is_empty(), "{name}");
    json.2
}

/// Events of a watch, each as the kind of the event and its content.
async fn events<T: Followed>((format, body): (Format, Vec<u8>)) -> Vec<(String, Option<Got>)> {
    let pieces = body.chunks(1000).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))));
    let body = StreamBody::new(stream::iter(pieces.collect::<Vec<Result<_, kube::Error>>>()));
    let (mut frames, mut found) = (Frames::new(format, body), Vec::new());
    while let Some(frame) = frames.next().await.unwrap() {
        if frame.is_empty() {
            continue;
        }
        found.push(match format::event::<T>(format, &frame).unwrap().unwrap() {
            WatchItem::Changed(object) => ("changed".to_owned(), Some(got(object))),
            WatchItem::Deleted(object) => ("deleted".to_owned(), Some(got(object))),
            WatchItem::Bookmark { version, ends_list } => {
                (format!("bookmark {version}, ends the list: {ends_list}"), None)
            }
            WatchItem::Error(status) => {
                let (code, reason, message) = (status.code, &status.reason, &status.message);
                (format!("error {code} {reason}: {message}"), None)
            }
        });
    }
    found
}

/// Asserts that a watch is the same in both formats, and returns the number of its events.
async fn same_watch<T: Followed>(name: &str) -> usize {
    let [json, protobuf] = bodies(name);
    let (json, protobuf) = (events::<T>(json).await, events::<T>(protobuf).await);
    assert_eq!(json, protobuf, "{name}");
    json.len()
}

#[test]
fn lists_of_kubernetes_are_the_same_as_in_json() {
    for name in ["list-services", "list-services-page1", "list-services-page2"] {
        same_list::<Service>(name, bodies(name));
    }
    same_list::<EndpointSlice>("list-endpointslices", bodies("list-endpointslices"));
    same_list::<Node>("list-nodes", bodies("list-nodes"));
    same_list::<ServiceCidr>("list-servicecidrs", bodies("list-servicecidrs"));
    let (_, next, _) = list::<Service>(Format::Protobuf, &bodies("list-services-page1")[1].1);
    assert!(!next.is_empty());
}

#[tokio::test]
async fn watches_of_kubernetes_are_the_same_as_in_json() {
    assert_eq!(same_watch::<Service>("watch-services").await, 4);
    assert_eq!(same_watch::<Service>("watch-expired").await, 1);
    assert_eq!(same_watch::<EndpointSlice>("watch-endpointslices").await, 5);
    assert_eq!(same_watch::<EndpointSlice>("watchlist-endpointslices").await, 11);
    assert_eq!(same_watch::<Node>("watch-nodes").await, 1);
    assert_eq!(same_watch::<ServiceCidr>("watchlist-servicecidrs").await, 4);
}

#[test]
fn errors_of_kubernetes_are_the_same_as_in_json() {
    for (name, code) in [("list-expired", 410), ("notfound", 404), ("unauthorized", 401)] {
        let [json, protobuf] = bodies(name).map(|(format, body)| {
            let status = format::status(format, &body).unwrap();
            (status.code, status.reason, status.message)
        });
        assert_eq!(json, protobuf, "{name}");
        assert_eq!(json.0, code);
    }
}

#[test]
fn full_and_empty_objects_of_kubernetes_are_the_same_as_in_json() {
    let both = |name: &str| {
        [(Format::Json, "json"), (Format::Protobuf, "protobuf")]
            .map(|(format, end)| (format, file(&format!("kubernetes/{name}.{end}"))))
    };
    let [services, slices, nodes, cidrs] = FILLED.map(both);
    let found = [
        same_list::<Service>(FILLED[0], services),
        same_list::<EndpointSlice>(FILLED[1], slices),
        same_list::<Node>(FILLED[2], nodes),
        same_list::<ServiceCidr>(FILLED[3], cidrs),
    ];
    let routed = found.map(|found| found.iter().filter(|(_, event, _)| is_routed(event)).count());
    assert_eq!(routed, [5, 5, 10, 10]);
    same_list::<Service>(WRONG, both(WRONG));
}

#[tokio::test]
async fn an_answer_of_another_resource_or_version_is_an_error() {
    async fn refuses<T: Followed>(list_name: &str, watch: &str) {
        for (format, body) in bodies(list_name) {
            assert!(format::page::<T>(format, &body).is_err(), "{list_name} {format:?}");
        }
        for (format, body) in bodies(watch) {
            let body =
                StreamBody::new(stream::iter([Ok::<_, kube::Error>(Frame::data(body.into()))]));
            let mut frames = Frames::new(format, body);
            while let Some(frame) = frames.next().await.unwrap() {
                if frame.is_empty() {
                    continue;
                }
                let event = format::event::<T>(format, &frame);
                assert!(event.is_err(), "{watch} {format:?}: {event:?}");
            }
        }
    }
    refuses::<Service>("list-nodes", "watch-nodes").await;
    refuses::<EndpointSlice>("list-services", "watch-services").await;
    refuses::<Node>("list-endpointslices", "watchlist-endpointslices").await;
    refuses::<ServiceCidr>("list-endpointslices", "watchlist-endpointslices").await;
    refuses::<EndpointSlice>("list-servicecidrs", "watchlist-servicecidrs").await;

    let list = |version: &str, kind: &str, items: &str| {
        let head = format!(r#""apiVersion":"{version}","kind":"{kind}""#);
        let body = format!(r#"{{{head},"metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#);
        format::page::<Service>(Format::Json, body.as_bytes()).is_ok()
    };
    let item = r#""metadata":{"name":"web","namespace":"default","resourceVersion":"7"}"#;
    assert!(list("v1", "ServiceList", &format!("{{{item}}}")));
    assert!(list(
        "v1",
        "ServiceList",
        &format!(r#"{{{item},"kind":"Service","apiVersion":"v1"}}"#)
    ));
    for (version, kind) in [("v1", "PodList"), ("v1", ""), ("", ""), ("v2", "ServiceList")] {
        assert!(!list(version, kind, ""), "{version} {kind}");
    }
    for other in [r#""kind":"Pod","apiVersion":"v1""#, r#""kind":"Service","apiVersion":"v2""#] {
        assert!(!list("v1", "ServiceList", &format!("{{{item},{other}}}")), "{other}");
    }
    for error in [r#"{"kind":"Pod","apiVersion":"v1","code":410}"#, "{}"] {
        assert!(format::status(Format::Json, error.as_bytes()).is_none(), "{error}");
    }
}

fn is_routed(event: &Event) -> bool {
    match event {
        Event::Service(change) => matches!(change, Change::Is(_)),
        Event::EndpointSlice(change) => matches!(change, Change::Is(_)),
        Event::Node(change) => matches!(change, Change::Is(_)),
        Event::Peer(change) => matches!(change, Change::Is(_)),
        Event::ServiceCidr(change) => matches!(change, Change::Is(_)),
        Event::Relist(_) | Event::Listed(_) => false,
    }
}
