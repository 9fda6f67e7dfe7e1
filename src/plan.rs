//! Changes become transactions of bounded size, each of which leaves a valid table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::desired::affinity::{Affinity, EndpointId, Session};
use crate::desired::base::TABLE;
use crate::desired::layout::{Role, choice, is_labelled};
use crate::desired::{
    Desired, Fragment, KeptFragment, Key, Layout, Layouts, Patch, Range, elements,
};
use crate::diff::Update;
use crate::model::{Protocol, Target};
use crate::nft::{Element, Family, Operation, TableRef, Value};

/// Elements to send, and what the tables say about each key once they are applied.
#[derive(Debug, Default)]
pub struct Piece {
    /// Deletions before additions, so that an element can be replaced.
    pub operations: Vec<Operation>,
    /// The keys that change.
    pub fragments: Vec<(Key, Update<Fragment>)>,
    /// About how many bytes the operations take.
    pub bytes: usize,
}

/// How much a piece may hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// No further unit is begun beyond this.
    pub budget: usize,
    /// Nothing goes beyond this.
    pub limit: usize,
}

/// Bytes of an element, comment or second key included, on average at most.
const ELEMENT_BYTES: usize = 112;

/// Bytes of the elements of a key with few endpoints.
const KEY_BYTES: usize = 2 * ELEMENT_BYTES;

/// About how many bytes it takes to send everything that differs, for keys with few endpoints.
pub fn estimate(desired: &Desired) -> usize {
    desired.tracker().differences() * KEY_BYTES
}

/// Takes changes off the tracker until they fill the room.
///
/// Keys of one unit stay together up to the limit. A key that does not fit begins a piece of its
/// own, and one that does not fit even there is changed step by step.
pub fn take(desired: &mut Desired, room: Room) -> Piece {
    let mut changes = Changes::default();
    let mut fragments = Vec::new();
    let mut unit_taken = None;
    while let Some((key, unit)) = desired.tracker_mut().first() {
        let end = if unit_taken == Some(unit) { room.limit } else { room.budget };
        let elements = end.saturating_sub(changes.bytes) / ELEMENT_BYTES;
        let left = Left { elements, is_all: fragments.is_empty() };
        let taken = match desired.tracker().desired(&key) {
            Some(Update::Patched(_)) => changes.take_patch(desired, &key, left),
            Some(Update::Is(_) | Update::Gone) | None => changes.take_whole(desired, &key, left),
        };
        let Some(update) = taken else { break };
        unit_taken = Some(unit);
        fragments.push((key, update));
    }
    let bytes = changes.bytes;
    Piece { operations: changes.into_operations(desired.layouts()), fragments, bytes }
}

/// What of a piece's room is left.
#[derive(Clone, Copy)]
struct Left {
    elements: usize,
    /// Whether nothing has been taken yet.
    is_all: bool,
}

impl Left {
    /// Whether something of so many elements may be taken: what comes first is in any case.
    fn admits(self, elements: usize) -> bool {
        self.is_all || elements <= self.elements
    }
}

/// Element changes by set, in the order of the tables and of the sets in them.
#[derive(Default)]
struct Changes {
    sets: BTreeMap<(Family, usize), SetChanges>,
    bytes: usize,
}

#[derive(Default)]
struct SetChanges {
    deleted: Vec<Element>,
    added: Vec<Element>,
}

impl SetChanges {
    /// What leads from one datum of a map's key to another.
    fn replace(&mut self, key: Value, old: Option<Value>, new: Option<Value>) {
        if old == new {
            return;
        }
        if old.is_some() {
            self.deleted.push(Element::new(key));
        }
        if let Some(new) = new {
            self.added.push(Element::with_value(key, new));
        }
    }
}

impl Changes {
    /// Takes `key`, the first, up to where it fits; `None` if it is to begin another piece.
    fn take_whole(
        &mut self,
        desired: &mut Desired,
        key: &Key,
        left: Left,
    ) -> Option<Update<Fragment>> {
        let nothing = Fragment::default();
        let installed = desired.tracker().installed(key).unwrap_or_default();
        let goal = fragment_of(desired.tracker().desired(key)).unwrap_or(&nothing);
        let mut distance = installed.distance(goal);
        if !left.admits(distance) {
            return None;
        }
        let update = if distance <= left.elements {
            desired.tracker_mut().take_first_whole(key)
        } else {
            let next = installed.step_towards(goal, left.elements);
            distance = installed.distance(&next);
            let next = (next != nothing).then_some(next);
            desired.tracker_mut().take_first(key, next.as_ref());
            next.map_or(Update::Gone, Update::Is)
        };
        self.bytes += distance * ELEMENT_BYTES;
        let new = fragment_of(Some(&update)).unwrap_or(&nothing);
        self.add(desired.layouts(), key, &installed, new);
        Some(update)
    }

    /// The same for a key that changes a little.
    fn take_patch(
        &mut self,
        desired: &mut Desired,
        key: &Key,
        left: Left,
    ) -> Option<Update<Fragment>> {
        let Some(Update::Patched(patch)) = desired.tracker().desired(key) else { return None };
        let installed = desired.tracker().kept(key)?;
        let distance = patch.distance(installed);
        if !left.admits(distance) {
            return None;
        }
        self.bytes += distance * ELEMENT_BYTES;
        self.add_patch(desired.layouts(), key, installed, patch);
        Some(desired.tracker_mut().take_first_whole(key))
    }

    fn add_patch(&mut self, layouts: &Layouts, key: &Key, old: &KeptFragment, patch: &Patch) {
        let layout = layouts.of(key.family());
        self.add_memberships(layout, key, [old.sets(), patch.sets], (old.label(), false));
        let Some(set) = self.set(layout, key, Role::Slot(0)) else { return };
        let frontend = elements::value_of(key);
        let removed = patch.length..old.len(false);
        let changed = patch.slots.iter().map(|(slot, target)| (*slot, Some(target)));
        for (slot, target) in changed.chain(removed.map(|slot| (slot, None))) {
            // There are at most 65,536 slots.
            let Ok(number) = u32::try_from(slot) else { continue };
            let old = old.slot(slot).as_ref().map(elements::value_of_target);
            set.replace(frontend.integer(number), old, target.map(elements::value_of_target));
        }
    }

    /// Adds what leads from `old` to `new` under `key`.
    fn add(&mut self, layouts: &Layouts, key: &Key, old: &Fragment, new: &Fragment) {
        let layout = layouts.of(key.family());
        let label = (new.label.as_ref(), old.label != new.label);
        self.add_memberships(layout, key, [old.sets, new.sets], label);
        match *key {
            Key::Session { protocol, session, .. } => {
                self.add_session(layout, key, (protocol, session), [old, new]);
            }
            Key::Frontend { .. }
            | Key::NodePort { .. }
            | Key::ClusterIp(_)
            | Key::NodePortIp(_)
            | Key::Hairpin(..) => {
                for (tree, old, new) in
                    [(0, &old.slots, &new.slots), (1, &old.local_slots, &new.local_slots)]
                {
                    self.add_slots(layout, key, tree, [old, new]);
                }
                self.add_ranges(layout, key, [&old.ranges, &new.ranges]);
                self.add_sessions_of(layout, key, [old, new]);
            }
        }
    }

    /// Adds what leads from some bits to others; also the label and whether it is another.
    fn add_memberships(
        &mut self,
        layout: &Layout,
        key: &Key,
        [old, new]: [u64; 2],
        (label, is_other): (Option<&Arc<str>>, bool),
    ) {
        for bit in bits(old | new) {
            let (was, is) = (old >> bit & 1 == 1, new >> bit & 1 == 1);
            let replaced = is_other && was && is && is_labelled(key.kind(), bit);
            if was == is && !replaced {
                continue;
            }
            let role = layout.role_of(key.kind(), bit);
            let Some(set) = self.set(layout, key, role) else { continue };
            if was {
                set.deleted.push(Element::new(elements::value_of(key)));
            }
            if is {
                set.added.push(member(key, role, bit, label));
            }
        }
    }

    /// Which sessions a frontend has.
    fn add_sessions_of(&mut self, layout: &Layout, key: &Key, [old, new]: [&Fragment; 2]) {
        if old.affinity == new.affinity {
            return;
        }
        let [old, new] = [old, new].map(|fragment| match fragment.affinity.as_deref() {
            Some(Affinity::Frontend(sessions)) => *sessions,
            Some(Affinity::Session { .. }) | None => [None; 2],
        });
        for (tree, (old, new)) in old.into_iter().zip(new).enumerate() {
            let value = |session: Session| Value::new().class_id(session.class_id());
            let Some(set) = self.set(layout, key, Role::Session(tree)) else { continue };
            set.replace(elements::value_of(key), old.map(value), new.map(value));
        }
    }

    /// The endpoints of a session and how long its clients are remembered.
    fn add_session(
        &mut self,
        layout: &Layout,
        key: &Key,
        (protocol, session): (Protocol, Session),
        [old, new]: [&Fragment; 2],
    ) {
        self.add_timeout(layout, key, [old, new]);
        if old.affinity == new.affinity && old.slots == new.slots {
            return;
        }
        let [old, new] = [old, new].map(|fragment| Vec::from_iter(fragment.session_slots()));
        if let Some(set) = self.set(layout, key, Role::Slot(0)) {
            let id = |slots: &[Option<(EndpointId, Target)>], i: usize| {
                let (id, _) = (*slots.get(i)?)?;
                Some(Value::new().class_id(session.endpoint(id)))
            };
            for (i, number) in (0..old.len().max(new.len())).zip(0u32..) {
                let slot = elements::value_of(key).integer(number);
                set.replace(slot, id(&old, i), id(&new, i));
            }
        }
        if let Some(set) = self.set(layout, key, Role::SessionEndpoint) {
            let [old, new] =
                [old, new].map(|slots| BTreeMap::from_iter(slots.into_iter().flatten()));
            let numbers: BTreeSet<EndpointId> = old.keys().chain(new.keys()).copied().collect();
            for id in numbers {
                let target = |endpoints: &BTreeMap<EndpointId, Target>| {
                    endpoints.get(&id).map(elements::value_of_target)
                };
                let endpoint = elements::value_of_session_endpoint(protocol, session, id);
                set.replace(endpoint, target(&old), target(&new));
            }
        }
    }

    fn add_timeout(&mut self, layout: &Layout, key: &Key, [old, new]: [&Fragment; 2]) {
        let timeout = |fragment: &Fragment| match fragment.affinity.as_deref() {
            // One that was found without a timeout has 0.
            Some(Affinity::Session { timeout: 0, .. }) => None,
            Some(Affinity::Session { timeout, .. }) => Some((*timeout, fragment.label.clone())),
            Some(Affinity::Frontend(_)) | None => None,
        };
        let (old, new) = (timeout(old), timeout(new));
        if old == new {
            return;
        }
        if let Some((seconds, _)) = old
            && let Some(set) = self.set(layout, key, Role::Timeout(seconds))
        {
            set.deleted.push(Element::new(elements::value_of(key)));
        }
        if let Some((seconds, comment)) = new
            && let Some(set) = self.set(layout, key, Role::Timeout(seconds))
        {
            set.added.push(Element { comment, ..Element::new(elements::value_of(key)) });
        }
    }

    fn add_ranges(&mut self, layout: &Layout, key: &Key, [old, new]: [&[Range]; 2]) {
        if old == new {
            return;
        }
        let Some(set) = self.set(layout, key, Role::SourceRange) else { return };
        let element = |range: &Range| {
            let [first, last] = elements::values_of_range(key, range);
            Element { key_end: Some(last), ..Element::new(first) }
        };
        set.deleted
            .extend(old.iter().filter(|range| new.binary_search(range).is_err()).map(element));
        set.added.extend(new.iter().filter(|range| old.binary_search(range).is_err()).map(element));
    }

    fn add_slots(
        &mut self,
        layout: &Layout,
        key: &Key,
        tree: usize,
        [old, new]: [&[Option<Target>]; 2],
    ) {
        if old == new {
            return;
        }
        let Some(set) = self.set(layout, key, Role::Slot(tree)) else { return };
        let frontend = elements::value_of(key);
        let slot_of = |slots: &[Option<Target>], i: usize| slots.get(i).copied().flatten();
        for (i, number) in (0..old.len().max(new.len())).zip(0u32..) {
            let [was, is] = [old, new].map(|slots| slot_of(slots, i));
            if was != is {
                let [was, is] = [was, is].map(|slot| slot.as_ref().map(elements::value_of_target));
                set.replace(frontend.integer(number), was, is);
            }
        }
    }

    fn set(&mut self, layout: &Layout, key: &Key, role: Role) -> Option<&mut SetChanges> {
        let position = layout.position(key.kind(), role)?;
        Some(self.sets.entry((layout.family, position)).or_default())
    }

    fn into_operations(mut self, layouts: &Layouts) -> Vec<Operation> {
        let table = |family| TableRef { family, name: TABLE.into() };
        let set = |(family, position): (Family, usize)| layouts.of(family).set_at(position);
        let lists = |changes: &SetChanges| {
            usize::from(!changes.deleted.is_empty()) + usize::from(!changes.added.is_empty())
        };
        let mut operations = Vec::with_capacity(self.sets.values().map(lists).sum());
        for (place, changes) in &mut self.sets {
            let deleted = std::mem::take(&mut changes.deleted);
            if !deleted.is_empty() {
                operations.push(Operation::DeleteElements(table(place.0), set(*place), deleted));
            }
        }
        for (place, changes) in self.sets {
            if !changes.added.is_empty() {
                let added = changes.added;
                operations.push(Operation::AddElements(table(place.0), set(place), added));
            }
        }
        operations
    }
}

/// The element that says that `key` has this bit.
fn member(key: &Key, role: Role, bit: u32, label: Option<&Arc<str>>) -> Element {
    let comment = label.filter(|_| is_labelled(key.kind(), bit)).map(Arc::clone);
    let element = match role {
        Role::OneOf(bits) => {
            let data = Value::new().class_id(choice(bits, bit));
            Element::with_value(elements::value_of(key), data)
        }
        Role::Member(_)
        | Role::Slot(_)
        | Role::SourceRange
        | Role::Session(_)
        | Role::SessionEndpoint
        | Role::Timeout(_)
        | Role::Clients => Element::new(elements::value_of(key)),
    };
    Element { comment, ..element }
}

fn fragment_of(update: Option<&Update<Fragment>>) -> Option<&Fragment> {
    match update {
        Some(Update::Is(fragment)) => Some(fragment),
        Some(Update::Gone | Update::Patched(_)) | None => None,
    }
}

fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |bit| mask >> bit & 1 == 1)
}
