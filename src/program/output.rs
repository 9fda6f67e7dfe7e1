//! Standard output of a command.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;

#[cfg(any(feature = "inspect", feature = "measure"))]
use engine::printable::Printable;
#[cfg(feature = "inspect")]
use inspect::show::format::DocumentFormat;

use super::failure::Failure;

/// The first error of standard output. The command ends its work nevertheless.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Text.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Format of a document.
#[cfg(feature = "inspect")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DocumentOutput {
    /// For people
    #[default]
    Text,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

#[cfg(feature = "inspect")]
impl DocumentOutput {
    /// Prints a document in this format, or its text.
    pub(super) fn print(self, document: &serde_json::Value, text: &dyn Display) {
        print_by(|out| match self {
            Self::Text => write!(out, "{text}"),
            Self::Json => DocumentFormat::Json.write(out, document),
            Self::Yaml => DocumentFormat::Yaml.write(out, document),
        });
    }
}

/// Prints to standard output; an error fails the command at its [`Exit`](super::outcome::Exit).
pub(super) fn print(text: &dyn Display) {
    print_by(|out| write!(out, "{text}"));
}

fn print_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    // Without a flush, the text after the last line is written at the exit, which ignores errors.
    note(write(&mut out).and_then(|()| out.flush()));
}

/// Keeps an error. A closed reader such as `head` is none.
fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = FAILED.set(error);
    }
}

/// Returns `value`, unless a part of the output was not written.
pub(super) fn printed<T>(value: T) -> Result<T, Failure> {
    let failed = FAILED.get().map(|error| Failure::new(format!("standard output: {error}")));
    failed.map_or(Ok(value), Err)
}

/// Prints the help or the version that the command line requests.
pub fn print_help(help: &clap::Error) {
    note(help.print().and_then(|()| io::stdout().flush()));
}

/// Prints to standard error. `eprintln!` panics if it cannot be written.
pub(super) fn warn(text: &dyn Display) {
    let _ = write!(io::stderr(), "{text}");
}

/// Prints a line to standard error.
#[cfg(any(feature = "inspect", feature = "measure"))]
pub(super) fn warn_of(line: &str) {
    warn(&format_args!("{}\n", Printable(line)));
}
