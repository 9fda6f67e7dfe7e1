//! What our tables say about one key.

use std::sync::Arc;

use super::slots::{Slots, assign};
use crate::model::Target;

/// Everything that is kept under one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The sets it is a member of, by the bits of [`super::layout`].
    pub sets: u64,
    /// `namespace/name:port` of the service port, at most [`LABEL_LIMIT`] bytes.
    pub label: Option<Arc<str>>,
    /// All endpoints.
    pub slots: Slots,
    /// The endpoints on this node, where traffic policies tell them apart.
    pub local_slots: Slots,
}

/// nft prints and loads comments of up to this many bytes (`NFTNL_UDATA_COMMENT_MAXLEN`).
pub(super) const LABEL_LIMIT: usize = 128;

impl Fragment {
    /// A key that is only a member of sets.
    pub fn member(sets: u64) -> Self {
        Self { sets, ..Self::default() }
    }

    /// Gives the endpoints slots that change as little as possible of what `installed` holds.
    pub fn with_slots(
        mut self,
        installed: Option<&Self>,
        all: &[Target],
        local: &[Target],
    ) -> Self {
        let installed_slots = installed.map_or(&[][..], |fragment| &fragment.slots);
        let installed_local = installed.map_or(&[][..], |fragment| &fragment.local_slots);
        self.slots = assign(installed_slots, all);
        self.local_slots = assign(installed_local, local);
        self
    }

    /// Upper bound for the number of elements that lead from `self` to `other`.
    pub fn distance(&self, other: &Self) -> usize {
        let sets = (self.sets ^ other.sets).count_ones() as usize;
        let relabelled = if self.label == other.label { 0 } else { other.sets.count_ones() };
        let slots = slot_distance(&self.slots, &other.slots)
            + slot_distance(&self.local_slots, &other.local_slots);
        sets + 2 * relabelled as usize + slots
    }

    /// A fragment on the way to `goal` that is at most about `budget` elements away and routes
    /// every packet to an endpoint of either; `goal` itself if it is near enough.
    pub fn step_towards(&self, goal: &Self, budget: usize) -> Self {
        if self.distance(goal) <= budget {
            return goal.clone();
        }
        if goal.slots.len() > self.slots.len() {
            // Slots beyond the count that the sets tell are never drawn, or hold an endpoint.
            let grown = self.slots.len() + budget.max(1);
            let slots =
                [&self.slots[..], &goal.slots[self.slots.len()..grown.min(goal.slots.len())]];
            return Self { slots: slots.concat().into(), ..self.clone() };
        }
        if goal.slots.len() < self.slots.len() {
            return self.shrink_towards(goal, budget);
        }
        let mut slots = self.slots.clone();
        let differing = slots.iter_mut().zip(&goal.slots).filter(|(old, new)| old != new);
        differing.take(budget.max(1) / 2 + 1).for_each(|(old, new)| *old = *new);
        if slots == goal.slots { goal.clone() } else { Self { slots, ..self.clone() } }
    }

    /// Makes the slots that stay and the sets right first; the tail is out of use from then on.
    fn shrink_towards(&self, goal: &Self, budget: usize) -> Self {
        let tail = &self.slots[goal.slots.len()..];
        let head = Self { slots: [&goal.slots, tail].concat().into(), ..goal.clone() };
        if *self != head {
            return head;
        }
        let kept = self.slots.len().saturating_sub(budget.max(1)).max(goal.slots.len());
        Self { slots: self.slots[..kept].into(), ..self.clone() }
    }
}

fn slot_distance(old: &Slots, new: &Slots) -> usize {
    let shared = old.iter().zip(new).filter(|(old, new)| old != new).count();
    2 * shared + old.len().abs_diff(new.len())
}
