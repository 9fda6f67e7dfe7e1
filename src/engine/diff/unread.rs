//! Endpoint lists of one table that routes name and that are not read yet.
//!
//! Until all are read, other lists may exist in the kernel, so no new number is given out. Lists
//! that are not read are not changed, so the number of elements stays that of the map.

use std::collections::BTreeMap;

use ahash::HashMap;
use nft::Family;

use super::list::List;
use crate::model::{Protocol, Target};
use crate::ruleset::NamedList;
use crate::ruleset::number::ListId;

/// Lists of one request, which takes some 5 ms. A change waits for two of them.
const AT_A_TIME: usize = 512;

/// Lists that are not read yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnreadLists {
    lists: BTreeMap<ListId, NamedList>,
    /// Those to be read first: services wait for them.
    first: Vec<ListId>,
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
        Self { lists, first: Vec::new(), elements }
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

    /// Returns the lists to be read next: all that services wait for, and some others.
    pub(super) fn next(&mut self) -> Vec<NamedList> {
        let mut first = std::mem::take(&mut self.first);
        first.sort_unstable();
        first.dedup();
        let mut next: Vec<_> = first.iter().filter_map(|id| self.lists.get(id)).copied().collect();
        let others = self.lists.values().filter(|it| first.binary_search(&it.list).is_err());
        next.extend(others.take(AT_A_TIME.saturating_sub(next.len())));
        next
    }

    /// Puts the endpoints that were read into `lists`.
    pub(super) fn read(&mut self, read: ReadLists, lists: &mut HashMap<ListId, List>) {
        self.elements = self.elements.saturating_sub(read.endpoints.len());
        for (id, protocol, slot, target) in read.endpoints {
            if self.contain(id) {
                let list = lists.entry(id).or_insert(List::new(read.family, protocol));
                list.put(slot as usize, target);
            }
        }
        for NamedList { list: id, .. } in read.lists {
            self.lists.remove(&id);
            if let Some(list) = lists.get_mut(&id) {
                list.trim();
            }
        }
    }
}
