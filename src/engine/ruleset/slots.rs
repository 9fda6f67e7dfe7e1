//! The keys that read all endpoints in linear time.
//!
//! A dump takes quadratic time, because the kernel walks the set from its start for each 32 KiB of
//! answers (`nft_rhash_walk`). Routes name the lists, with their exact or approximate sizes.

use std::collections::VecDeque;

use nft::{ElementView, Value};

use super::element::slot_key;
use super::number::{ListId, SizeClass};
use crate::model::Protocol;

/// Keys per request. Their answers fit a receive buffer of default size, where each takes about 1
/// KiB.
const KEYS_AT_ONCE: usize = 128;

/// A list that a route names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedList {
    /// Its number, of a plain list.
    pub list: ListId,
    /// The protocol of its frontends.
    pub protocol: Protocol,
    /// The size class in the route.
    pub size: SizeClass,
}

/// A slot: its list, the protocol of the list, and its number there.
pub type ListSlot = (ListId, Protocol, u32);

/// Calls `each` with the endpoint in each slot of `lists`. `find` looks up elements of the map of
/// endpoints by their keys: it calls its callback with each, in this order, up to the first missing
/// one, and returns how many it found.
///
/// # Errors
/// Those of `find`.
pub fn read_slots<E>(
    lists: impl Iterator<Item = NamedList>,
    mut find: impl FnMut(&[Value], &mut dyn FnMut(ElementView<'_>)) -> Result<usize, E>,
    each: &mut dyn FnMut(ListSlot, &ElementView<'_>),
) -> Result<(), E> {
    let mut slots = SlotKeys { lists, waiting: VecDeque::new() };
    loop {
        let keys = slots.next_keys();
        if keys.is_empty() {
            return Ok(());
        }
        let answered = find(&keys, &mut |view| {
            if let Some(slot) = slots.answered() {
                each(slot, &view);
            }
        })?;
        if answered < keys.len() {
            slots.missing();
        }
    }
}

/// The slots of lists, in the order of lookups.
///
/// The kernel answers up to the first missing key. So each request has the keys of whole lists, up
/// to one that may have fewer endpoints than its class allows.
#[derive(Debug)]
struct SlotKeys<I> {
    lists: I,
    waiting: VecDeque<PartlyRead>,
}

/// A list whose slots are being read.
#[derive(Debug)]
struct PartlyRead {
    list: NamedList,
    /// Number of slots read so far.
    read: u32,
}

impl<I: Iterator<Item = NamedList>> SlotKeys<I> {
    /// Returns the keys of the next request; none at the end.
    fn next_keys(&mut self) -> Vec<Value> {
        let room = KEYS_AT_ONCE.saturating_sub(self.waiting.len());
        // An empty list has no slots to answer for.
        let lists = self.lists.by_ref().filter(|list| list.size.most() > 0);
        self.waiting.extend(lists.take(room).map(PartlyRead::new));
        let mut keys = Vec::new();
        for waiting in &self.waiting {
            keys.extend(waiting.keys().take(KEYS_AT_ONCE - keys.len()));
            if !waiting.is_exact() || keys.len() == KEYS_AT_ONCE {
                break;
            }
        }
        keys
    }

    /// Returns the list and slot of the next key. Must be called once for each answer.
    fn answered(&mut self) -> Option<ListSlot> {
        let first = self.waiting.front_mut()?;
        let NamedList { list, protocol, size } = first.list;
        let slot = first.slot(first.read);
        first.read += 1;
        if first.read == size.most() {
            self.waiting.pop_front();
        }
        Some((list, protocol, slot))
    }

    /// Records that the next key is missing, so its list is complete.
    fn missing(&mut self) {
        self.waiting.pop_front();
    }
}

impl PartlyRead {
    fn new(list: NamedList) -> Self {
        Self { list, read: 0 }
    }

    fn is_exact(&self) -> bool {
        self.list.size.fewest() == self.list.size.most()
    }

    /// Returns the slot of the n-th key. Of the slots that certainly exist the last comes first, so
    /// that the list is resized once.
    fn slot(&self, n: u32) -> u32 {
        let fewest = self.list.size.fewest();
        if n < fewest { fewest - 1 - n } else { n }
    }

    fn keys(&self) -> impl Iterator<Item = Value> {
        let NamedList { list, protocol, size } = self.list;
        (self.read..size.most()).map(move |n| slot_key(list, protocol, self.slot(n)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads lists with `counts` endpoints; returns the number found of each, and of requests.
    fn read(counts: &[usize]) -> (Vec<usize>, usize) {
        let id = |n: usize| ListId::plain(0x100 + u32::try_from(n).unwrap());
        let named = |(n, count): (usize, &usize)| NamedList {
            list: id(n),
            protocol: Protocol::Tcp,
            size: SizeClass::of(*count),
        };
        let existing: Vec<_> = (0..counts.len())
            .flat_map(|n| (0..counts[n]).map(move |slot| (n, slot)))
            .map(|(n, slot)| slot_key(id(n), Protocol::Tcp, u32::try_from(slot).unwrap()))
            .collect();
        let (mut found, mut requests) = (vec![0; counts.len()], 0);
        let find = |keys: &[Value], answer: &mut dyn FnMut(ElementView<'_>)| {
            requests += 1;
            let answered = keys.iter().take_while(|key| existing.contains(key)).count();
            (0..answered).for_each(|_| answer(ElementView::default()));
            Ok::<_, std::convert::Infallible>(answered)
        };
        let lists = counts.iter().enumerate().map(named);
        let Ok(()) = read_slots(lists, find, &mut |(list, ..), _| {
            let n = (0..counts.len()).find(|n| id(*n) == list).unwrap();
            found[n] += 1;
        });
        (found, requests)
    }

    #[test]
    fn every_slot_of_every_list_is_found_whatever_the_sizes() {
        for counts in
            [&[][..], &[1], &[3, 8, 1], &[0, 2, 0, 1], &[9, 16, 17, 2], &[40, 1, 200, 5, 129]]
        {
            assert_eq!(read(counts).0, counts);
        }
    }

    #[test]
    fn lists_of_exact_classes_share_requests() {
        let (found, requests) = read(&[5; 50]);
        assert_eq!((found, requests), (vec![5; 50], 2));
    }
}
