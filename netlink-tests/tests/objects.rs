//! Answers of a real API server, read as the objects that routing needs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use daemon::source::objects::{Converter, EndpointSlice, Node, Service, ServiceCidr};
use engine::model::{Change, Problem};
use serde::de::DeserializeOwned;

/// The items of a list, or the objects of a watch's events (bookmarks and errors left out).
#[track_caller]
fn objects<T: DeserializeOwned>(trace: &str) -> Vec<T> {
    let path = format!("{}/traces/{trace}.http", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    let (_, body) = text.split_once("\r\n\r\n").or(text.split_once("\n\n")).expect("a body");
    let values = serde_json::Deserializer::from_str(body).into_iter::<serde_json::Value>();
    let mut objects = Vec::new();
    for value in values.map(|value| value.expect("JSON")) {
        match value.get("items") {
            Some(items) => objects.extend(items.as_array().unwrap().iter().cloned()),
            None if value["type"] == "BOOKMARK" => {}
            None => objects.push(value["object"].clone()),
        }
    }
    // Through text, as the watcher does it.
    objects.iter().map(|object| serde_json::from_str(&object.to_string()).expect(trace)).collect()
}

/// How many objects are routed and how many are not; none may be impossible.
#[track_caller]
fn count<T>(changes: impl IntoIterator<Item = (Change<T>, Vec<Problem>)>) -> (usize, usize) {
    let (mut routed, mut gone) = (0, 0);
    for (change, problems) in changes {
        assert_eq!(problems, []);
        match change {
            Change::Is(_) => routed += 1,
            Change::Gone(_) => gone += 1,
            Change::Invalid(name) => panic!("{name}"),
        }
    }
    (routed, gone)
}

#[test]
fn services_of_a_real_server_are_read() {
    let mut converter = Converter::new("node-a");
    for (trace, expected) in [
        ("list-services", (7, 1)),
        ("list-services-page1", (1, 2)),
        ("list-services-page2", (3, 0)),
        ("watch-services", (4, 0)),
    ] {
        let services = objects::<Service>(trace);
        assert_eq!(count(services.iter().map(|it| converter.service(it))), expected, "{trace}");
    }
}

#[test]
fn endpoint_slices_of_a_real_server_are_read() {
    let mut converter = Converter::new("node-a");
    for (trace, expected) in [
        ("list-endpointslices", (4, 1)),
        ("watch-endpointslices", (5, 0)),
        ("watchlist-endpointslices", (9, 1)),
    ] {
        let slices = objects::<EndpointSlice>(trace);
        assert_eq!(
            count(slices.into_iter().map(|it| converter.endpoint_slice(it))),
            expected,
            "{trace}"
        );
    }
}

#[test]
fn nodes_and_service_cidrs_of_a_real_server_are_read() {
    let mut converter = Converter::new("node-a");
    for (trace, expected) in [("list-nodes", (1, 0)), ("watch-nodes", (1, 0))] {
        let nodes = objects::<Node>(trace);
        assert_eq!(count(nodes.iter().map(|it| converter.node(it))), expected, "{trace}");
    }
    for (trace, expected) in [("list-servicecidrs", (1, 0)), ("watchlist-servicecidrs", (3, 0))] {
        let cidrs = objects::<ServiceCidr>(trace);
        assert_eq!(count(cidrs.iter().map(|it| converter.service_cidr(it))), expected, "{trace}");
    }
}
