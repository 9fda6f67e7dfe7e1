//! Why the loop ended although nothing stopped it.

use crate::writer::WriterGone;

/// The daemon cannot go on. The kernel keeps its tables, without further updates.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kernel's thread ended, which is a bug.
    #[error(transparent)]
    Writer(#[from] WriterGone),
    /// The source dropped its channel, which is a bug: without objects, the tables become old.
    #[error("the source of the objects ended, which is a bug; the tables stay as they are")]
    SourceGone,
    /// The loop panicked, which is a bug.
    #[error("the loop panicked, which is a bug; the tables stay as they are")]
    Panicked,
}
