//! Installed elements of a table, to be written without a read.

use std::sync::Arc;

use nft::{Family, Operation, TableRef};

use super::lists::Lists;
use super::members::Members;
use super::packed_map::sorted;
use crate::ruleset::{Layouts, ListUse, Member, SetId, TableElement};

/// The elements of [`KnownElements::SETS`] in a table: most of its elements. Frontends are not among
/// them, because their labels are not kept.
#[derive(Debug)]
pub struct KnownElements {
    layouts: Arc<Layouts>,
    family: Family,
    /// Those of one set after the other.
    elements: Vec<TableElement<'static>>,
}

/// Bytes of an endpoint in a message: 40 with IPv4, 52 with IPv6.
const ELEMENT_BYTES: usize = 52;

impl KnownElements {
    /// The sets whose elements are known.
    pub const SETS: [SetId; 2] = [SetId::Endpoints, SetId::ClusterIps];

    /// Returns the elements of the table with these lists. All lists must be read.
    pub(super) fn new(lists: &Lists, members: &Members, layouts: Arc<Layouts>) -> Self {
        let (family, mut elements) = (lists.family(), Vec::new());
        for id in sorted(lists.plain()) {
            let Some(list) = lists.get(id) else { continue };
            let ListUse::Port(protocol) = list.of else { continue };
            let slots = (0..).zip(list.iter());
            let slots = slots.filter_map(|(slot, target)| Some((slot, target?)));
            elements.extend(slots.map(|(slot, it)| TableElement::Endpoint(id, protocol, slot, it)));
        }
        let cluster_ips = members
            .installed()
            .filter(|member| matches!(member, Member::ClusterIp(_)) && member.family() == family);
        elements.extend(sorted(cluster_ips).into_iter().map(TableElement::Member));
        Self { layouts, family, elements }
    }

    /// Returns the number of elements of a set.
    pub fn count(&self, set: SetId) -> usize {
        self.elements.iter().filter(|element| element.set() == set).count()
    }

    /// Returns the operation that adds those from the position `first` on to a table: of one set, and
    /// of about `bytes` bytes at most. `None` if there are no more.
    pub fn added_to(&self, table: &TableRef, first: usize, bytes: usize) -> Option<Operation> {
        let rest = self.elements.get(first..)?;
        let set = rest.first()?.set();
        let next = rest.iter().take((bytes / ELEMENT_BYTES).max(1));
        let of_set = next.take_while(|element| element.set() == set);
        let elements = of_set.map(TableElement::to_element).collect();
        let set = Arc::clone(self.layouts.of(self.family).get(set));
        Some(Operation::AddElements(table.clone(), set, elements))
    }
}
