//! The search for elements that are not installed, in sets that have more elements than were written.
//!
//! A set is dumped beside the loop. Installed elements are taken away from the dump, some at a time.
//! The others are looked up by their keys, so a dump may be torn by our own commits.

use nft::Family;

use super::limits::AT_A_TIME;
use crate::diff::Diff;
use crate::reconcile::ElementId;
use crate::ruleset::SetId;

/// The state of a search.
#[derive(Debug)]
pub(super) enum Search {
    /// There is none.
    None,
    /// These sets are to be dumped.
    Due(Vec<(Family, SetId)>),
    /// The sets are dumped.
    Dumping,
    /// The elements that were dumped, and those of them that were compared and are not installed.
    Comparing(Vec<ElementId>, Vec<ElementId>),
}

impl Search {
    pub(super) fn is_active(&self) -> bool {
        !matches!(self, Self::None)
    }

    pub(super) fn is_dumping(&self) -> bool {
        matches!(self, Self::Dumping)
    }

    /// Takes the sets to be dumped.
    pub(super) fn begin(&mut self) -> Option<Vec<(Family, SetId)>> {
        let Self::Due(sets) = self else { return None };
        let sets = std::mem::take(sets);
        *self = Self::Dumping;
        Some(sets)
    }

    /// Compares some elements of the dump. Returns those that are not installed after the last one,
    /// which ends the search.
    pub(super) fn compare(&mut self, diff: &Diff) -> Option<Vec<ElementId>> {
        let Self::Comparing(dumped, orphans) = self else { return None };
        let some = dumped.split_off(dumped.len().saturating_sub(AT_A_TIME));
        orphans.extend(some.into_iter().filter(|it| diff.installed_at(it).is_none()));
        if !dumped.is_empty() {
            return None;
        }
        let orphans = std::mem::take(orphans);
        *self = Self::None;
        Some(orphans)
    }
}
