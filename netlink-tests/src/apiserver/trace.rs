//! Recorded answers of a real server.

use serde_json::Value;

/// A recorded answer, to the byte.
#[track_caller]
pub(super) fn bytes(name: &str) -> Vec<u8> {
    let path = format!("{}/traces/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Head and body of a recorded answer.
#[track_caller]
pub(super) fn parts(name: &str) -> (String, String) {
    let text = String::from_utf8(bytes(name)).expect("traces are text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head ends with an empty line");
    (head.to_owned(), body.to_owned())
}

/// A recorded list.
#[track_caller]
pub(super) fn list(name: &str) -> Value {
    serde_json::from_str(&parts(name).1).expect("a recorded list is JSON")
}

/// The events of a recorded watch.
#[track_caller]
pub(super) fn events(name: &str) -> Vec<Value> {
    let lines = parts(name).1;
    let lines = lines.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).expect("a recorded event is JSON")).collect()
}
