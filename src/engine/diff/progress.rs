//! The result of the update of a service.

use crate::model::{ObjectName, Problem};

/// The progress of the update of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is left to do.
    #[default]
    Complete,
    /// The remainder must not be in the same commit; it is due after the next one.
    AfterCommit,
    /// The remainder is due with the next piece.
    Partial,
    /// The whole service is due after all other services.
    Postponed,
}

/// The result of the update of a service.
#[derive(Debug, Default)]
pub struct Updated {
    /// Whether a part of the service is left to update.
    pub progress: Progress,
    /// Services to be updated next: they lost a frontend, or can get one.
    pub affected: Vec<ObjectName>,
    /// Parts of the service that were left out.
    pub problems: Vec<Problem>,
}
