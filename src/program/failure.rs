//! Failure of a command.

use std::error::Error;
use std::fmt;

use daemon::config::ConfigError;
use engine::printable::Printable;

/// Failure of a command: lines for standard error, without control characters.
#[derive(Debug)]
pub struct Failure(Vec<String>);

impl Failure {
    /// Returns the failure of a command that `why` stopped.
    pub fn new(why: impl fmt::Display) -> Self {
        Self(vec![why.to_string()])
    }

    pub(super) fn of_lines(lines: Vec<String>) -> Self {
        Self(lines)
    }

    /// Returns the failure of a command whose configuration is invalid, with a line for each
    /// error.
    pub fn of_config(error: &ConfigError) -> Self {
        Self(error.messages())
    }

    /// Fails if anything was left out.
    pub(super) fn of_problems(problems: Vec<String>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self(problems)) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.iter().map(Printable);
        lines.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        lines.try_for_each(|line| write!(f, "\n{line}"))
    }
}

impl Error for Failure {}
