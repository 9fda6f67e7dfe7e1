//! JSON from the API server: no object causes a panic, and the quick parser of endpoints returns
//! the same as serde.

#![no_main]

use daemon::source::kube::Line;
use daemon::source::objects::{Converter, EndpointSlice};
use engine::model::{Change, EndpointSlice as Model, Problem, Resource};
use libfuzzer_sys::fuzz_target;

const RESOURCES: [Resource; 4] =
    [Resource::Services, Resource::EndpointSlices, Resource::Nodes, Resource::ServiceCidrs];

fuzz_target!(|text: &str| {
    check_endpoints(text);
    let line = format!(r#"{{"type":"ADDED","object":{text}}}"#);
    for resource in RESOURCES {
        let Ok(line) = Line::parse(resource, line.as_bytes()) else { continue };
        let (_, problems) =
            line.convert(&mut Converter::new("node-1")).expect("an ADDED event has an object");
        assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
    }
});

/// Parses the text as the list of endpoints of a slice, in both ways.
fn check_endpoints(endpoints: &str) {
    let text = format!(
        r#"{{"metadata":{{"name":"s","labels":{{"kubernetes.io/service-name":"w"}}}},
            "addressType":"IPv4","ports":[{{"port":80}}],"endpoints":{endpoints}}}"#
    );
    let quick = serde_json::from_str::<EndpointSlice>(&text).ok();
    let mut parser = serde_json::Deserializer::from_str(&text);
    let slow = EndpointSlice::deserialize_with_path(&mut parser);
    let slow = slow.and_then(|slice| parser.end().map(|()| slice)).ok();
    assert_eq!(quick.map(converted), slow.map(converted));
}

fn converted(slice: EndpointSlice) -> (Change<Model>, Vec<Problem>) {
    Converter::new("node-1").endpoint_slice(slice)
}
