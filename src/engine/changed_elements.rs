//! Elements that another program added or deleted, compared one by one with the installed ones.
//!
//! A look-up shows the present element, so the kind of change does not matter. All other elements
//! are as installed, so the tables need not be read.

use ahash::{HashMap, HashSet};

use super::Engine;
use super::base_state::BaseState;
use crate::diff::{Finding, Installed};
use crate::kernel::{ElementKey, Kernel};
use crate::model::ObjectName;
use crate::nft::{Family, Value};
use crate::ruleset::{self, SetId, Subject, TableElement};

/// An element that may differ from the installed one, and its finding in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    place: Place,
    finding: Finding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    family: Family,
    set: SetId,
    key: Value,
}

/// An installed element of a service that is missing or differs in the kernel.
pub type Difference = (ObjectName, Installed, Finding);

/// Looks up elements by their keys, each once. `None` if they must be read with all others.
pub fn look_up_changed<K: Kernel>(kernel: &mut K, keys: &[ElementKey]) -> Option<Vec<Changed>> {
    let places = keys.iter().map(Place::of).collect::<Option<HashSet<_>>>()?;
    // Packets write this map.
    let places = places.into_iter().filter(|place| place.set != SetId::AffinityClients);
    places.map(|place| Some(Changed { place, finding: place.look_up(kernel)? })).collect()
}

impl Place {
    fn of(element: &ElementKey) -> Option<Self> {
        let set = SetId::by_name(&element.set)?;
        // A look-up of an interval may find another one.
        let is_exact = set != SetId::SourceRanges;
        is_exact.then_some(Self { family: element.table.family, set, key: element.key })
    }

    fn look_up<K: Kernel>(&self, kernel: &mut K) -> Option<Finding> {
        let Self { family, set, key } = *self;
        let mut finding = Finding::Missing;
        let table = ruleset::table(family);
        kernel
            .find_elements(&table, set.name(), &[key], &mut |view| {
                let found = TableElement::read(family, set, &view);
                finding = Finding::Present(found.map(|found| Installed::found(family, &found)));
            })
            .ok()?;
        Some(finding)
    }

    fn subject(&self) -> Option<(Family, Subject)> {
        Some((self.family, Subject::read(self.family, self.set, self.key.as_bytes())?))
    }
}

impl Engine {
    /// Returns whether the installed state is that of the last commit or read-back in both tables.
    pub fn knows_installed(&self) -> bool {
        self.in_flight.is_empty()
            && self.prepared.is_empty()
            && self.tables.iter().all(|table| {
                table.blocked.is_none() && matches!(table.installed, BaseState::Ours(_))
            })
    }

    /// Returns the installed elements that are missing or differ in the kernel. `None` if the
    /// tables must be read: an element without a service was found, or may be missing.
    /// [`Engine::knows_installed`] must hold.
    pub fn element_differences(&self, changed: &[Changed]) -> Option<Vec<Difference>> {
        let subjects = changed.iter().filter_map(|it| it.place.subject()).collect();
        let mut installed = HashMap::default();
        for service in self.diff.services_of(&subjects) {
            self.diff.each_installed(Some(service), &mut |it| {
                let Installed { family, element, .. } = it;
                let place = Place { family, set: element.set(), key: element.to_key().key };
                installed.insert(place, (service, it));
            });
        }
        let mut differences = Vec::new();
        for Changed { place, finding } in changed {
            match (installed.get(place), finding) {
                (Some((_, installed)), Finding::Present(Some(found))) if installed == found => {}
                (Some((service, installed)), _) => {
                    differences.push(((*service).clone(), *installed, *finding));
                }
                // Another program added it and deleted it again: nothing to do.
                (None, Finding::Missing) if !self.diff.is_left_over(place.subject()?) => {}
                (None, _) => return None,
            }
        }
        Some(differences)
    }
}
