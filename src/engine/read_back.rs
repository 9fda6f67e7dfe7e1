//! What the kernel holds of our tables, in the terms of the desired state.

use std::sync::Arc;

use ahash::HashMap;

use super::found_session::{FoundSession, SetElements};
use crate::desired::affinity::{Affinity, EndpointId, Session};
use crate::desired::base::TABLE;
use crate::desired::layout::{Placed, Role, endpoint_limits};
use crate::desired::{Fragment, Key, KeyKind, Layout, Layouts, Range, elements};
use crate::kernel::{Contents, ElementRead, Kernel, ReadError};
use crate::model::Target;
use crate::nft::{DataView, Element, ElementView, Operation, TableRef, Value};

/// What was found of one table.
#[derive(Debug, Default)]
pub struct Found {
    /// Table, chains, rules and sets; `None` if there is no such table.
    pub contents: Option<Contents>,
    /// What the elements say about each key.
    pub fragments: HashMap<Key, Fragment>,
    /// Removes the elements that we would never write.
    pub cleanup: Vec<Operation>,
}

/// One readable element.
struct Entry {
    key: Key,
    says: Says,
}

/// What an element says about its key.
enum Says {
    Member { bit: u32, label: Option<Arc<str>> },
    Slot { tree: usize, slot: usize, target: Target },
    Source(Range),
    SessionOf { tree: usize, session: Session },
    SessionSlot { slot: usize, id: EndpointId },
    SessionEndpoint { id: EndpointId, target: Target },
    Timeout { seconds: u32, label: Option<Arc<str>> },
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
    let ours = contents
        .sets
        .iter()
        .filter_map(|found| layout.by_name(&found.name).filter(|placed| placed.is(found)));
    // What clients remember is theirs, and may be much.
    for placed in ours.filter(|placed| placed.role != Role::Clients) {
        let (entries, strays) = read_set(kernel, layout, &table, &placed)?;
        entries.into_iter().for_each(|entry| gathered.add(entry));
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

fn read_set<K: Kernel>(
    kernel: &mut K,
    layout: &Layout,
    table: &TableRef,
    placed: &Placed,
) -> Result<(Vec<Entry>, Vec<Element>), ReadError> {
    let (mut entries, mut strays) = (Vec::new(), Vec::new());
    kernel.read_elements(table, &placed.set.name, &mut |read| match read {
        ElementRead::Start => {
            entries.clear();
            strays.clear();
        }
        ElementRead::Element(view) => match entry(layout, placed, &view) {
            Some(entry) => entries.push(entry),
            None => strays.extend(stray(&view)),
        },
    })?;
    Ok((entries, strays))
}

fn entry(layout: &Layout, placed: &Placed, view: &ElementView<'_>) -> Option<Entry> {
    let (key, slot) = elements::key_from_bytes(layout.family, placed, view.key)?;
    let says = match placed.role {
        Role::Member(bit) => Says::Member { bit, label: view.comment.map(Arc::from) },
        Role::Slot(_) if placed.kind == KeyKind::Session => {
            let id = class_id(view)?;
            let Key::Session { session, .. } = key else { return None };
            let slot = usize::try_from(slot).ok().filter(|slot| *slot < endpoint_limits()[0])?;
            Says::SessionSlot { slot, id: session.endpoint_of(id)? }
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
        Role::Timeout(seconds) => Says::Timeout { seconds, label: view.comment.map(Arc::from) },
        Role::Clients => return None,
    };
    Some(Entry { key, says })
}

/// What is needed to delete an element that we would never write.
fn stray(view: &ElementView<'_>) -> Option<Element> {
    let key_end = view.key_end.and_then(Value::from_bytes);
    Some(Element { key_end, ..Element::new(Value::from_bytes(view.key)?) })
}

/// What the elements read so far say.
#[derive(Default)]
struct Gathered {
    fragments: HashMap<Key, Fragment>,
    sources: HashMap<Key, Vec<Range>>,
    sessions: HashMap<Key, FoundSession>,
}

impl Gathered {
    fn add(&mut self, entry: Entry) {
        let Entry { key, says } = entry;
        match says {
            Says::Member { bit, label } => {
                let fragment = self.fragments.entry(key).or_default();
                fragment.sets |= 1 << bit;
                fragment.label = label.or(fragment.label.take());
            }
            Says::Slot { tree, slot, target } => {
                let fragment = self.fragments.entry(key).or_default();
                let slots = if tree == 0 { &mut fragment.slots } else { &mut fragment.local_slots };
                put(slots, slot, target);
            }
            Says::Source(range) => self.sources.entry(key).or_default().push(range),
            Says::SessionOf { tree, session } => {
                let fragment = self.fragments.entry(key).or_default();
                let affinity = fragment.affinity.get_or_insert_with(no_sessions);
                if let Affinity::Frontend(sessions) = affinity.as_mut() {
                    sessions[tree] = Some(session);
                }
            }
            Says::SessionSlot { slot, id } => self.session(key).slots.push((slot, id)),
            Says::SessionEndpoint { id, target } => {
                _ = self.session(key).endpoints.insert(id, target)
            }
            Says::Timeout { seconds, label } => self.session(key).timeouts.push((seconds, label)),
        }
    }

    fn session(&mut self, key: Key) -> &mut FoundSession {
        self.sessions.entry(key).or_default()
    }

    /// What was found of each key, and elements that make no sense without others.
    fn finish(mut self, layout: &Layout) -> (HashMap<Key, Fragment>, Vec<SetElements>) {
        for (key, mut ranges) in self.sources {
            ranges.sort_unstable();
            self.fragments.entry(key).or_default().ranges = ranges.into();
        }
        let mut strays = Vec::new();
        for (key, session) in self.sessions {
            let fragment = self.fragments.entry(key).or_default();
            strays.extend(session.into_fragment(layout, &key, fragment));
        }
        (self.fragments, strays)
    }
}

fn no_sessions() -> Box<Affinity> {
    Box::new(Affinity::Frontend([None; 2]))
}

fn class_id(view: &ElementView<'_>) -> Option<u32> {
    elements::class_id_from_bytes(value_of(view)?)
}

/// Elements come in no order, so the slots grow as needed.
fn put(slots: &mut Box<[Option<Target>]>, slot: usize, target: Target) {
    if slot >= slots.len() {
        let mut grown = std::mem::take(slots).into_vec();
        grown.resize(slot + 1, None);
        *slots = grown.into_boxed_slice();
    }
    slots[slot] = Some(target);
}

fn value_of<'a>(view: &ElementView<'a>) -> Option<&'a [u8]> {
    match view.data {
        Some(DataView::Value(bytes)) => Some(bytes),
        Some(DataView::Verdict(_)) | None => None,
    }
}
