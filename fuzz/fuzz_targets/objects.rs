//! JSON from the API server: no object causes a panic.

#![no_main]

use daemon::source::kube::Line;
use daemon::source::objects::Converter;
use engine::model::Resource;
use libfuzzer_sys::fuzz_target;

const RESOURCES: [Resource; 4] =
    [Resource::Services, Resource::EndpointSlices, Resource::Nodes, Resource::ServiceCidrs];

fuzz_target!(|text: &str| {
    let line = format!(r#"{{"type":"ADDED","object":{text}}}"#);
    for resource in RESOURCES {
        let Ok(line) = Line::parse(resource, line.as_bytes()) else { continue };
        let (_, problems) =
            line.convert(&mut Converter::new("node-1")).expect("an ADDED event has an object");
        assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
    }
});
