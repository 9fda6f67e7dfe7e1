//! A packet on its way, with the share of packets that are in this state.

use std::collections::{BTreeMap, HashMap};

use super::packet::Packet;

/// One of the states in which packets of the question may be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    /// All but the share, by which states are merged.
    pub(super) key: Key,
    /// The share of the packets, from 0 to 1; at most that if it is not certain.
    pub(super) share: f64,
}

/// What makes two states one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) packet: Packet,
    /// False where something unknown decides whether packets are in this state.
    pub(super) is_certain: bool,
    /// Elements that this packet has written: the data, `None` if it removed the element.
    pub(super) written: BTreeMap<Written, Option<Vec<u8>>>,
}

/// Table, set and key of an element that a packet wrote.
pub(super) type Written = (String, String, Vec<u8>);

impl State {
    pub(super) fn new(packet: Packet) -> Self {
        Self { key: Key { packet, is_certain: true, written: BTreeMap::new() }, share: 1.0 }
    }

    pub(super) fn packet(&self) -> &Packet {
        &self.key.packet
    }

    pub(super) fn packet_mut(&mut self) -> &mut Packet {
        &mut self.key.packet
    }

    /// The state of the packets of which this share is taken.
    pub(super) fn part(&self, share: f64) -> Self {
        Self { key: self.key.clone(), share: self.share * share }
    }

    /// The state if something unknown decides so.
    pub(super) fn perhaps(&self) -> Self {
        let mut state = self.clone();
        state.key.is_certain = false;
        state
    }
}

/// Makes one state of equal ones, in the order of their first appearance.
pub(super) fn merge(states: Vec<State>) -> Vec<State> {
    let mut places = HashMap::new();
    let mut merged: Vec<State> = Vec::new();
    for state in states {
        let place = *places.entry(state.key.clone()).or_insert(merged.len());
        match merged.get_mut(place) {
            // What is not certain is counted on several ways.
            Some(equal) => equal.share = (equal.share + state.share).min(1.0),
            None => merged.push(state),
        }
    }
    merged
}

/// The share of all states together.
pub(super) fn total(states: &[State]) -> f64 {
    states.iter().map(|state| state.share).sum::<f64>().min(1.0)
}
