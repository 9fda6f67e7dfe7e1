//! What our tables say about one key.

use std::sync::Arc;

use ahash::HashMap;

use super::affinity::{Affinity, EndpointId};
use super::layout::FIREWALL;
use super::slots::{Slots, assign};
use super::source_ranges::Range;
use crate::model::Target;

/// Everything that is kept under one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The sets it is a member of, by the bits of [`super::layout`].
    pub sets: u64,
    /// `namespace/name:port` of the service port, at most 128 bytes.
    pub label: Option<Arc<str>>,
    /// All endpoints.
    pub slots: Slots,
    /// The endpoints on this node, where traffic policies tell them apart.
    pub local_slots: Slots,
    /// Sources that may use a frontend of the set `firewall-ips`, ascending and disjoint.
    pub ranges: Box<[Range]>,
    /// What session affinity adds.
    pub affinity: Option<Box<Affinity>>,
}

/// Upper bound for the elements by which a session or a timeout changes.
const AFFINITY_ELEMENTS: usize = 4;

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
        let is_relabelled = self.label != other.label;
        let relabelled = if is_relabelled { other.sets.count_ones() } else { 0 };
        let is_session = self.endpoint_ids().or(other.endpoint_ids()).is_some();
        let slots = slot_distance(&self.slots, &other.slots)
            + slot_distance(&self.local_slots, &other.local_slots);
        let only = |a: &[Range], b: &[Range]| {
            a.iter().filter(|range| b.binary_search(range).is_err()).count()
        };
        let ranges = only(&self.ranges, &other.ranges) + only(&other.ranges, &self.ranges);
        // The label of a session is with its timeout.
        let is_changed = self.affinity != other.affinity || is_session && is_relabelled;
        let affinity = if is_changed { AFFINITY_ELEMENTS } else { 0 };
        // An endpoint of a session has an element of its own besides that of its slot.
        let slots = if is_session { 2 * slots } else { slots };
        sets + 2 * relabelled as usize + slots + ranges + affinity
    }

    /// The session's endpoint in each slot, if this is one.
    fn endpoint_ids(&self) -> Option<&[EndpointId]> {
        match self.affinity.as_deref() {
            Some(Affinity::Session { ids, .. }) => Some(ids),
            Some(Affinity::Frontend(_)) | None => None,
        }
    }

    /// The endpoint in each slot of a session, with its number.
    pub fn session_slots(&self) -> impl Iterator<Item = Option<(EndpointId, Target)>> {
        let ids = self.endpoint_ids().unwrap_or_default();
        ids.iter().zip(&self.slots).map(|(id, target)| Some((*id, (*target)?)))
    }

    /// Between `old` and `new`, of which one is a session, this is one too: gives its slots, which
    /// hold endpoints of both, the numbers that these have.
    fn with_ids_of(mut self, old: &Self, new: &Self) -> Self {
        let session = [new, old].into_iter().find(|fragment| fragment.endpoint_ids().is_some());
        if let (None, Some(session)) = (self.endpoint_ids(), session) {
            self.affinity.clone_from(&session.affinity);
        }
        if let Some(Affinity::Session { ids, .. }) = self.affinity.as_deref_mut() {
            let known = old.session_slots().chain(new.session_slots()).flatten();
            let known: HashMap<Target, EndpointId> =
                known.map(|(id, target)| (target, id)).collect();
            let id =
                |target: &Option<Target>| target.and_then(|target| known.get(&target).copied());
            *ids = self.slots.iter().map(|target| id(target).unwrap_or_default()).collect();
        }
        self
    }

    /// A fragment on the way to `goal` that is at most about `budget` elements away and routes
    /// every packet to an endpoint of either; `goal` itself if it is near enough.
    pub fn step_towards(&self, goal: &Self, budget: usize) -> Self {
        if self.distance(goal) <= budget {
            return goal.clone();
        }
        let is_session = self.endpoint_ids().or(goal.endpoint_ids()).is_some();
        let budget = if is_session { budget / 2 } else { budget };
        let is_freed = self.sets & FIREWALL != 0 && goal.sets & FIREWALL == 0;
        if !is_freed && self.ranges != goal.ranges {
            // Ranges are complete before they are asked, and asked until they begin to go.
            return Self { ranges: self.ranges_towards(goal, budget), ..self.clone() };
        }
        let guarded = Self { ranges: self.ranges.clone(), ..goal.clone() };
        let next = self.slots_towards(&guarded, budget);
        if next == guarded { next } else { next.with_ids_of(self, goal) }
    }

    /// Ranges that are out of place go first: they could overlap those that come.
    fn ranges_towards(&self, goal: &Self, budget: usize) -> Box<[Range]> {
        let budget = budget.max(1);
        let (mut ranges, out): (Vec<Range>, Vec<Range>) =
            self.ranges.iter().partition(|range| goal.ranges.binary_search(range).is_ok());
        if out.is_empty() {
            let missing =
                goal.ranges.iter().filter(|range| self.ranges.binary_search(range).is_err());
            ranges.extend(missing.take(budget));
        } else {
            ranges.extend(out.into_iter().skip(budget));
        }
        ranges.sort_unstable();
        ranges.into()
    }

    fn slots_towards(&self, goal: &Self, budget: usize) -> Self {
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
        let mut slots = self.slots.clone();
        let mut differing = slots.iter_mut().zip(&goal.slots).filter(|(old, new)| old != new);
        (&mut differing).take(budget / 2).for_each(|(old, new)| *old = *new);
        if differing.next().is_some() && budget > 1 {
            return Self { slots, ..self.clone() };
        }
        let tail = &self.slots[goal.slots.len()..];
        let head = Self { slots: [&goal.slots, tail].concat().into(), ..goal.clone() };
        let head = head.with_ids_of(self, goal);
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use proptest::prelude::*;

    use super::*;
    use crate::desired::layout::{Layout, WITH_ENDPOINTS};
    use crate::nft::Family;

    fn target(number: u32) -> Target {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number).into();
        Target { address, port: NonZeroU16::new(8080).unwrap() }
    }

    fn fragment(layout: &Layout, endpoints: &[u32], installed: Option<&Fragment>) -> Fragment {
        let sets = WITH_ENDPOINTS | layout.count_memberships(endpoints.len(), 0);
        let targets: Vec<_> = endpoints.iter().copied().map(target).collect();
        Fragment::member(sets).with_slots(installed, &targets, &[])
    }

    /// How many endpoints the sets say there are at least.
    fn told(layout: &Layout, fragment: &Fragment) -> usize {
        let counts = (1..=fragment.slots.len().max(1)).rev();
        let mut fitting =
            counts.filter(|n| fragment.sets == WITH_ENDPOINTS | layout.count_memberships(*n, 0));
        fitting.next().unwrap_or(0)
    }

    #[test]
    fn a_key_takes_24_bytes_its_fragment_80_and_each_slot_20() {
        assert!(size_of::<crate::desired::Key>() <= 24);
        assert!(size_of::<Fragment>() <= 80);
        assert_eq!(size_of::<Option<Target>>(), 20);
    }

    #[test]
    fn a_near_goal_is_reached_at_once() {
        let layout = Layout::new(Family::Ip);
        let old = fragment(&layout, &[1, 2, 3], None);
        let new = fragment(&layout, &[1, 3, 4, 5], Some(&old));
        assert_eq!(old.step_towards(&new, 100), new);
    }

    #[test]
    fn slots_grow_before_the_sets_tell_of_them() {
        let layout = Layout::new(Family::Ip);
        let old = fragment(&layout, &[1], None);
        let new = fragment(&layout, &(1..100).collect::<Vec<_>>(), Some(&old));
        let next = old.step_towards(&new, 30);
        assert_eq!((next.slots.len(), next.sets), (31, old.sets));
    }

    #[test]
    fn the_sets_shrink_before_the_slots() {
        let layout = Layout::new(Family::Ip);
        let old = fragment(&layout, &(1..100).collect::<Vec<_>>(), None);
        let new = fragment(&layout, &[1], Some(&old));
        let next = old.step_towards(&new, 30);
        assert_eq!((next.slots.len(), next.sets), (old.slots.len(), new.sets));
    }

    fn ranges(numbers: &[u8]) -> Box<[Range]> {
        let network = |number: &u8| format!("10.{number}.0.0/16").parse().unwrap();
        let mut ranges: Vec<_> = numbers.iter().map(network).map(Range::of_network).collect();
        ranges.sort_unstable();
        ranges.into()
    }

    #[test]
    fn ranges_are_complete_before_they_are_asked_and_asked_until_they_go() {
        let open = Fragment::member(WITH_ENDPOINTS);
        let all: Vec<u8> = (0..100).collect();
        let firewall = Fragment { ranges: ranges(&all), ..Fragment::member(FIREWALL) };
        for (from, to) in [(&open, &firewall), (&firewall, &open)] {
            let (mut now, mut steps) = (from.clone(), 0);
            while now != *to {
                assert!(now.sets & FIREWALL == 0 || now.ranges.len() == 100, "{now:?}");
                let next = now.step_towards(to, 30);
                assert!(now.distance(&next) <= 40);
                (now, steps) = (next, steps + 1);
                assert!(steps < 10);
            }
        }
    }

    fn session(layout: &Layout, endpoints: std::ops::Range<u32>) -> Fragment {
        let ids = endpoints.clone().map(|n| u16::try_from(n).unwrap()).collect();
        let affinity = Some(Box::new(Affinity::Session { timeout: 60, ids }));
        let slots = endpoints.map(|n| Some(target(n))).collect::<Vec<_>>().into();
        let count = layout.session_memberships(1);
        Fragment { slots, affinity, ..Fragment::member(count) }
    }

    #[test]
    fn a_session_comes_changes_and_goes_in_steps_of_any_size() {
        let layout = Layout::new(Family::Ip);
        let states = [
            Fragment::default(),
            session(&layout, 1..40),
            session(&layout, 20..50),
            Fragment::default(),
        ];
        for (budget, pair) in (0..12).flat_map(|budget| states.windows(2).map(move |p| (budget, p)))
        {
            let (mut now, goal, mut steps) = (pair[0].clone(), &pair[1], 0);
            while now != *goal {
                now = now.step_towards(goal, budget);
                let right = |(id, target): (u16, Target)| target == self::target(u32::from(id));
                assert!(now.session_slots().flatten().all(right), "{now:?}");
                steps += 1;
                assert!(steps < 200, "no end with {budget} elements in a step: {now:?}");
            }
        }
    }

    #[test]
    fn a_session_with_another_label_is_not_the_same() {
        let old = session(&Layout::new(Family::Ip), 1..2);
        let new = Fragment { label: Some("default/web".into()), ..old.clone() };
        assert!(old.distance(&new) >= 2, "its timeout's element is replaced");
    }

    #[test]
    fn ranges_that_change_leave_before_others_come() {
        let old = Fragment { ranges: ranges(&[1, 2, 3, 4]), ..Fragment::member(FIREWALL) };
        let new = Fragment { ranges: ranges(&[3, 4, 5, 6]), ..Fragment::member(FIREWALL) };
        let steps = std::iter::successors(Some(old), |now| {
            (*now != new).then(|| now.step_towards(&new, 1))
        });
        let lengths: Vec<_> = steps.map(|fragment| fragment.ranges.len()).collect();
        assert_eq!(lengths, [4, 3, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn every_step_is_a_table_that_works_and_the_goal_is_reached(
            before in proptest::collection::hash_set(0u32..200, 0..120),
            wanted in proptest::collection::hash_set(0u32..200, 0..120),
            budget in 40usize..80,
        ) {
            let layout = Layout::new(Family::Ip);
            let before: Vec<_> = before.into_iter().collect();
            let wanted: Vec<_> = wanted.into_iter().collect();
            let mut now = match before.as_slice() {
                [] => Fragment::default(),
                before => fragment(&layout, before, None),
            };
            let goal = match wanted.as_slice() {
                [] => Fragment::default(),
                wanted => fragment(&layout, wanted, Some(&now)),
            };
            let mut steps = 0;
            while now != goal {
                now = now.step_towards(&goal, budget);
                prop_assert!(now.slots.iter().all(Option::is_some));
                prop_assert!(told(&layout, &now) <= now.slots.len());
                steps += 1;
                prop_assert!(steps < 30, "no progress towards {goal:?} at {now:?}");
            }
        }
    }
}
