//! The endpoint lists of one table.

use std::collections::hash_map::Entry;

use ahash::{HashMap, HashSet};
use nft::family::Family;
use smallvec::SmallVec;

use super::assignment::assign;
use super::list::List;
use super::numbers::Numbers;
use super::unread::{ReadLists, UnreadLists};
use crate::desired::SlotPlan;
use crate::model::Target;
use crate::piece::{Full, Piece};
use crate::ruleset::number::{EndpointId, LAST_ENDPOINT, ListId, Route};
use crate::ruleset::{ListUse, SizeClasses, TableElement};

/// The installed affinity state of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Affinity {
    pub(super) endpoints: HashMap<Target, EndpointId>,
    /// The same by number.
    pub(super) targets: HashMap<EndpointId, Target>,
    /// The list's element of `affinity-lists`.
    pub(super) route: Option<Route>,
    last: EndpointId,
}

/// A list open for changes.
pub(super) struct OpenList<'a> {
    family: Family,
    id: ListId,
    pub(super) list: &'a mut List,
    pub(super) affinity: Option<&'a mut Affinity>,
}

/// All lists of one table and their numbers.
#[derive(Debug)]
pub(super) struct Lists {
    family: Family,
    lists: HashMap<ListId, List>,
    affinity: HashMap<ListId, Affinity>,
    plain: Numbers,
    sessions: Numbers,
    /// Lists that are not read yet.
    pub(super) unread: UnreadLists,
    /// The size classes in routes since the tables were read, some only formerly.
    pub(super) size_classes: SizeClasses,
}

impl Lists {
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            lists: HashMap::default(),
            affinity: HashMap::default(),
            plain: Numbers::new(ListId::FIRST_PLAIN, ListId::LAST_PLAIN),
            sessions: Numbers::new(ListId::FIRST_SESSION, ListId::LAST_SESSION),
            unread: UnreadLists::default(),
            size_classes: SizeClasses::default(),
        }
    }

    /// Returns the family of the table.
    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn get(&self, id: ListId) -> Option<&List> {
        self.lists.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ListId) -> Option<&mut List> {
        self.lists.get_mut(&id)
    }

    /// Returns whether every number of a list with affinity is taken.
    pub(super) fn are_sessions_full(&self) -> bool {
        u32::try_from(self.affinity.len()).is_ok_and(|count| count >= ListId::LAST_SESSION)
    }

    /// Returns the affinity state of a list.
    pub(super) fn affinity(&self, id: ListId) -> Option<&Affinity> {
        self.affinity.get(&id)
    }

    /// Replaces the installed state by a read-back.
    pub(super) fn adopt(
        &mut self,
        lists: HashMap<ListId, List>,
        affinity: HashMap<ListId, Affinity>,
        unread: UnreadLists,
    ) {
        (self.lists, self.affinity, self.unread) = (lists, affinity, unread);
        self.size_classes = SizeClasses::default();
        for named in self.unread.iter() {
            let empty = List::new(self.family, ListUse::Port(named.protocol));
            self.lists.entry(named.list).or_insert(empty);
        }
        let numbers = |has_affinity| {
            let lists = self.lists.keys().filter(move |list| list.has_affinity() == has_affinity);
            lists.map(|list| list.number())
        };
        self.plain.adopt(numbers(false));
        self.sessions.adopt(numbers(true));
    }

    /// Fills lists that were not read yet.
    pub(super) fn read(&mut self, read: ReadLists) {
        self.unread.read(read, &mut self.lists);
    }

    /// Returns whether a service without a list of its own can adopt this one.
    pub(super) fn can_adopt(&self, id: ListId, of: ListUse, affinity: bool) -> bool {
        id.has_affinity() == affinity
            && self.lists.get(&id).is_some_and(|list| !list.is_owned && list.of == of)
    }

    /// Adds a list of a service; returns `None` if all numbers of its kind are taken. With a plain
    /// list, all lists must be read.
    pub(super) fn add(&mut self, of: ListUse, affinity: bool) -> Option<ListId> {
        let (numbers, id): (_, fn(u32) -> ListId) = if affinity {
            (&mut self.sessions, ListId::session)
        } else {
            (&mut self.plain, ListId::plain)
        };
        let lists = &self.lists;
        let id = id(numbers.give(|number| lists.contains_key(&id(number)))?);
        self.keep(id, of);
        Some(id)
    }

    /// Records that a service needs the list, which is empty if it is not installed. A list of
    /// another protocol is that of another program, and stays without an owner.
    pub(super) fn keep(&mut self, id: ListId, of: ListUse) {
        let list = self.lists.entry(id).or_insert(List::new(self.family, of));
        list.is_owned |= list.of == of;
        if id.has_affinity() {
            self.affinity.entry(id).or_default();
        }
    }

    /// Records that no service needs the list; returns whether it is to be deleted.
    pub(super) fn disown(&mut self, id: ListId) -> bool {
        self.lists.get_mut(&id).is_some_and(|list| {
            list.is_owned = false;
            list.is_unused()
        })
    }

    pub(super) fn add_reference(&mut self, id: ListId) {
        if let Some(list) = self.lists.get_mut(&id) {
            list.references += 1;
        }
    }

    /// Records that an installed route no longer names the list; returns whether it is to be
    /// deleted.
    pub(super) fn remove_reference(&mut self, id: ListId) -> bool {
        self.lists.get_mut(&id).is_some_and(|list| {
            list.references = list.references.saturating_sub(1);
            list.is_unused()
        })
    }

    /// Returns the lists that no service needs and no route names.
    pub(super) fn unused(&self) -> impl Iterator<Item = ListId> {
        self.lists.iter().filter(|(_, list)| list.is_unused()).map(|(id, _)| *id)
    }

    /// Returns the lists without affinity.
    pub(super) fn plain(&self) -> impl Iterator<Item = ListId> {
        self.lists.keys().filter(|id| !id.has_affinity()).copied()
    }

    /// Opens a list for changes.
    pub(super) fn open(&mut self, id: ListId) -> Option<OpenList<'_>> {
        let affinity = if id.has_affinity() { self.affinity.get_mut(&id) } else { None };
        Some(OpenList { family: self.family, id, list: self.lists.get_mut(&id)?, affinity })
    }

    /// Deletes an unused list, as far as it fits into the piece. Its number rests from then on.
    pub(super) fn delete(&mut self, id: ListId, piece: &mut Piece) -> Result<(), Full> {
        let Some(mut list) = self.open(id).filter(|it| it.list.is_unused()) else { return Ok(()) };
        list.set_route(None, piece);
        list.cut(0, piece)?;
        list.forget_endpoints(piece)?;
        self.lists.remove(&id);
        self.affinity.remove(&id);
        self.numbers(id).free(id.number());
        Ok(())
    }

    /// Records a commit, after which freed numbers may be used again.
    pub(super) fn end_rest(&mut self) {
        self.plain.end_rest();
        self.sessions.end_rest();
    }

    fn numbers(&mut self, id: ListId) -> &mut Numbers {
        if id.has_affinity() { &mut self.sessions } else { &mut self.plain }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.affinity.is_empty()
    }

    /// Limits the numbers of lists with affinity to `count`.
    #[cfg(test)]
    pub(super) fn limit_sessions(&mut self, count: u32) {
        self.sessions = Numbers::new(1, count);
    }

    /// Limits the numbers of plain lists to `count`.
    #[cfg(test)]
    pub(super) fn limit_plain(&mut self, count: u32) {
        self.plain = Numbers::new(ListId::FIRST_PLAIN, ListId::FIRST_PLAIN + count - 1);
    }
}

impl OpenList<'_> {
    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Puts endpoints into the first slots with the fewest moves, as far as they fit into the piece.
    /// Keeps later slots, which rules may still draw.
    pub(super) fn fill(
        &mut self,
        endpoints: &[Target],
        plan: &SlotPlan,
        piece: &mut Piece,
    ) -> Result<(), Full> {
        let installed: SmallVec<[_; 8]> = self.list.iter().collect();
        let slots = assign(&installed, endpoints, plan);
        // Growing by single slots would take quadratic time.
        self.list.resize(slots.len().max(self.list.len()));
        for (slot, target) in slots.iter().enumerate() {
            if let Some(target) = target.filter(|target| self.list.slot(slot) != Some(*target)) {
                piece.fits_budget(if self.affinity.is_some() { 4 } else { 2 })?;
                self.put(slot, target, piece);
            }
        }
        Ok(())
    }

    /// Puts endpoints into a few slots and sets the length.
    pub(super) fn edit(
        &mut self,
        edits: impl IntoIterator<Item = (usize, Target)>,
        length: usize,
        piece: &mut Piece,
    ) {
        edits.into_iter().for_each(|(slot, target)| self.put(slot, target, piece));
        (length..self.len()).for_each(|slot| self.clear(slot, piece));
        self.list.resize(length);
    }

    /// Deletes the slots from `length` on, as far as they fit into the piece.
    pub(super) fn cut(&mut self, length: usize, piece: &mut Piece) -> Result<(), Full> {
        let mut left = self.len();
        let result = (length..left).rev().try_for_each(|slot| {
            piece.fits_budget(1)?;
            self.clear(slot, piece);
            left = slot;
            Ok(())
        });
        self.list.resize(left);
        result
    }

    /// Deletes endpoints of a list with affinity that no slot names.
    pub(super) fn forget_endpoints(&mut self, piece: &mut Piece) -> Result<(), Full> {
        let Some(affinity) = &mut self.affinity else { return Ok(()) };
        let used: HashSet<Target> = self.list.iter().flatten().collect();
        let unused = affinity.endpoints.iter().filter(|(target, _)| !used.contains(target));
        let mut unused: Vec<_> = unused.map(|(target, id)| (*target, *id)).collect();
        unused.sort_unstable();
        for (target, id) in unused {
            piece.fits_budget(1)?;
            piece.delete(self.family, &TableElement::of_session(self.id, self.list.of, id, target));
            affinity.endpoints.remove(&target);
            affinity.targets.remove(&id);
        }
        Ok(())
    }

    /// Sets the list's element of `affinity-lists`, which routes clients of removed endpoints.
    pub(super) fn set_route(&mut self, route: Option<Route>, piece: &mut Piece) {
        if let Some(affinity) = self.affinity.as_mut().filter(|it| it.route != route) {
            let element = |route| TableElement::AffinityList(self.id, route);
            piece.replace(self.family, affinity.route.map(element), route.map(element));
            affinity.route = route;
        }
    }

    fn put(&mut self, slot: usize, target: Target, piece: &mut Piece) {
        let endpoint = self.endpoint(target, piece);
        let element = self.element(slot, target, endpoint);
        piece.replace(self.family, self.list.slot(slot).map(|_| element), Some(element));
        self.list.put(slot, target);
    }

    fn clear(&self, slot: usize, piece: &mut Piece) {
        if let Some(target) = self.list.slot(slot) {
            piece.delete(self.family, &self.element(slot, target, 0));
        }
    }

    /// Returns the element of a slot; its key does not depend on the endpoint.
    fn element(&self, slot: usize, target: Target, id: EndpointId) -> TableElement<'static> {
        // Lists have at most 65,536 slots.
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        match (&self.affinity, self.list.of) {
            (None, ListUse::Port(protocol)) => {
                TableElement::Endpoint(self.id, protocol, slot, target)
            }
            // Those of port ranges all have affinity.
            (Some(_), _) | (None, ListUse::Ranges) => TableElement::AffinitySlot(self.id, slot, id),
        }
    }

    /// Returns the number of an endpoint of a list with affinity, and adds the endpoint if it is
    /// new. Returns 0 for a plain list.
    fn endpoint(&mut self, target: Target, piece: &mut Piece) -> EndpointId {
        let Some(affinity) = &mut self.affinity else { return 0 };
        if let Some(id) = affinity.endpoints.get(&target) {
            return *id;
        }
        let id = affinity.new_id(target);
        let element = TableElement::of_session(self.id, self.list.of, id, target);
        piece.add(self.family, &element);
        id
    }
}

impl Affinity {
    /// Adds an endpoint found in the kernel; returns whether it has no other number there.
    pub(super) fn adopt_endpoint(&mut self, target: Target, id: EndpointId) -> bool {
        self.last = self.last.max(id);
        let is_known_by_it = *self.endpoints.entry(target).or_insert(id) == id;
        if is_known_by_it {
            self.targets.insert(id, target);
        }
        is_known_by_it
    }

    /// Assigns the next free number to an endpoint. There are four times as many numbers as
    /// endpoints in a list.
    fn new_id(&mut self, target: Target) -> EndpointId {
        loop {
            self.last = self.last % LAST_ENDPOINT + 1;
            if let Entry::Vacant(free) = self.targets.entry(self.last) {
                free.insert(target);
                self.endpoints.insert(target, self.last);
                return self.last;
            }
        }
    }
}
