//! What the kernel holds of our tables, in the terms of the desired state.

use std::sync::Arc;

use ahash::HashMap;

use super::found_session::{FoundSession, SetElements};
use super::read_slots::{has_known_keys, read_slots};
use crate::desired::affinity::{self, EndpointId, Session};
use crate::desired::base::TABLE;
use crate::desired::layout::{Placed, Role, bit_of_choice, endpoint_limits};
use crate::desired::{Fragment, KeptFragment, Key, KeyKind, Layout, Layouts, Range, elements};
use crate::diff::Keep;
use crate::kernel::{Contents, ElementRead, Kernel, ReadError};
use crate::model::Target;
use crate::nft::{DataView, DecodedSet, Element, ElementView, Operation, TableRef, Value};

/// What was found of one table.
#[derive(Debug, Default)]
pub struct Found {
    /// Table, chains, rules and sets; `None` if there is no such table.
    pub contents: Option<Contents>,
    /// What the elements say about each key.
    pub fragments: HashMap<Key, KeptFragment>,
    /// Removes the elements that we would never write.
    pub cleanup: Vec<Operation>,
}

/// What an element says about its key.
#[derive(Clone, Copy)]
enum Says<'a> {
    Member { bit: u32, label: Option<&'a str> },
    Slot { tree: usize, slot: usize, target: Target },
    Source(Range),
    SessionOf { tree: usize, session: Session },
    SessionSlot { slot: usize, id: EndpointId },
    SessionEndpoint { id: EndpointId, target: Target },
    Timeout { seconds: u32, label: Option<&'a str> },
}

/// Reads both tables; `ip` first.
///
/// # Errors
/// See [`Kernel::read_table`] and [`Kernel::read_elements`].
pub fn read_back<K: Kernel>(kernel: &mut K, layouts: &Layouts) -> Result<[Found; 2], ReadError> {
    let mut found = [Found::default(), Found::default()];
    for (layout, found) in layouts.iter().zip(&mut found) {
        *found = read_table(kernel, layout)?;
    }
    Ok(found)
}

fn read_table<K: Kernel>(kernel: &mut K, layout: &Layout) -> Result<Found, ReadError> {
    let table = TableRef { family: layout.family, name: TABLE.into() };
    let mut found = Found { contents: kernel.read_table(&table)?, ..Found::default() };
    let Some(contents) = &found.contents else { return Ok(found) };
    let mut gathered = Gathered::default();
    for (placed, elements) in sets_to_read(layout, contents) {
        if has_known_keys(&placed, elements)
            && is_read_by_keys(kernel, (layout, contents), &placed, &mut gathered)?
        {
            continue;
        }
        let strays = read_set(kernel, (layout, &table), &placed, &mut gathered)?;
        if !strays.is_empty() {
            let delete = Operation::DeleteElements(table.clone(), placed.set, strays);
            found.cleanup.push(delete);
        }
    }
    let (fragments, strays) = gathered.finish(layout);
    found.fragments = fragments;
    let delete = |(set, strays)| Operation::DeleteElements(table.clone(), set, strays);
    found.cleanup.extend(strays.into_iter().map(delete));
    Ok(found)
}

/// Our sets with the number of their elements, in the order in which they are to be read.
fn sets_to_read(layout: &Layout, contents: &Contents) -> Vec<(Placed, Option<u32>)> {
    let ours = |found: &DecodedSet| {
        let placed = layout.by_name(&found.name).filter(|placed| placed.is(found))?;
        // What clients remember is theirs, and may be much.
        (placed.role != Role::Clients).then_some((placed, found.elements))
    };
    let mut sets: Vec<_> = contents.sets.iter().filter_map(ours).collect();
    sets.sort_by_key(|(placed, elements)| has_known_keys(placed, *elements));
    sets
}

/// Gathers all of a map by the keys that it should have; if that fails, nothing of it.
fn is_read_by_keys<K: Kernel>(
    kernel: &mut K,
    (layout, contents): (&Layout, &Contents),
    placed: &Placed,
    gathered: &mut Gathered,
) -> Result<bool, ReadError> {
    let table = contents.table.reference();
    let fragments = gathered.fragments.iter_mut();
    let found = read_slots(kernel, (layout, &table), placed, fragments);
    let elements = |contents: &Contents| {
        let set = contents.sets.iter().find(|set| set.name == placed.set.name)?;
        usize::try_from(set.elements?).ok()
    };
    // To ask for the generation alone would count as knowing what others committed until then.
    let is_whole = found.is_some()
        && kernel
            .read_table(&table)?
            .is_some_and(|now| now.generation == contents.generation && elements(&now) == found);
    if !is_whole {
        gathered.forget(placed);
    }
    Ok(is_whole)
}

/// Gathers what a set says; the elements that we would never write.
fn read_set<K: Kernel>(
    kernel: &mut K,
    (layout, table): (&Layout, &TableRef),
    placed: &Placed,
    gathered: &mut Gathered,
) -> Result<Vec<Element>, ReadError> {
    let (mut strays, mut is_begun) = (Vec::new(), false);
    kernel.read_elements(table, &placed.set.name, &mut |read| match read {
        ElementRead::Start => {
            if std::mem::replace(&mut is_begun, true) {
                gathered.forget(placed);
                strays.clear();
            }
        }
        ElementRead::Element(view) => match says(layout, placed, &view) {
            Some((key, says)) => gathered.add(key, says),
            None => strays.extend(stray(&view)),
        },
    })?;
    Ok(strays)
}

fn says<'a>(layout: &Layout, placed: &Placed, view: &ElementView<'a>) -> Option<(Key, Says<'a>)> {
    let (key, slot) = elements::key_from_bytes(layout.family, placed, view.key)?;
    let says = match placed.role {
        Role::Member(bit) => Says::Member { bit, label: view.comment },
        Role::OneOf(bits) => {
            let bit = bit_of_choice(bits, class_id(view)?)?;
            Says::Member { bit, label: view.comment }
        }
        Role::Slot(_) if placed.kind == KeyKind::Session => {
            let id = class_id(view)?;
            let Key::Session { session, .. } = key else { return None };
            let slot = Some(slot).filter(|slot| *slot < affinity::LIMIT)?;
            Says::SessionSlot { slot: slot as usize, id: session.endpoint_of(id)? }
        }
        Role::Slot(tree) => {
            let slot = usize::try_from(slot).ok().filter(|slot| *slot < endpoint_limits()[tree])?;
            let target = elements::target_from_bytes(layout.family, value_of(view)?)?;
            Says::Slot { tree, slot, target }
        }
        Role::SourceRange => {
            let last = view.key_end.unwrap_or(view.key);
            Says::Source(elements::range_from_bytes(layout.family, view.key, last)?)
        }
        Role::Session(tree) => {
            Says::SessionOf { tree, session: Session::from_class_id(class_id(view)?)? }
        }
        Role::SessionEndpoint => {
            let target = elements::target_from_bytes(layout.family, value_of(view)?)?;
            Says::SessionEndpoint { id: EndpointId::try_from(slot).ok()?, target }
        }
        Role::Timeout(seconds) => Says::Timeout { seconds, label: view.comment },
        Role::Clients => return None,
    };
    Some((key, says))
}

/// What is needed to delete an element that we would never write.
fn stray(view: &ElementView<'_>) -> Option<Element> {
    let key_end = view.key_end.and_then(Value::from_bytes);
    Some(Element { key_end, ..Element::new(Value::from_bytes(view.key)?) })
}

/// What the elements read so far say. There are very many elements: none is kept as such.
#[derive(Default)]
struct Gathered {
    fragments: HashMap<Key, KeptFragment>,
    sources: HashMap<Key, Vec<Range>>,
    sessions: HashMap<Key, FoundSession>,
}

impl Gathered {
    fn add(&mut self, key: Key, says: Says<'_>) {
        match says {
            Says::Member { bit, label } => self.fragment(key).add_membership(bit, label),
            Says::Slot { tree, slot, target } => self.fragment(key).put(tree == 1, slot, target),
            Says::Source(range) => self.sources.entry(key).or_default().push(range),
            Says::SessionOf { tree, session } => {
                self.fragment(key).set_session(tree, Some(session));
            }
            Says::SessionSlot { slot, id } => self.session(key).slots.push((slot, id)),
            Says::SessionEndpoint { id, target } => {
                _ = self.session(key).endpoints.insert(id, target)
            }
            Says::Timeout { seconds, label } => {
                self.session(key).timeouts.push((seconds, label.map(Arc::from)));
            }
        }
    }

    fn fragment(&mut self, key: Key) -> &mut KeptFragment {
        self.fragments.entry(key).or_default()
    }

    fn session(&mut self, key: Key) -> &mut FoundSession {
        self.sessions.entry(key).or_default()
    }

    /// The set is read once more, from its start.
    fn forget(&mut self, placed: &Placed) {
        let fragments = self.fragments.iter_mut().filter(|(key, _)| key.kind() == placed.kind);
        let fragments = fragments.map(|(_, fragment)| fragment);
        let sessions = self.sessions.values_mut();
        match placed.role {
            Role::Member(bit) => fragments.for_each(|found| found.remove_memberships(1 << bit)),
            Role::OneOf(bits) => fragments.for_each(|found| found.remove_memberships(bits)),
            Role::Slot(_) if placed.kind == KeyKind::Session => {
                sessions.for_each(|found| found.slots.clear());
            }
            Role::Slot(tree) => fragments.for_each(|found| found.empty(tree == 1)),
            Role::SourceRange => self.sources.clear(),
            Role::Session(tree) => fragments.for_each(|found| found.set_session(tree, None)),
            Role::SessionEndpoint => sessions.for_each(|found| found.endpoints.clear()),
            Role::Timeout(seconds) => {
                sessions.for_each(|found| found.timeouts.retain(|(known, _)| *known != seconds));
            }
            Role::Clients => {}
        }
    }

    /// What was found of each key, and elements that make no sense without others.
    fn finish(mut self, layout: &Layout) -> (HashMap<Key, KeptFragment>, Vec<SetElements>) {
        for (key, mut ranges) in self.sources {
            ranges.sort_unstable();
            self.fragments.entry(key).or_default().set_ranges(ranges.into());
        }
        self.fragments.values_mut().for_each(KeptFragment::finish);
        let mut strays = Vec::new();
        for (key, session) in self.sessions {
            let kept = self.fragments.entry(key).or_default();
            let mut fragment = Fragment::restore(kept);
            strays.extend(session.into_fragment(layout, &key, &mut fragment));
            *kept = fragment.keep();
        }
        (self.fragments, strays)
    }
}

fn class_id(view: &ElementView<'_>) -> Option<u32> {
    elements::class_id_from_bytes(value_of(view)?)
}

fn value_of<'a>(view: &ElementView<'a>) -> Option<&'a [u8]> {
    match view.data {
        Some(DataView::Value(bytes)) => Some(bytes),
        Some(DataView::Verdict(_)) | None => None,
    }
}
