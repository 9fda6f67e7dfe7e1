//! The kind of an answer, which must be the requested one.
//!
//! A cache or gateway that maps a path wrongly answers with another list, which may have the form of
//! an empty one, or with objects that have the names of others.

/// Longest text of the answer in an error.
const SHOWN: usize = 63;

/// An object has another kind than the requested one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an object has the kind {kind:?} of {version:?}: expected {expected}")]
pub(in crate::source) struct OtherKind {
    version: String,
    kind: String,
    expected: String,
}

/// Checks version and kind of an object.
pub(in crate::source) fn check_kind(
    found: (&str, &str),
    expected: (&str, &str),
) -> Result<(), OtherKind> {
    if found == expected {
        return Ok(());
    }
    let (version, kind) = (shown(found.0), shown(found.1));
    Err(OtherKind { version, kind, expected: format!("{} of {}", expected.1, expected.0) })
}

/// Returns the start of a text of the answer.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
