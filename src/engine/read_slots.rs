//! Reading endpoints by their keys, in time that grows with their number and no faster.
//!
//! A dump takes time with the square of a set's size, because the kernel walks the set from its
//! start for each 32 KiB of answers (`nft_rhash_walk`). But routes name the lists, with their sizes
//! or nearly so; and where the kernel reports how many elements a map has (seen in Linux 6.18), it
//! is known whether those are all.

use std::collections::VecDeque;

use crate::diff;
use crate::kernel::Kernel;
use crate::model::{Protocol, Target};
use crate::nft::{ElementView, Value};
use crate::ruleset::number::ListId;
use crate::ruleset::{self, SetId, slot_key};

/// Keys in one request. The answers to so many fit a receive buffer that was not enlarged: each
/// takes about 1 KiB there.
const KEYS_AT_ONCE: usize = 128;

/// A list whose slots are being read.
struct Reading {
    list: ListId,
    protocol: Protocol,
    /// The fewest and the most endpoints that it may have.
    counts: [u32; 2],
    /// Slots read so far.
    read: u32,
}

/// Reads the endpoints of all lists that routes name; returns how many there are. `None` if the map
/// must be dumped.
pub(super) fn read_slots<K: Kernel>(kernel: &mut K, found: &mut diff::Found) -> Option<usize> {
    let table = ruleset::table(found.family());
    let mut lists = found.plain_lists().into_iter();
    let (mut waiting, mut count) = (VecDeque::new(), 0);
    loop {
        let room = KEYS_AT_ONCE.saturating_sub(waiting.len());
        waiting.extend(lists.by_ref().take(room).map(Reading::new));
        let keys = next_keys(&waiting);
        if keys.is_empty() {
            return Some(count);
        }
        let mut targets = Vec::with_capacity(keys.len());
        let mut each = |view: ElementView<'_>| targets.push(ruleset::target(table.family, &view));
        // A dump reports the error, or does without these requests.
        let answered =
            kernel.find_elements(&table, SetId::Endpoints.name(), &keys, &mut each).ok()?;
        for target in targets {
            count += 1;
            put(&mut waiting, target?, found);
        }
        if answered < keys.len() {
            // The list that the missing slot belongs to has no more.
            waiting.pop_front();
        }
    }
}

/// Keys of the lists that wait, up to where a slot is likely to be missing, which ends the answer.
fn next_keys(waiting: &VecDeque<Reading>) -> Vec<Value> {
    let mut keys = Vec::new();
    for reading in waiting {
        keys.extend(reading.keys().take(KEYS_AT_ONCE - keys.len()));
        let [fewest, most] = reading.counts;
        if fewest < most || keys.len() == KEYS_AT_ONCE {
            break;
        }
    }
    keys
}

/// Puts the next endpoint into its slot: it belongs to the first list that waits.
fn put(waiting: &mut VecDeque<Reading>, target: Target, found: &mut diff::Found) {
    let Some(first) = waiting.front_mut() else { return };
    found.put(first.list, first.protocol, first.slot(first.read), target);
    first.read += 1;
    if first.read == first.counts[1] {
        waiting.pop_front();
    }
}

impl Reading {
    fn new((list, (protocol, counts)): (ListId, (Protocol, [u32; 2]))) -> Self {
        Self { list, protocol, counts, read: 0 }
    }

    /// The slot of the n-th key. Of those that surely exist the last comes first, so that the list
    /// gets its length at once.
    fn slot(&self, n: u32) -> u32 {
        let fewest = self.counts[0];
        if n < fewest { fewest - 1 - n } else { n }
    }

    fn keys(&self) -> impl Iterator<Item = Value> {
        (self.read..self.counts[1]).map(|n| slot_key(self.list, self.protocol, self.slot(n)))
    }
}
