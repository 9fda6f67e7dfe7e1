//! Endpoint lists of one service by purpose: mostly few, but thousands for a service with as many
//! ports.

use ahash::HashMap;
use nft::family::Family;
use smallvec::SmallVec;

use super::holdings::{ListPurpose, ServiceList};
use crate::desired::SmallSet;
use crate::ruleset::number::ListId;

/// Lists by purpose. A service has at most one plain list and one with affinity for each purpose.
#[derive(Debug, Default)]
pub(super) struct ListsByPurpose {
    lists: SmallVec<[ServiceList; 2]>,
    /// Index of each list, once there are many.
    index: Option<HashMap<(ListPurpose, bool), usize>>,
    ids: SmallSet<(Family, ListId)>,
}

/// Number of lists up to which a linear search is used.
const FEW: usize = 16;

impl ListsByPurpose {
    pub(super) fn push(&mut self, list: ServiceList) {
        self.lists.push(list);
        self.ids.insert((list.family, list.id));
        let index = || (0..).zip(&self.lists).map(|(i, it)| (it.key(), i)).collect();
        match (&mut self.index, self.lists.len()) {
            (None, FEW..) => self.index = Some(index()),
            (None, _) => {}
            (Some(index), many) => _ = index.insert(list.key(), many - 1),
        }
    }

    /// Returns the list of a purpose, with affinity or without.
    pub(super) fn find(&self, purpose: ListPurpose, has_affinity: bool) -> Option<ServiceList> {
        let key = (purpose, has_affinity);
        match &self.index {
            None => self.lists.iter().find(|list| list.key() == key).copied(),
            Some(index) => index.get(&key).map(|i| self.lists[*i]),
        }
    }

    /// Returns whether a list is among them, of any purpose.
    pub(super) fn has(&self, family: Family, id: ListId) -> bool {
        self.ids.contains(&(family, id))
    }

    pub(super) fn contains(&self, list: &ServiceList) -> bool {
        self.find(list.purpose(), list.id.has_affinity()).as_ref() == Some(list)
    }

    /// Returns the lists in the order in which they were added.
    pub(super) fn into_lists(self) -> SmallVec<[ServiceList; 2]> {
        self.lists
    }
}

impl FromIterator<ServiceList> for ListsByPurpose {
    fn from_iter<I: IntoIterator<Item = ServiceList>>(lists: I) -> Self {
        let mut all = Self::default();
        lists.into_iter().for_each(|list| all.push(list));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::desired::Scope;
    use crate::model::Protocol;
    use crate::ruleset::ListUse;

    fn list(number: u16) -> ServiceList {
        let (family, of, scope) = (Family::Ip, ListUse::Port(Protocol::Tcp), Scope::Cluster);
        let port = NonZeroU16::new(number).unwrap();
        ServiceList { family, of, port, scope, id: ListId::plain(number.into()) }
    }

    #[test]
    fn each_of_few_and_of_many_is_found() {
        for count in [1, 15, 16, 17, 100] {
            let lists: ListsByPurpose = (1..=count).map(list).collect();
            for number in 1..=count {
                assert_eq!(
                    lists.find(list(number).purpose(), false),
                    Some(list(number)),
                    "{count}"
                );
            }
            assert!(lists.find(list(1).purpose(), true).is_none());
            assert!(!lists.contains(&list(count + 1)));
            assert_eq!(lists.into_lists().len(), usize::from(count));
        }
    }
}
