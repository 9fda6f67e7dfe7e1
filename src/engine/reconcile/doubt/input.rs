//! Events that may change the doubt.

use crate::reconcile::{ElementId, Refused};

/// An event that may change the doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoubtInput {
    /// The kernel refused a transaction.
    Refused(Refused),
    /// The outcome of a transaction is unknown, or it failed so that lookups by key do not suffice,
    /// or the tables cannot be read.
    Failed,
    /// The tables are to be read at once: a blocked one is free, or a refused transaction was
    /// narrowed.
    ReadNow,
    /// Another program, or the kernel itself, changed the table of direct return.
    DirectReturn,
    /// Another program changed these elements.
    Elements(Vec<ElementId>),
    /// Another program changed anything, or notifications were lost.
    Anything,
    /// The kernel holds what was committed.
    Committed,
}

/// Why something is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubtCause {
    /// The daemon starts.
    Start,
    /// A transaction was refused, or its outcome is unknown.
    Commit,
    /// Another program changed the tables.
    OtherProgram,
    /// The background check found a difference.
    Check,
    /// A reading was requested.
    Request,
}
