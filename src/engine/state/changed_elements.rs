//! Elements that another program added or deleted, compared one by one with the installed ones.
//!
//! A lookup shows the present element, so the kind of change does not matter. All other elements
//! are as installed, so the tables need not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use ahash::{HashMap, HashSet};
use nft::kernel::ElementKey;
use nft::{Element, Family, Operation, Value};

use super::tables::Tables;
use crate::diff::{Diff, Finding, InstalledElement};
use crate::model::ObjectName;
use crate::ruleset::{self, Member, SetId, Subject};

/// The place of an element in our tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId {
    /// The family of its table.
    pub family: Family,
    /// Its set or map.
    pub set: SetId,
    /// Its key; of an interval, the lower end.
    pub key: Value,
}

/// An element that may differ from the installed one, and its finding in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its place.
    pub place: ElementId,
    /// What a lookup found there.
    pub finding: Finding,
}

/// Elements that were not as installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    /// Installed elements of services that were missing or differed.
    pub of_services: Vec<(ObjectName, InstalledElement, Finding)>,
    /// Other elements: found although they were not installed, or missing although they were.
    pub of_no_service: Vec<(ElementId, Finding)>,
    /// Services to be updated again.
    pub(super) services: BTreeSet<ObjectName>,
    /// The installed state is corrected. If it is not, the tables must be read.
    pub is_enough: bool,
}

impl Corrected {
    /// Returns the correction if nothing differs.
    pub fn nothing() -> Self {
        Self { is_enough: true, ..Self::default() }
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.of_services.len() + self.of_no_service.len()
    }
}

impl ElementId {
    /// Returns the places of elements, each once; `None` if a set is not one of ours.
    pub fn all_of(elements: &[ElementKey]) -> Option<Vec<Self>> {
        let places: Option<BTreeSet<_>> = elements.iter().map(Self::of).collect();
        Some(places?.into_iter().collect())
    }

    fn of(element: &ElementKey) -> Option<Self> {
        let set = SetId::by_name(&element.set)?;
        Some(Self { family: element.table.family.of_addresses()?, set, key: element.key })
    }

    fn subject(&self) -> Option<(Family, Subject)> {
        Some((self.family, Subject::read(self.family, self.set, self.key.as_bytes())?))
    }

    fn member(&self) -> Option<Member> {
        Member::read(self.family, self.set, self.key.as_bytes())
    }

    /// Returns the place of an installed element.
    pub fn of_element(installed: &InstalledElement) -> Self {
        let InstalledElement { family, element, .. } = installed;
        Self { family: *family, set: element.set(), key: element.to_key().key }
    }
}

/// Replaces the installed state of elements by the findings. `owners` are the services that have
/// them; without any, they are searched.
pub(super) fn correct(
    diff: &mut Diff,
    tables: &mut Tables,
    found: &[Changed],
    owners: &[ObjectName],
) -> Corrected {
    let differences = differences(diff, found, owners);
    let Some(mut corrected) = differences else { return Corrected::default() };
    for (service, installed, finding) in &corrected.of_services {
        corrected.is_enough &= diff.correct(*installed, *finding);
        corrected.services.insert(service.clone());
    }
    match adopt(diff, tables, &corrected.of_no_service, owners) {
        Some(services) => corrected.services.extend(services),
        None => corrected.is_enough = false,
    }
    corrected
}

/// Returns the elements that are not as installed. `None` if more must be compared: an element
/// that is left over may be missing.
fn differences(diff: &Diff, changed: &[Changed], owners: &[ObjectName]) -> Option<Corrected> {
    let owners = if owners.is_empty() {
        diff.services_of(&changed.iter().filter_map(|it| it.place.subject()).collect())
    } else {
        owners.iter().collect()
    };
    let mut installed = HashMap::default();
    for service in owners {
        diff.each_installed_element(Some(service), &mut |it| {
            installed.insert(ElementId::of_element(&it), (service, it));
        });
    }
    let mut differences = Corrected::nothing();
    for Changed { place, finding } in changed {
        match installed.get(place) {
            Some((_, installed)) if *finding == Finding::Present(Some(*installed)) => {}
            Some((service, installed)) => {
                differences.of_services.push(((*service).clone(), *installed, *finding));
            }
            None => {
                let differs = differs_from_none(diff, place, finding)?;
                differences.of_no_service.extend(differs.then_some((*place, *finding)));
            }
        }
    }
    Some(differences)
}

/// Returns whether an element that no service has, or that several share, is not as installed.
fn differs_from_none(diff: &Diff, place: &ElementId, finding: &Finding) -> Option<bool> {
    let is_missing = *finding == Finding::Missing;
    match (place.member(), place.subject()) {
        (Some(member), _) => Some(diff.is_member_installed(&member) == is_missing),
        // Without the element that is left over, the deletion to come would be refused.
        (None, Some(subject)) if is_missing && diff.is_left_over(subject) => None,
        // Another program added it and deleted it again, if it is missing.
        (None, _) => Some(!is_missing),
    }
}

/// Records elements of no service, or of several, that differ from the installed state. An
/// element that nothing may need is deleted first in the next transaction. Returns the services
/// to be updated again, or `None` if the tables must be read.
fn adopt(
    diff: &mut Diff,
    tables: &mut Tables,
    differences: &[(ElementId, Finding)],
    owners: &[ObjectName],
) -> Option<Vec<ObjectName>> {
    let (mut subjects, mut missing) = (HashSet::default(), HashSet::default());
    for (place, finding) in differences {
        if let Some(member) = place.member() {
            let is_missing = *finding == Finding::Missing;
            diff.set_member_installed(member, !is_missing);
            missing.extend(is_missing.then_some(member));
            continue;
        }
        let Finding::Present(found) = finding else { return None };
        if found.is_some_and(|found| diff.adopt(found)) {
            subjects.extend(place.subject());
        } else {
            delete_orphan(tables, place);
        }
    }
    let mut services = diff.services_of(&subjects);
    if owners.is_empty() || missing.is_empty() {
        services.extend(diff.services_with(&missing));
    } else {
        services.extend(owners);
    }
    Some(services.into_iter().cloned().collect())
}

/// Deletes an element that is not installed, first in the next transaction.
fn delete_orphan(tables: &mut Tables, place: &ElementId) {
    let ElementId { family, set, key } = *place;
    let layout = Arc::clone(tables.layouts.of(family).get(set));
    let delete = vec![Element::new(key)];
    let operation = Operation::DeleteElements(ruleset::table(family), layout, delete);
    tables.of_mut(family).clean_up(operation);
}
