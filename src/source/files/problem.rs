//! What can be wrong with manifest files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::printable::Printable;

/// Something in a file that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileProblem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` if the file as a whole is meant.
    pub line: Option<usize>,
    /// Kind and name, `Service default/web`; empty if no object is meant.
    pub object: String,
    /// Path of the field in the object, `spec.ports[0].port`; empty if it is the object itself.
    pub field: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl FileProblem {
    /// A problem of a line of a file, or of all of it, and of no object.
    pub(super) fn of_file(file: &Path, line: Option<usize>, message: String) -> Self {
        let (object, field) = (String::new(), String::new());
        Self { file: file.to_owned(), line, object, field, message }
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Printable(self.file.display()))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        for part in [&self.object, &self.field, &self.message] {
            if !part.is_empty() {
                write!(f, ": {}", Printable(part))?;
            }
        }
        Ok(())
    }
}

/// Why the manifests cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// There is nothing at the path.
    #[error("{}: no such file or folder; --manifests takes a file or folder of YAML or JSON manifests", .0.display())]
    Missing(PathBuf),
    /// The path is neither a regular file nor a folder.
    #[error("{}: neither a regular file nor a folder", .0.display())]
    NotAFile(PathBuf),
    /// The path cannot be examined.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
