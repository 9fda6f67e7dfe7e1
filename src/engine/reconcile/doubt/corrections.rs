//! Corrections of the installed state, to be reported.

use nft::Family;

use crate::model::ObjectName;
use crate::reconcile::Corrected;
use crate::ruleset::SetId;

/// Corrections of the installed state, to be reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    /// Elements.
    pub elements: Corrected,
    /// Services whose installed elements were not the desired ones.
    pub outdated: Vec<ObjectName>,
    /// The table whose rules are written again.
    pub rules: Option<Family>,
    /// The table of direct return had other elements than were written.
    pub direct_return: bool,
    /// Sets with another number of elements than were written.
    pub sizes: Vec<(Family, SetId, i64)>,
    /// Number of services that were compared.
    pub checked: usize,
    /// The round that ended.
    pub ended: Option<EndedRound>,
}

/// The end of a comparison of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedRound {
    /// That of the background check.
    Background,
    /// That of the urgent check.
    Urgent {
        /// Elements that differed.
        differences: usize,
    },
}
