//! Manifest files and directories, followed as they change.
//!
//! A path names a file, or a directory whose `*.yaml`, `*.yml` and `*.json` files are read.
//! Subdirectories and names with a leading dot are not. Files are read in the order of their names.
//! Objects of other kinds are [`Ignored`]. Each unusable part yields a [`FileProblem`] with its
//! position; the former content of the file stays in force.

mod folder;
mod follow;
mod ignored;
mod manifest;
mod problem;
mod reader;

pub use follow::follow;
pub use ignored::Ignored;
pub use problem::{FileProblem, FilesError, FoundProblems};
pub use reader::{ManifestReader, Update, read};
