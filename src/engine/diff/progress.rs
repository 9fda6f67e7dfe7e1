//! The result of the update of a service.

use crate::desired::DesiredService;
use crate::model::{ObjectName, Problem};
use crate::ruleset::Frontend;

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
    /// The whole service is due once more lists are read.
    Unread,
}

/// The result of the update of a service.
#[derive(Debug, Default)]
pub struct Updated {
    /// Whether a part of the service is left to update.
    pub progress: Progress,
    /// Endpoints and source ranges that were compared.
    pub compared: usize,
    /// What the service should have, if it was rendered for a partial update.
    pub rendered: Option<DesiredService>,
    /// Services to be updated next: they lost a frontend, or can get one.
    pub affected: Vec<ObjectName>,
    /// Parts of the service that were left out, except for those in `conflicts`.
    pub problems: Vec<Problem>,
    /// Services that began to wait for a frontend of another service.
    pub conflicts: Vec<Conflict>,
}

/// A service that began to wait for a frontend of another service.
#[derive(Debug)]
pub struct Conflict {
    /// The frontend that both claim.
    pub frontend: Frontend,
    /// The problem of the service that waits.
    pub problem: Problem,
}
