//! Installed elements, and what a lookup found in their place.

use nft::family::Family;

use crate::desired::Label;
use crate::ruleset::{Member, TableElement};

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

impl InstalledElement {
    /// Returns an element that was read.
    pub fn found(family: Family, element: &TableElement<'_>) -> Self {
        let (element, label) = element.without_label();
        Self { family, element, label: label.map_or(0, |it| Label::digest_of(it.as_bytes())) }
    }

    pub(super) fn member(member: Member) -> Self {
        Self { family: member.family(), element: TableElement::Member(member), label: 0 }
    }
}
