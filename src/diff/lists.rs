//! The endpoint lists of one table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use ahash::{HashMap, HashSet};

use super::numbers::Numbers;
use super::slots::assign;
use super::{Epoch, Progress};
use crate::family::Family;
use crate::model::{Protocol, Target};
use crate::plan::Piece;
use crate::ruleset::TableElement;
use crate::ruleset::number::{EndpointId, LAST_ENDPOINT, ListId, Route};

/// The endpoints in the slots of one list, as installed.
#[derive(Debug, PartialEq, Eq)]
pub struct List {
    protocol: Protocol,
    /// Whether a service needs it.
    is_owned: bool,
    /// How many installed routes name it.
    references: u32,
    slots: Slots,
}

/// Slots by number. A hole, possible only in what was read back, has port 0.
#[derive(Debug, PartialEq, Eq)]
enum Slots {
    V4(Box<[Slot<Ipv4Addr>]>),
    V6(Box<[Slot<Ipv6Addr>]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot<A> {
    address: A,
    port: u16,
}

/// What session affinity adds to a list, as installed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Affinity {
    /// The endpoint of each slot; 0 in a hole.
    slots: Vec<EndpointId>,
    endpoints: HashMap<Target, EndpointId>,
    /// The numbers of `endpoints`.
    ids: HashSet<EndpointId>,
    /// The list's element of `affinity-lists`.
    route: Option<Route>,
    last: EndpointId,
}

/// All lists of one table and their numbers.
#[derive(Debug)]
pub(super) struct Lists {
    family: Family,
    lists: HashMap<ListId, List>,
    affinity: HashMap<ListId, Affinity>,
    plain: Numbers,
    sessions: Numbers,
}

impl List {
    pub(super) fn new(family: Family, protocol: Protocol) -> Self {
        let slots = match family {
            Family::Ip => Slots::V4(Box::default()),
            Family::Ip6 => Slots::V6(Box::default()),
        };
        Self { protocol, is_owned: false, references: 0, slots }
    }

    /// The transport protocol of its endpoints.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        match &self.slots {
            Slots::V4(slots) => slots.len(),
            Slots::V6(slots) => slots.len(),
        }
    }

    /// The endpoint in a slot.
    pub(super) fn slot(&self, slot: usize) -> Option<Target> {
        match &self.slots {
            Slots::V4(slots) => slots.get(slot)?.target(),
            Slots::V6(slots) => slots.get(slot)?.target(),
        }
    }

    /// The endpoint in each slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<Target>> {
        (0..self.len()).map(|slot| self.slot(slot))
    }

    /// The first slot that holds an endpoint.
    pub(super) fn position(&self, endpoint: &Target) -> Option<usize> {
        let port = endpoint.port.get();
        match (&self.slots, endpoint.address) {
            (Slots::V4(slots), IpAddr::V4(address)) => {
                slots.iter().position(|slot| *slot == Slot { address, port })
            }
            (Slots::V6(slots), IpAddr::V6(address)) => {
                slots.iter().position(|slot| *slot == Slot { address, port })
            }
            (Slots::V4(_), IpAddr::V6(_)) | (Slots::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Puts an endpoint of the list's family into a slot; the list grows by holes to have it.
    pub(super) fn put(&mut self, slot: usize, target: Target) {
        if slot >= self.len() {
            self.resize(slot + 1);
        }
        let port = target.port.get();
        match (&mut self.slots, target.address) {
            (Slots::V4(slots), IpAddr::V4(address)) => slots[slot] = Slot { address, port },
            (Slots::V6(slots), IpAddr::V6(address)) => slots[slot] = Slot { address, port },
            (Slots::V4(_), IpAddr::V6(_)) | (Slots::V6(_), IpAddr::V4(_)) => {}
        }
    }

    /// Removes the slots from `length` on, or adds holes up to it.
    pub(super) fn resize(&mut self, length: usize) {
        match &mut self.slots {
            Slots::V4(slots) => resize(slots, length, Slot::hole(Ipv4Addr::UNSPECIFIED)),
            Slots::V6(slots) => resize(slots, length, Slot::hole(Ipv6Addr::UNSPECIFIED)),
        }
    }

    /// Removes the holes at the end.
    pub(super) fn trim(&mut self) {
        let length = (0..self.len()).rev().find(|slot| self.slot(*slot).is_some());
        self.resize(length.map_or(0, |last| last + 1));
    }

    fn is_unused(&self) -> bool {
        !self.is_owned && self.references == 0
    }
}

impl<A: Into<IpAddr> + Copy> Slot<A> {
    fn hole(address: A) -> Self {
        Self { address, port: 0 }
    }

    fn target(&self) -> Option<Target> {
        Some(Target { address: self.address.into(), port: NonZeroU16::new(self.port)? })
    }
}

fn resize<T: Copy>(slots: &mut Box<[T]>, length: usize, hole: T) {
    if slots.len() == length {
        return;
    }
    let mut resized = std::mem::take(slots).into_vec();
    resized.reserve_exact(length.saturating_sub(resized.len()));
    resized.resize(length, hole);
    *slots = resized.into_boxed_slice();
}

impl Lists {
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            lists: HashMap::default(),
            affinity: HashMap::default(),
            plain: Numbers::new(ListId::FIRST_PLAIN, ListId::LAST_PLAIN),
            sessions: Numbers::new(ListId::FIRST_SESSION, ListId::LAST_SESSION),
        }
    }

    pub(super) fn get(&self, id: ListId) -> Option<&List> {
        self.lists.get(&id)
    }

    /// Starts over from what the kernel was found to hold.
    pub(super) fn observe(
        &mut self,
        lists: HashMap<ListId, List>,
        affinity: HashMap<ListId, Affinity>,
    ) {
        (self.lists, self.affinity) = (lists, affinity);
        let numbers = |has_affinity| {
            let lists = self.lists.keys().filter(move |list| list.has_affinity() == has_affinity);
            lists.map(|list| list.number())
        };
        self.plain.observe(numbers(false));
        self.sessions.observe(numbers(true));
    }

    /// Whether a service that lost track of its list can have this one.
    pub(super) fn can_adopt(&self, id: ListId, protocol: Protocol, affinity: bool) -> bool {
        let is_free = |list: &List| !list.is_owned && list.protocol == protocol;
        id.has_affinity() == affinity && self.lists.get(&id).is_some_and(is_free)
    }

    /// A new list of a service; `None` if all numbers of its kind are taken.
    pub(super) fn add(&mut self, protocol: Protocol, affinity: bool) -> Option<ListId> {
        let (numbers, id): (_, fn(u32) -> ListId) = match affinity {
            true => (&mut self.sessions, ListId::session),
            false => (&mut self.plain, ListId::plain),
        };
        let lists = &self.lists;
        let id = id(numbers.give(|number| lists.contains_key(&id(number)))?);
        self.restore(id, protocol);
        Some(id)
    }

    /// Adds a list of a service with this number again; returns whether the number was free.
    pub(super) fn restore(&mut self, id: ListId, protocol: Protocol) -> bool {
        if self.lists.contains_key(&id) {
            return false;
        }
        self.lists.insert(id, List::new(self.family, protocol));
        if id.has_affinity() {
            self.affinity.insert(id, Affinity::default());
        }
        self.own(id);
        true
    }

    /// Notes that a service needs the list.
    pub(super) fn own(&mut self, id: ListId) {
        if let Some(list) = self.lists.get_mut(&id) {
            list.is_owned = true;
        }
    }

    /// Notes that no service needs the list; returns whether it is to be deleted.
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

    /// An installed route no longer names the list; returns whether it is to be deleted.
    pub(super) fn remove_reference(&mut self, id: ListId) -> bool {
        self.lists.get_mut(&id).is_some_and(|list| {
            list.references = list.references.saturating_sub(1);
            list.is_unused()
        })
    }

    /// Lists that nothing needs and names.
    pub(super) fn unused(&self) -> impl Iterator<Item = ListId> {
        self.lists.iter().filter(|(_, list)| list.is_unused()).map(|(id, _)| *id)
    }

    /// Puts the endpoints into the first slots, moving as few as possible, and leaves those after
    /// them: rules may still draw them.
    pub(super) fn fill(&mut self, id: ListId, wanted: &[Target], piece: &mut Piece) -> Progress {
        let Some(list) = self.lists.get_mut(&id) else { return Progress::Complete };
        let installed: smallvec::SmallVec<[_; 8]> = list.iter().collect();
        let goal = assign(&installed, wanted);
        let mut affinity = self.affinity.get_mut(&id);
        for (slot, target) in goal.iter().enumerate() {
            let former = installed.get(slot).copied().flatten();
            let Some(target) = target.filter(|target| former != Some(*target)) else { continue };
            if !piece.admits(if affinity.is_some() { 4 } else { 2 }) {
                return Progress::Partial;
            }
            match &mut affinity {
                Some(affinity) => affinity.put((id, list.protocol), slot, target, piece),
                None => {
                    let element = |target| endpoint(id, list.protocol, slot, target);
                    piece.replace(self.family, former.map(element), Some(element(target)));
                }
            }
            list.put(slot, target);
        }
        Progress::Complete
    }

    /// Puts endpoints into a few slots of a plain list and gives it another length.
    pub(super) fn edit(
        &mut self,
        id: ListId,
        edits: impl Iterator<Item = (usize, Target)>,
        length: usize,
        piece: &mut Piece,
    ) {
        let Some(list) = self.lists.get_mut(&id) else { return };
        let protocol = list.protocol;
        for (slot, target) in edits {
            let element = |target| endpoint(id, protocol, slot, target);
            piece.replace(self.family, list.slot(slot).map(element), Some(element(target)));
            list.put(slot, target);
        }
        for slot in length..list.len() {
            if let Some(target) = list.slot(slot) {
                piece.delete(self.family, &endpoint(id, protocol, slot, target));
            }
        }
        list.resize(length);
    }

    /// Deletes the slots from `length` on, as far as they fit into the piece.
    pub(super) fn cut(&mut self, id: ListId, length: usize, piece: &mut Piece) -> Progress {
        let Some(list) = self.lists.get_mut(&id) else { return Progress::Complete };
        let mut left = list.len();
        let mut progress = Progress::Complete;
        while left > length {
            if !piece.admits(1) {
                progress = Progress::Partial;
                break;
            }
            left -= 1;
            let Some(target) = list.slot(left) else { continue };
            match self.affinity.get(&id) {
                Some(_) => {
                    let slot = u32::try_from(left).unwrap_or(u32::MAX);
                    piece.delete(self.family, &TableElement::AffinitySlot(id, slot, 0));
                }
                None => piece.delete(self.family, &endpoint(id, list.protocol, left, target)),
            }
        }
        if left < list.len() {
            list.resize(left);
            if let Some(affinity) = self.affinity.get_mut(&id) {
                affinity.slots.truncate(left);
            }
        }
        progress
    }

    /// Deletes endpoints of a list with affinity that no slot names any more.
    pub(super) fn forget_endpoints(&mut self, id: ListId, piece: &mut Piece) -> Progress {
        let (Some(list), Some(affinity)) = (self.lists.get(&id), self.affinity.get_mut(&id)) else {
            return Progress::Complete;
        };
        let used: HashSet<Target> = list.iter().flatten().collect();
        let mut unused: Vec<_> =
            affinity.endpoints.iter().filter(|(target, _)| !used.contains(target)).collect();
        unused.sort_unstable();
        let unused: Vec<_> = unused.into_iter().map(|(target, id)| (*target, *id)).collect();
        for (target, endpoint) in unused {
            if !piece.admits(1) {
                return Progress::Partial;
            }
            let element = TableElement::AffinityEndpoint(id, list.protocol, endpoint, target);
            piece.delete(self.family, &element);
            affinity.endpoints.remove(&target);
            affinity.ids.remove(&endpoint);
        }
        Progress::Complete
    }

    /// Sets what a client whose endpoint is gone finds in `affinity-lists`.
    pub(super) fn set_route(&mut self, id: ListId, route: Option<Route>, piece: &mut Piece) {
        let Some(affinity) = self.affinity.get_mut(&id).filter(|it| it.route != route) else {
            return;
        };
        let element = |route| TableElement::AffinityList(id, route);
        piece.replace(self.family, affinity.route.map(element), route.map(element));
        affinity.route = route;
    }

    /// Deletes an unused list, as far as that fits into the piece. Its number rests from then on.
    pub(super) fn delete(&mut self, id: ListId, epoch: Epoch, piece: &mut Piece) -> Progress {
        if !self.lists.get(&id).is_some_and(List::is_unused) {
            return Progress::Complete;
        }
        self.set_route(id, None, piece);
        if self.cut(id, 0, piece) == Progress::Partial
            || self.forget_endpoints(id, piece) == Progress::Partial
        {
            return Progress::Partial;
        }
        self.lists.remove(&id);
        self.affinity.remove(&id);
        self.numbers(id).free(id.number(), epoch);
        Progress::Complete
    }

    /// Wakes numbers that were freed before this epoch.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        self.plain.begin(epoch);
        self.sessions.begin(epoch);
    }

    fn numbers(&mut self, id: ListId) -> &mut Numbers {
        if id.has_affinity() { &mut self.sessions } else { &mut self.plain }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.affinity.is_empty()
    }

    /// Leaves only so many numbers of lists with affinity.
    #[cfg(test)]
    pub(super) fn limit_sessions(&mut self, count: u32) {
        self.sessions = Numbers::new(1, count);
    }

    /// Leaves only so many numbers of plain lists.
    #[cfg(test)]
    pub(super) fn limit_plain(&mut self, count: u32) {
        self.plain = Numbers::new(ListId::FIRST_PLAIN, ListId::FIRST_PLAIN + count - 1);
    }
}

fn endpoint(id: ListId, protocol: Protocol, slot: usize, target: Target) -> TableElement<'static> {
    // Lists have at most 65,536 slots.
    TableElement::Endpoint(id, protocol, u32::try_from(slot).unwrap_or(u32::MAX), target)
}

impl Affinity {
    /// Adds the endpoint of a slot found in the kernel.
    pub(super) fn observe_slot(&mut self, slot: usize, id: EndpointId) {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] = id;
    }

    /// Adds an endpoint found in the kernel; returns whether it is there under another number.
    pub(super) fn observe_endpoint(&mut self, target: Target, id: EndpointId) -> bool {
        self.last = self.last.max(id);
        let known = *self.endpoints.entry(target).or_insert(id);
        self.ids.insert(known);
        known != id
    }

    /// Forgets the endpoints found in the kernel.
    pub(super) fn forget_endpoints(&mut self) {
        self.endpoints.clear();
        self.ids.clear();
    }

    /// Endpoints by their numbers.
    pub(super) fn by_id(&self) -> HashMap<EndpointId, Target> {
        self.endpoints.iter().map(|(target, id)| (*id, *target)).collect()
    }

    /// Takes the route found in the kernel.
    pub(super) fn take_route(&mut self) -> Option<Route> {
        self.route.take()
    }

    /// Sets the route found in the kernel.
    pub(super) fn observe_route(&mut self, route: Option<Route>) {
        self.route = route;
    }

    fn put(
        &mut self,
        (list, protocol): (ListId, Protocol),
        slot: usize,
        target: Target,
        piece: &mut Piece,
    ) {
        let family = Family::of(target.address);
        let id = match self.endpoints.get(&target) {
            Some(id) => *id,
            None => {
                let id = self.new_id();
                piece.add(family, &TableElement::AffinityEndpoint(list, protocol, id, target));
                self.endpoints.insert(target, id);
                id
            }
        };
        let number = u32::try_from(slot).unwrap_or(u32::MAX);
        let element = |id| TableElement::AffinitySlot(list, number, id);
        let former = self.slots.get(slot).copied().filter(|id| *id != 0);
        piece.replace(family, former.map(element), Some(element(id)));
        self.observe_slot(slot, id);
    }

    /// The next number that no endpoint has. There are four times as many as endpoints of a list.
    fn new_id(&mut self) -> EndpointId {
        loop {
            self.last = self.last % LAST_ENDPOINT + 1;
            if self.ids.insert(self.last) {
                return self.last;
            }
        }
    }
}
