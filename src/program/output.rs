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
    /// Writes a document as YAML, or else as JSON.
    pub(super) fn write(
        self,
        out: &mut dyn Write,
        document: &serde_json::Value,
    ) -> std::io::Result<()> {
        match self {
            Self::Yaml => {
                let text = serde_saphyr::to_string(document).map_err(std::io::Error::other)?;
                out.write_all(text.as_bytes())
            }
            Self::Text | Self::Json => writeln!(out, "{document}"),
        }
    }

    /// Prints a document as YAML, or else as JSON. A closed reader is not an error.
    pub(super) fn print(self, document: &serde_json::Value) {
        let _ = self.write(&mut std::io::stdout().lock(), document);
    }
}

/// Prints to standard output. A closed reader is not an error.
pub(super) fn print(text: &dyn Display) {
    let _ = write!(std::io::stdout().lock(), "{text}");
}
