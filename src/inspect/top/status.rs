//! The displayed fields of the daemon's `/status.json`.
//!
//! Its fields may change with each version of the daemon, so any of them may be absent.

use serde::Deserialize;

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Status {
    pub(super) version: String,
    pub(super) node: Option<String>,
    pub(super) source: Option<String>,
    pub(super) started_ms: u64,
    pub(super) now_ms: u64,
    pub(super) condition: Option<String>,
    pub(super) good: bool,
    pub(super) ready: bool,
    pub(super) families: Vec<FamilyStatus>,
    pub(super) watches: Vec<WatchStatus>,
    pub(super) problems: Vec<ProblemStatus>,
}

/// Table of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct FamilyStatus {
    pub(super) family: String,
    pub(super) programmed: bool,
    pub(super) blocked: Option<String>,
    pub(super) synced_ms: Option<u64>,
}

/// Watch of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct WatchStatus {
    pub(super) resource: String,
    pub(super) connected: bool,
    pub(super) heard_ms: Option<u64>,
    pub(super) reason: Option<String>,
}

/// An object, or a part of it, that was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ProblemStatus {
    pub(super) object: String,
    pub(super) field: String,
    pub(super) message: String,
    pub(super) present: bool,
    pub(super) at_ms: u64,
    pub(super) count: u64,
}

impl Status {
    /// Parses the document.
    ///
    /// # Errors
    /// The text is not JSON, or a field has another type.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_be_absent_and_others_present() {
        let text = r#"{"node": "n1", "watches": [{"resource": "services", "more": 1}], "new": {}}"#;
        let status = Status::parse(text.as_bytes()).unwrap();
        assert_eq!(status.node.as_deref(), Some("n1"));
        assert_eq!(status.watches[0].resource, "services");
        assert!(Status::parse(b"404 page not found").is_err());
    }
}
