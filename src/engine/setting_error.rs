//! The error of parsing a setting.

/// The text of a setting is wrong: what it is, and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(pub(crate) String);
