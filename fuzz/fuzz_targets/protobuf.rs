//! Protobuf from the API server: no frame of a watch causes a panic, and each is an event or an error
//! with a text.

#![no_main]

use daemon::source::kube::Line;
use daemon::source::objects::Converter;
use engine::model::Resource;
use libfuzzer_sys::fuzz_target;

/// The resources, and the kind in the envelope of their objects.
const RESOURCES: [(Resource, &str); 4] = [
    (Resource::Services, "Service"),
    (Resource::EndpointSlices, "EndpointSlice"),
    (Resource::Nodes, "Node"),
    (Resource::ServiceCidrs, "ServiceCIDR"),
];

fuzz_target!(|bytes: &[u8]| {
    for (resource, kind) in RESOURCES {
        check(resource, bytes);
        check(resource, &added(kind, bytes));
    }
});

/// Decodes and converts a frame.
fn check(resource: Resource, frame: &[u8]) {
    match Line::decode(resource, frame) {
        Ok(line) => {
            let converted = line.convert(&mut Converter::new("node-1"));
            let problems = converted.map(|(_, problems)| problems).unwrap_or_default();
            assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The frame of an added object with this message, so that the fuzzer need not find the envelope.
fn added(kind: &str, message: &[u8]) -> Vec<u8> {
    let types = field(1, &field(2, kind.as_bytes()));
    let object = [b"k8s\0", &types[..], &field(2, message)].concat();
    [field(1, b"ADDED"), field(2, &field(1, &object))].concat()
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}
