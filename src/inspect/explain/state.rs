//! State of a packet during evaluation, and the share of packets in that state.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use super::packet::Packet;

/// A possible state of the packet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    /// Everything but the share; equal keys are merged.
    pub(super) key: StateKey,
    /// Share of the packets, from 0 to 1; an upper bound if uncertain.
    pub(super) share: f64,
}

/// Everything that distinguishes two states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StateKey {
    pub(super) packet: Packet,
    /// False if something unknown decides whether packets are in this state.
    pub(super) is_certain: bool,
    /// Elements that this packet wrote: the data, or `None` if it removed the element.
    pub(super) written: BTreeMap<Written, Option<Vec<u8>>>,
}

/// Table, set and key of an element that a packet wrote.
pub(super) type Written = (nft::Name, String, Vec<u8>);

impl State {
    pub(super) fn new(packet: Packet) -> Self {
        Self { key: StateKey { packet, is_certain: true, written: BTreeMap::new() }, share: 1.0 }
    }

    pub(super) fn packet(&self) -> &Packet {
        &self.key.packet
    }

    pub(super) fn packet_mut(&mut self) -> &mut Packet {
        &mut self.key.packet
    }

    /// Returns the state with a part of its share.
    pub(super) fn part(&self, share: f64) -> Self {
        Self { key: self.key.clone(), share: self.share * share }
    }

    /// Returns the state as uncertain.
    pub(super) fn perhaps(&self) -> Self {
        let mut state = self.clone();
        state.key.is_certain = false;
        state
    }
}

/// Merges equal states.
pub(super) fn merge(states: Vec<State>) -> Vec<State> {
    // An uncertain state is counted on several branches.
    let add = |equal: &mut State, it: State| equal.share = (equal.share + it.share).min(1.0);
    merge_by(states, |state| state.key.clone(), add)
}

/// Merges items with equal keys, in the order of their first appearance.
pub(super) fn merge_by<T, K: Eq + Hash>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
    mut add: impl FnMut(&mut T, T),
) -> Vec<T> {
    let mut places = HashMap::new();
    let mut merged: Vec<T> = Vec::new();
    for item in items {
        let place = *places.entry(key(&item)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(equal) => add(equal, item),
            None => merged.push(item),
        }
    }
    merged
}

/// Returns the sum of all shares.
pub(super) fn total(states: &[State]) -> f64 {
    states.iter().map(|state| state.share).sum::<f64>().min(1.0)
}
