//! What is wrong with a setting of the client of the API server.

use std::fmt::Display;

/// What is wrong with a part of the settings.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {problem}")]
pub(super) struct Fault {
    what: String,
    problem: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, problem: impl Display) -> Self {
        Self { what: what.into(), problem: problem.to_string() }
    }
}
