//! The bytes are those of Kubernetes' own encoder, for the answers in `../traces`.

#![allow(clippy::unwrap_used)] // A missing answer is a failed test.

use std::fs;
use std::path::PathBuf;

use super::*;

/// An answer that JSON cannot repeat: its texts are not UTF-8.
const WITHOUT_TWIN: &str = "wrong-utf-8-services";

fn traces() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../traces")
}

/// Returns the answer of this name in JSON.
fn json_of(name: &str) -> String {
    let filled = traces().join(format!("kubernetes/{name}.json"));
    fs::read_to_string(filled).unwrap_or_else(|_| {
        let recorded = fs::read_to_string(traces().join(format!("{name}.http"))).unwrap();
        recorded.split_once("\r\n\r\n").unwrap().1.to_owned()
    })
}

/// Encodes an answer in JSON: an object, or the events of a watch.
fn encode(name: &str, json: &str) -> Vec<u8> {
    let parse = |text| serde_json::from_str::<Value>(text).unwrap();
    if !name.starts_with("watch") {
        return object(&parse(json)).unwrap();
    }
    let lines = json.lines().filter(|line| !line.is_empty());
    lines.flat_map(|line| frame(&event(&parse(line)).unwrap())).collect()
}

#[test]
fn answers_have_the_bytes_of_kubernetes() {
    let mut count = 0;
    for entry in fs::read_dir(traces().join("kubernetes")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_none_or(|end| end != "protobuf") || name == WITHOUT_TWIN {
            continue;
        }
        let (expected, encoded) = (fs::read(&path).unwrap(), encode(name, &json_of(name)));
        let same = expected.iter().zip(&encoded).take_while(|(a, b)| a == b).count();
        let shown = |bytes: &[u8]| {
            let end = bytes.len().min(same + 40);
            bytes[same.saturating_sub(40)..end].escape_ascii().to_string()
        };
        assert!(
            expected == encoded,
            "{name}, byte {same}: Kubernetes has {}\nand we have {}",
            shown(&expected),
            shown(&encoded)
        );
        count += 1;
    }
    assert!(count > 15, "{count}");
}

#[test]
fn a_message_is_encoded_by_its_numbers() {
    let port = json!({"name": "web", "port": 80, "targetPort": "x", "other": 1});
    let expected = b"\x0a\x03web\x12\x00\x18\x50\x22\x07\x08\x01\x10\x00\x1a\x01x\x28\x00";
    assert_eq!(message("ServicePort", &port).as_deref(), Ok(&expected[..]));
    assert!(message("ServicePort", &json!({"port": "eighty"})).is_err());
}
