//! Endpoint lists of one table that routes name and that are not read yet.
//!
//! Until all are read, other lists may exist in the kernel, so no new number is given out. Lists
//! that are not read are not changed, so the number of elements stays that of the map.

use std::collections::BTreeMap;

use ahash::{HashMap, HashSet};
use nft::Family;

use super::list::List;
use crate::model::{Protocol, Target};
use crate::ruleset::ListUse;
use crate::ruleset::NamedList;
use crate::ruleset::number::ListId;

/// Lists of one request, which takes some 5 ms. A change waits for two of them.
pub(super) const AT_A_TIME: usize = 512;

/// Lists of one request while no change waits: the reader of the kernel never waits for the next one.
pub(super) const AT_ONCE: usize = 2_048;

/// Lists that are not read yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnreadLists {
    lists: BTreeMap<ListId, NamedList>,
    /// Those to be read first: services wait for them.
    first: Vec<ListId>,
    /// Those that were requested.
    requested: HashSet<ListId>,
    /// Elements of the map of endpoints, without those that were read.
    elements: usize,
}

/// Lists that were read by their keys.
#[derive(Debug)]
pub struct ReadLists {
    /// The family of the table.
    pub family: Family,
    /// The lists.
    pub lists: Vec<NamedList>,
    /// Their endpoints, with the slot of each.
    pub endpoints: Vec<(ListId, Protocol, u32, Target)>,
}

impl UnreadLists {
    pub(super) fn new(lists: BTreeMap<ListId, NamedList>, elements: usize) -> Self {
        Self { lists, elements, ..Self::default() }
    }

    /// Returns whether all lists are read.
    pub(super) fn are_none(&self) -> bool {
        self.lists.is_empty()
    }

    /// Returns whether lists are left, or those that were read have all elements of the map.
    pub(super) fn may_be_all(&self) -> bool {
        !self.are_none() || self.elements == 0
    }

    /// Returns whether no other list is in the kernel than those that are known.
    pub(super) fn have_told_all(&self) -> bool {
        self.are_none() && self.may_be_all()
    }

    fn contain(&self, list: ListId) -> bool {
        self.lists.contains_key(&list)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &NamedList> {
        self.lists.values()
    }

    /// Lets a list be read before others; returns false if it is read.
    pub(super) fn hurry(&mut self, list: ListId) -> bool {
        let is_unread = self.contain(list);
        if is_unread {
            self.first.push(list);
        }
        is_unread
    }

    pub(super) fn has_hurried(&self) -> bool {
        !self.first.is_empty()
    }

    /// Returns the lists to be requested next: all that services wait for, and others up to `most`.
    /// Those of a request without an answer are not among them.
    pub(super) fn next(&mut self, most: usize) -> Vec<NamedList> {
        let mut first = std::mem::take(&mut self.first);
        first.sort_unstable();
        first.dedup();
        let unrequested = |it: &&NamedList| !self.requested.contains(&it.list);
        let named = first.iter().filter_map(|id| self.lists.get(id));
        let mut next: Vec<_> = named.filter(unrequested).copied().collect();
        let others = self.lists.values().filter(|it| first.binary_search(&it.list).is_err());
        next.extend(others.filter(unrequested).take(most.saturating_sub(next.len())));
        self.requested.extend(next.iter().map(|it| it.list));
        next
    }

    /// Puts the endpoints that were read into `lists`.
    pub(super) fn read(&mut self, read: ReadLists, lists: &mut HashMap<ListId, List>) {
        self.elements = self.elements.saturating_sub(read.endpoints.len());
        for (id, protocol, slot, target) in read.endpoints {
            if self.contain(id) {
                let list =
                    lists.entry(id).or_insert(List::new(read.family, ListUse::Port(protocol)));
                list.put(slot as usize, target);
            }
        }
        for NamedList { list: id, .. } in read.lists {
            self.lists.remove(&id);
            self.requested.remove(&id);
            if let Some(list) = lists.get_mut(&id) {
                list.trim();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::number::SizeClass;

    #[test]
    fn lists_of_a_request_without_an_answer_are_not_requested_again() {
        let named = |number: u32| NamedList {
            list: ListId::plain(number),
            protocol: Protocol::Tcp,
            size: SizeClass::of(1),
        };
        let lists: Vec<_> = (1..=5).map(named).collect();
        let ids = |next: Vec<NamedList>| next.iter().map(|it| it.list).collect::<Vec<_>>();
        let [first, second, third, fourth, fifth] = [0, 1, 2, 3, 4].map(|i| lists[i].list);
        let all = lists.iter().map(|it| (it.list, *it)).collect();
        let mut unread = UnreadLists::new(all, 5);
        assert!(unread.hurry(third));
        assert_eq!(ids(unread.next(2)), [third, first]);
        assert!(unread.hurry(third) && unread.hurry(fifth));
        assert_eq!(ids(unread.next(2)), [fifth, second]);

        let mut found = HashMap::default();
        let read = ReadLists { family: Family::Ip, lists: vec![lists[2]], endpoints: Vec::new() };
        unread.read(read, &mut found);
        assert!(!unread.hurry(third) && unread.hurry(first));
        assert_eq!(ids(unread.next(2)), [fourth]);
        assert!(unread.next(2).is_empty() && !unread.are_none());
    }
}
