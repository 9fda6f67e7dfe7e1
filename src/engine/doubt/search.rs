//! The search for elements that are not installed, in sets that have more elements than were written.
//!
//! A set is dumped beside the loop. Installed elements are taken away from the dump, a group of
//! services at a time. The others are looked up by their keys, so a dump may be torn by our own
//! commits.

use nft::Family;

use super::limits::GROUP;
use super::request::Keys;
use crate::model::ObjectName;
use crate::ruleset::SetId;
use crate::{ElementId, Engine, InstalledElement};

/// The state of a search.
#[derive(Debug)]
pub(super) enum Search {
    /// There is none.
    None,
    /// These sets are to be dumped.
    Due(Vec<(Family, SetId)>),
    /// The sets are dumped.
    Dumping,
    /// Installed elements are taken away from the dump, those of the services after `last` next.
    Comparing { found: Keys, last: Option<ObjectName> },
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

    /// Takes a group of services away from the dump. Returns the elements that are not installed
    /// after the last one, which ends the search.
    pub(super) fn compare(&mut self, engine: &Engine) -> Option<Vec<ElementId>> {
        let Self::Comparing { found, last } = self else { return None };
        let mut take = |installed: InstalledElement| {
            let ElementId { family, set, key } = ElementId::of_element(&installed);
            found.get_mut(&(family, set)).map(|keys| keys.remove(&key));
        };
        let services = engine.services_after(last.as_ref(), GROUP);
        for service in &services {
            engine.each_installed_element(Some(service), &mut take);
        }
        if let Some(name) = services.last() {
            *last = Some(name.clone());
            return None;
        }
        engine.each_installed_element(None, &mut take);
        let found = std::mem::take(found);
        *self = Self::None;
        let orphans = found.into_iter().flat_map(|((family, set), keys)| {
            keys.into_iter().map(move |key| ElementId { family, set, key })
        });
        Some(orphans.collect())
    }
}
