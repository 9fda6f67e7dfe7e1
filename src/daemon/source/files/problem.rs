//! Problems of manifest files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use engine::printable::Printable;

/// A part of a file that was left out, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileProblem {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// Kind and name, such as `Service default/web`; empty if no object is affected.
    pub object: String,
    /// Path of the field in the object, such as `spec.ports[0].port`; empty for the object itself.
    pub field: String,
    /// What is wrong and what is expected.
    pub message: String,
}

/// Problems of manifests after they were read.
#[derive(Clone, Debug, Default)]
pub struct FoundProblems {
    /// Those that the read before did not have.
    pub new: Vec<FileProblem>,
    /// All of them.
    pub present: Vec<FileProblem>,
}

impl FileProblem {
    /// Returns a problem of a line of a file, or of the whole file, that affects no known object.
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

/// Why no manifest can be read.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The path does not exist.
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
        /// Error of the system.
        source: io::Error,
    },
}
