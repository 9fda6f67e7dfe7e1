//! Installed elements, and what a lookup found in their place.

use std::collections::BTreeSet;

use ipnet::IpNet;
use nft::family::Family;
use nft::kernel::ElementKey;
use nft::{ElementView, Value};

use super::ended_elements::without_label;
use crate::desired::Label;
use crate::model::Target;
use crate::ruleset::{Member, SetId, Subject, TableElement};

/// The place of an element in our tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId {
    /// The family of its table.
    pub family: Family,
    /// Its set or map.
    pub set: SetId,
    /// Its key.
    pub key: Value,
}

/// An element in the kernel; labels are compared by their digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstalledElement {
    /// The family of its table.
    pub family: Family,
    /// The element, without a label.
    pub element: TableElement<'static>,
    /// Digest of the label; 0 without one.
    pub(super) label: u32,
}

/// The finding in the kernel in place of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No element with this key.
    Missing,
    /// An element with the same key; `None` if this program never writes such an element.
    Present(Option<InstalledElement>),
}

/// An element that may differ from the installed one, and its finding in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its place.
    pub place: ElementId,
    /// What a lookup found there.
    pub finding: Finding,
}

impl ElementId {
    /// Returns the places of elements, each once; `None` if a set is not one of ours.
    pub fn all_of(elements: &[ElementKey]) -> Option<Vec<Self>> {
        let places: Option<BTreeSet<_>> = elements.iter().map(Self::of).collect();
        Some(places?.into_iter().collect())
    }

    fn of(element: &ElementKey) -> Option<Self> {
        let set = SetId::by_name(&element.set)?;
        Some(Self { family: element.table.family.of_addresses()?, set, key: element.key.clone() })
    }

    /// Returns the owner of the element; `None` for sets that services share.
    pub(crate) fn subject(&self) -> Option<(Family, Subject)> {
        Some((self.family, Subject::read(self.family, self.set, self.key.as_bytes())?))
    }

    pub(crate) fn member(&self) -> Option<Member> {
        Member::read(self.family, self.set, self.key.as_bytes())
    }

    /// Returns the source range with this key, if it is one.
    pub(super) fn source_range(&self) -> Option<IpNet> {
        if let TableElement::SourceRange(_, range) = self.of_key()? { Some(range) } else { None }
    }

    /// Returns the ended endpoint with this key, if it is one.
    pub(super) fn ended(&self) -> Option<Target> {
        if let TableElement::Ended(target, ..) = self.of_key()? { Some(target) } else { None }
    }

    /// Returns the element with this key, in a set.
    fn of_key(&self) -> Option<TableElement<'_>> {
        let view = ElementView { key: self.key.as_bytes(), ..ElementView::default() };
        TableElement::read(self.family, self.set, &view)
    }

    /// Returns the place of an installed element.
    pub fn of_element(installed: &InstalledElement) -> Self {
        let InstalledElement { family, element, .. } = installed;
        Self { family: *family, set: element.set(), key: element.to_key().key }
    }
}

impl InstalledElement {
    /// Returns an element that was read.
    pub fn found(family: Family, element: &TableElement<'_>) -> Self {
        let (element, label) = element.without_label();
        Self { family, element, label: label.map_or(0, |it| Label::digest_of(it.as_bytes())) }
    }

    pub(super) fn member(member: Member) -> Self {
        Self { family: member.family(), element: TableElement::Member(member), label: 0 }
    }

    pub(super) fn ended(target: Target) -> Self {
        Self { family: Family::of(target.address), element: without_label(target), label: 0 }
    }
}
