//! Elements that were looked up, compared one by one with the installed ones.
//!
//! A lookup shows the present element, so the kind of change does not matter. All other elements
//! are as installed, so the tables need not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use ahash::HashMap;
use nft::{Element, Operation};

use super::tables::Tables;
use crate::diff::{Changed, Diff, ElementId, Finding, InstalledElement};
use crate::model::ObjectName;
use crate::ruleset;

/// Elements that were not as installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    /// Each of them.
    pub differences: Vec<Difference>,
    /// Services to be updated again.
    pub(super) services: BTreeSet<ObjectName>,
    /// The installed state could not be corrected: the tables must be read.
    pub is_insufficient: bool,
}

/// An element that was not as installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The service that has it; `None` if none has, or if several share it.
    pub service: Option<ObjectName>,
    /// Its place.
    pub place: ElementId,
    /// The element that was installed there.
    pub installed: Option<InstalledElement>,
    /// What was found there.
    pub finding: Finding,
}

/// Replaces the installed state of elements by the findings. `owners` are the services that have
/// them; without any, they are searched. An element that nothing may need is deleted first in the
/// next transaction.
pub(super) fn correct(
    diff: &mut Diff,
    tables: &mut Tables,
    found: &[Changed],
    owners: &[ObjectName],
) -> Corrected {
    let mut corrected = Corrected::default();
    let differing: Vec<_> = found.iter().filter(|it| diff.differs(it)).collect();
    if differing.is_empty() {
        return corrected;
    }
    corrected.services = if owners.is_empty() {
        owners_of(diff, &differing)
    } else {
        owners.iter().cloned().collect()
    };
    let mut holders = HashMap::default();
    for service in &corrected.services {
        diff.each_installed_element(Some(service), &mut |it| {
            holders.insert(ElementId::of_element(&it), service);
        });
    }
    for Changed { place, finding } in differing.into_iter().cloned() {
        let installed = diff.installed_at(&place);
        corrected.is_insufficient |= match (installed, finding) {
            (Some(installed), _) => !diff.correct(installed, finding),
            (None, Finding::Missing) => false,
            (None, Finding::Present(found)) => {
                if !found.is_some_and(|found| diff.adopt(found)) {
                    delete_orphan(tables, &place);
                }
                false
            }
        };
        let service = holders.get(&place).map(|it| (*it).clone());
        corrected.differences.push(Difference { service, place, installed, finding });
    }
    corrected
}

/// Returns the services that have elements, and those that share one.
fn owners_of(diff: &Diff, differing: &[&Changed]) -> BTreeSet<ObjectName> {
    let subjects = differing.iter().filter_map(|it| it.place.subject()).collect();
    let members = differing.iter().filter_map(|it| it.place.member()).collect();
    let mut owners = diff.services_of(&subjects);
    owners.extend(diff.services_with(&members));
    owners.into_iter().cloned().collect()
}

/// Deletes an element that is not installed, first in the next transaction.
fn delete_orphan(tables: &mut Tables, place: &ElementId) {
    let ElementId { family, set, ref key } = *place;
    let layout = Arc::clone(tables.layouts.of(family).get(set));
    let delete = [Element::new(key.clone())].into();
    let operation = Operation::DeleteElements(ruleset::table(family), layout, delete);
    tables.of_mut(family).clean_up(operation);
}
