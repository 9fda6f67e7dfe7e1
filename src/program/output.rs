//! Standard output of a command.

use std::fmt::Display;
use std::io::Write;

/// Format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Text.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Prints to standard output. A closed reader is not an error.
pub(super) fn print(text: &dyn Display) {
    let _ = write!(std::io::stdout().lock(), "{text}");
}
