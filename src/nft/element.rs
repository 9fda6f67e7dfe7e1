//! Elements of sets and maps.

use std::sync::Arc;
use std::time::Duration;

use super::{Value, Verdict};

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key, or the first key of a range.
    pub key: Value,
    /// Last key of a range, each field compared by itself; needs a concatenation of types.
    pub key_end: Option<Value>,
    /// What a map returns; `None` in a set.
    pub data: Option<ElementData>,
    /// What `nft list` prints as comment; cut to 128 bytes when sent.
    pub comment: Option<Arc<str>>,
    /// How long it lives, if not as long as the set says.
    pub timeout: Option<Duration>,
}

impl Element {
    /// An element of a set: a key and nothing else.
    pub const fn new(key: Value) -> Self {
        Self { key, key_end: None, data: None, comment: None, timeout: None }
    }

    /// An element of a map with plain data.
    pub fn with_value(key: Value, data: Value) -> Self {
        Self { data: Some(ElementData::Value(data)), ..Self::new(key) }
    }

    /// An element of a verdict map.
    pub fn with_verdict(key: Value, verdict: Verdict) -> Self {
        Self { data: Some(ElementData::Verdict(verdict)), ..Self::new(key) }
    }
}

/// What a map returns for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementData {
    /// Concatenated fields.
    Value(Value),
    /// A verdict.
    Verdict(Verdict),
}
