//! Media types of the objects that the API server sends.

use std::fmt;
use std::str::FromStr;

/// Media type of Kubernetes' protobuf messages.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Media type of JSON.
const JSON: &str = "application/json";

/// Most characters of an invalid value in an error.
const MAX_SHOWN: usize = 60;

/// Media types of objects: as in client-go, `acceptContentTypes` replaces `contentType`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentTypes {
    /// `clientConnection.contentType`.
    pub(super) content_type: MediaTypes,
    /// `clientConnection.acceptContentTypes`.
    pub(super) accepted: Option<MediaTypes>,
}

impl ContentTypes {
    /// Returns whether objects are requested as JSON alone, instead of protobuf or JSON.
    pub fn are_json(&self) -> bool {
        self.accepted.as_ref().unwrap_or(&self.content_type).is_json
    }
}

/// A list of media types, of which at least one can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MediaTypes {
    text: String,
    /// The first that can be read is JSON.
    is_json: bool,
}

impl Default for MediaTypes {
    fn default() -> Self {
        Self { text: PROTOBUF.to_owned(), is_json: false }
    }
}

impl FromStr for MediaTypes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let types = text.split(',').filter_map(|entry| entry.split(';').next());
        let is_json = types.map(str::trim).find_map(|media_type| match media_type {
            "*/*" | "application/*" => Some(false),
            other if other.eq_ignore_ascii_case(PROTOBUF) => Some(false),
            other => other.eq_ignore_ascii_case(JSON).then_some(true),
        });
        let Some(is_json) = is_json else {
            let shown: String = text.chars().take(MAX_SHOWN).collect();
            return Err(format!("is {shown:?}; expected {PROTOBUF} or {JSON}"));
        };
        Ok(Self { text: text.to_owned(), is_json })
    }
}

impl fmt::Display for MediaTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_media_type_that_can_be_read_decides() {
        for (text, is_json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json,application/vnd.kubernetes.protobuf", true),
            ("application/vnd.kubernetes.protobuf", false),
            ("application/vnd.kubernetes.protobuf,application/json", false),
            ("application/cbor, application/json;q=0.5", true),
            ("*/*", false),
        ] {
            assert_eq!(text.parse::<MediaTypes>().unwrap().is_json, is_json, "{text}");
        }
        assert_eq!(
            "application/yaml".parse::<MediaTypes>().unwrap_err(),
            "is \"application/yaml\"; expected application/vnd.kubernetes.protobuf or application/json"
        );
    }

    #[test]
    fn accept_content_types_replace_the_content_type() {
        let json = || Some("application/json".parse().unwrap());
        let types = ContentTypes { accepted: json(), ..ContentTypes::default() };
        assert!(types.are_json() && !ContentTypes::default().are_json());
        let types = ContentTypes { content_type: json().unwrap(), accepted: None };
        assert!(types.are_json());
        let types = ContentTypes { accepted: Some(MediaTypes::default()), ..types };
        assert!(!types.are_json());
    }
}
