//! Manifest files and folders, followed as they change.
//!
//! A path is a file, or a folder of which the `*.yaml`, `*.yml` and `*.json` files count: not
//! those in folders below it, and none whose name starts with a dot. Files are taken in the order
//! of their names. Objects of other kinds are [`Ignored`]. What cannot be used is a [`FileProblem`]
//! that says where; whatever the file said before stays in force.

mod folder;
mod follow;
mod ignored;
mod manifest;
mod problem;
mod reader;

pub use follow::follow;
pub use ignored::Ignored;
pub use problem::{FileProblem, FilesError};
pub use reader::{ManifestReader, Update, read};
