//! Reading endpoints back by their keys, in time that grows with their number and no faster.
//!
//! A dump takes time with the square of a set's size, because the kernel walks the set from its
//! start for each 32 KiB of answers (`nft_rhash_walk`). But memberships tell which frontends have
//! endpoints, and how many or nearly so; and where the kernel tells how many elements a map has, it
//! is known whether those are all.

use std::collections::VecDeque;

use crate::desired::layout::{Placed, Role};
use crate::desired::{KeptFragment, Key, KeyKind, Layout, elements};
use crate::kernel::Kernel;
use crate::model::Target;
use crate::nft::{DataView, ElementView, Family, TableRef, Value};

/// With fewer elements a dump is as fast.
const MIN_ELEMENTS: u32 = 256;

/// The answers to so many questions fit a receive buffer that was not enlarged: each takes about
/// 1 KiB there.
const ASKED_AT_ONCE: usize = 128;

/// A frontend or node port, and how far its endpoints have been told.
struct Asked<'a> {
    key: Value,
    /// The least and the most endpoints that it can have.
    counts: [u32; 2],
    told: u32,
    fragment: &'a mut KeptFragment,
}

/// Whether the elements of a set can be read by their keys. Those of sets that hold memberships
/// must be known before.
pub(super) fn has_known_keys(placed: &Placed, elements: Option<u32>) -> bool {
    matches!(placed.kind, KeyKind::Frontend | KeyKind::NodePort)
        && placed.role == Role::Slot(0)
        && elements.is_some_and(|elements| elements >= MIN_ELEMENTS)
}

/// Reads the endpoints of `fragments` from the map `placed`; how many there are. `None` if the map
/// must be dumped.
pub(super) fn read_slots<'a, K: Kernel>(
    kernel: &mut K,
    (layout, table): (&Layout, &TableRef),
    placed: &Placed,
    fragments: impl Iterator<Item = (&'a Key, &'a mut KeptFragment)>,
) -> Option<usize> {
    let mut asked = fragments
        .filter(|(key, _)| key.kind() == placed.kind)
        .filter_map(|(key, fragment)| Asked::new(layout, key, fragment));
    let (mut waiting, mut found) = (VecDeque::new(), 0);
    loop {
        let room = ASKED_AT_ONCE.saturating_sub(waiting.len());
        waiting.extend(asked.by_ref().take(room));
        let keys = next_questions(&waiting);
        if keys.is_empty() {
            return Some(found);
        }
        let mut targets = Vec::with_capacity(keys.len());
        let mut each = |view: ElementView<'_>| targets.push(target(layout.family, &view));
        // A dump tells the error, or does without these questions.
        let told = kernel.find_elements(table, &placed.set.name, &keys, &mut each).ok()?;
        for target in targets {
            found += 1;
            take(&mut waiting, target?);
        }
        if told < keys.len() {
            // The one that the missing slot belongs to has no more.
            waiting.pop_front();
        }
    }
}

/// Questions of those that wait, up to where a slot is likely to be missing, with which the answer
/// ends.
fn next_questions(waiting: &VecDeque<Asked<'_>>) -> Vec<Value> {
    let mut keys = Vec::new();
    for asked in waiting {
        keys.extend(asked.questions().take(ASKED_AT_ONCE - keys.len()));
        let [least, most] = asked.counts;
        if least < most || keys.len() == ASKED_AT_ONCE {
            break;
        }
    }
    keys
}

/// The next answer belongs to the first that waits.
fn take(waiting: &mut VecDeque<Asked<'_>>, target: Target) {
    if let Some(first) = waiting.front_mut() {
        first.put(target);
        if first.told == first.counts[1] {
            waiting.pop_front();
        }
    }
}

fn target(family: Family, view: &ElementView<'_>) -> Option<Target> {
    match view.data {
        Some(DataView::Value(bytes)) => elements::target_from_bytes(family, bytes),
        Some(DataView::Verdict(_)) | None => None,
    }
}

impl<'a> Asked<'a> {
    fn new(layout: &Layout, key: &Key, fragment: &'a mut KeptFragment) -> Option<Self> {
        let counts = layout.endpoint_counts(fragment.sets())?;
        Some(Self { key: elements::value_of(key), counts, told: 0, fragment })
    }

    /// The slot of the n-th question. Of those that are surely there the last is the first, so that
    /// the fragment is given its room at once.
    fn slot(&self, n: u32) -> u32 {
        let least = self.counts[0];
        if n < least { least - 1 - n } else { n }
    }

    fn questions(&self) -> impl Iterator<Item = Value> {
        (self.told..self.counts[1]).map(|n| self.key.integer(self.slot(n)))
    }

    fn put(&mut self, target: Target) {
        self.fragment.put(false, self.slot(self.told) as usize, target);
        self.told += 1;
    }
}
