//! What the kernel holds of our tables, in the terms of the desired state.

use std::sync::Arc;

use ahash::HashMap;

use crate::desired::base::TABLE;
use crate::desired::layout::{Placed, Role, endpoint_limits};
use crate::desired::{Fragment, Key, Layout, Layouts, Range, elements};
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
    let mut sources: HashMap<Key, Vec<Range>> = HashMap::default();
    for placed in layout.sets() {
        let same = contents.sets.iter().any(|found| placed.is(found));
        if !same {
            continue;
        }
        let (entries, strays) = read_set(kernel, layout, &table, placed)?;
        for entry in entries {
            add(&mut found.fragments, &mut sources, entry);
        }
        if !strays.is_empty() {
            let set = Arc::clone(&placed.set);
            found.cleanup.push(Operation::DeleteElements(table.clone(), set, strays));
        }
    }
    for (key, mut ranges) in sources {
        ranges.sort_unstable();
        found.fragments.entry(key).or_default().ranges = ranges.into();
    }
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
        Role::Slot(tree) => {
            let slot = usize::try_from(slot).ok().filter(|slot| *slot < endpoint_limits()[tree])?;
            let target = elements::target_from_bytes(layout.family, value_of(view)?)?;
            Says::Slot { tree, slot, target }
        }
        Role::SourceRange => {
            let last = view.key_end.unwrap_or(view.key);
            Says::Source(elements::range_from_bytes(layout.family, view.key, last)?)
        }
    };
    Some(Entry { key, says })
}

/// What is needed to delete an element that we would never write.
fn stray(view: &ElementView<'_>) -> Option<Element> {
    let key_end = view.key_end.and_then(Value::from_bytes);
    Some(Element { key_end, ..Element::new(Value::from_bytes(view.key)?) })
}

fn add(
    fragments: &mut HashMap<Key, Fragment>,
    sources: &mut HashMap<Key, Vec<Range>>,
    entry: Entry,
) {
    let fragment = fragments.entry(entry.key).or_default();
    match entry.says {
        Says::Member { bit, label } => {
            fragment.sets |= 1 << bit;
            fragment.label = label.or(fragment.label.take());
        }
        Says::Slot { tree, slot, target } => {
            let slots = if tree == 0 { &mut fragment.slots } else { &mut fragment.local_slots };
            put(slots, slot, target);
        }
        Says::Source(range) => sources.entry(entry.key).or_default().push(range),
    }
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
