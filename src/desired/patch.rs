//! A change of few endpoints of one key, told without naming the others.
//!
//! The slots of a service may be thousands. What is changed here is relative to what is installed,
//! and comes to the same as placing all endpoints anew.

use smallvec::SmallVec;

use super::layout::endpoint_limits;
use super::{KeptFragment, Layout};
use crate::model::Target;

/// What changes in an installed fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The sets it is a member of from then on.
    pub sets: u64,
    /// How many slots there are from then on.
    pub length: usize,
    /// The slots below `length` that hold another endpoint from then on, ascending.
    pub slots: Edits,
}

/// Slots with their endpoints.
pub(super) type Edits = SmallVec<[(usize, Target); 2]>;

/// Slots on the way to a patch.
struct Slots<'a> {
    installed: &'a KeptFragment,
    length: usize,
    edits: Edits,
}

impl Patch {
    /// What leads from `installed` to where exactly those of `endpoints` have a slot that are marked,
    /// and all others as before. `None` if that has to be found out from all endpoints: where there
    /// are none, or none would be left, or more than are used.
    pub(super) fn new(
        installed: &KeptFragment,
        layout: &Layout,
        endpoints: impl Iterator<Item = (Target, bool)>,
    ) -> Option<Self> {
        let former = installed.len(false);
        let mut slots = Slots { installed, length: former, edits: Edits::new() };
        let mut gaps = SmallVec::<[usize; 2]>::new();
        let mut new = SmallVec::<[Target; 2]>::new();
        for (target, is_wanted) in endpoints {
            match (installed.position(&target), is_wanted) {
                (Some(slot), false) => gaps.push(slot),
                (None, true) => new.push(target),
                (Some(_), true) | (None, false) => {}
            }
        }
        // The last gap is closed first: nothing that moves comes from a gap.
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        for target in new {
            match gaps.pop() {
                Some(gap) => slots.put(gap, target),
                None => slots.push(target),
            }
        }
        gaps.into_iter().try_for_each(|gap| slots.close(gap))?;
        let Slots { length, mut edits, .. } = slots;
        if former == 0 || length == 0 || former.max(length) >= endpoint_limits()[0] {
            return None;
        }
        edits.sort_unstable_by_key(|(slot, _)| *slot);
        let sets = layout.with_counts(installed.sets(), length, installed.len(true));
        Some(Self { sets, length, slots: edits })
    }

    /// Whether it leaves an installed fragment as it is.
    pub(super) fn is_nothing(&self, installed: &KeptFragment) -> bool {
        self.slots.is_empty() && self.length == installed.len(false)
    }

    /// The number of elements by which it differs from what is installed.
    pub fn distance(&self, installed: &KeptFragment) -> usize {
        let sets = (self.sets ^ installed.sets()).count_ones() as usize;
        let length = installed.len(false);
        let replaced = self.slots.iter().filter(|(slot, _)| *slot < length).count();
        sets + 2 * replaced + self.length.abs_diff(length)
    }
}

impl Slots<'_> {
    fn put(&mut self, slot: usize, target: Target) {
        match self.edits.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, known)) => *known = target,
            None => self.edits.push((slot, target)),
        }
    }

    fn push(&mut self, target: Target) {
        self.put(self.length, target);
        self.length += 1;
    }

    /// The last endpoint moves into the gap; `None` if there is a hole.
    fn close(&mut self, gap: usize) -> Option<()> {
        let last = self.length - 1;
        let edited = self.edits.iter().position(|(slot, _)| *slot == last);
        let moved = match edited {
            Some(position) => self.edits.remove(position).1,
            None => self.installed.slot(last)?,
        };
        if gap != last {
            self.put(gap, moved);
        }
        self.length = last;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::num::NonZeroU16;

    use proptest::prelude::*;

    use super::*;
    use crate::desired::Fragment;
    use crate::desired::layout::WITH_ENDPOINTS;
    use crate::desired::slots::assign;
    use crate::diff::Keep;
    use crate::nft::Family;

    fn target(number: u8, ipv6: bool) -> Target {
        let v4 = Ipv4Addr::from([10, 0, 0, number]);
        let address = if ipv6 { v4.to_ipv6_mapped().into() } else { v4.into() };
        Target { address, port: NonZeroU16::new(8080).unwrap() }
    }

    fn fragment(layout: &Layout, slots: Box<[Option<Target>]>) -> Fragment {
        let sets = layout.with_counts(WITH_ENDPOINTS, slots.len(), 0);
        Fragment { slots, label: Some("default/web".into()), ..Fragment::member(sets) }
    }

    fn patch(installed: &[u8], changes: &[(u8, bool)]) -> Option<(usize, Vec<(usize, u8)>)> {
        let layout = Layout::new(Family::Ip);
        let slots = installed.iter().map(|number| Some(target(*number, false))).collect();
        let changes = changes.iter().map(|(number, wanted)| (target(*number, false), *wanted));
        let patch = Patch::new(&fragment(&layout, slots).keep(), &layout, changes)?;
        let number = |target: &Target| match target.address {
            std::net::IpAddr::V4(address) => address.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        };
        let slots = patch.slots.iter().map(|(slot, target)| (*slot, number(target)));
        Some((patch.length, slots.collect()))
    }

    #[test]
    fn few_slots_change_when_an_endpoint_comes_goes_or_is_replaced() {
        assert_eq!(patch(&[1, 2, 3], &[(4, true)]), Some((4, vec![(3, 4)])));
        assert_eq!(patch(&[1, 2, 3], &[(1, false)]), Some((2, vec![(0, 3)])));
        assert_eq!(patch(&[1, 2, 3], &[(3, false)]), Some((2, vec![])));
        assert_eq!(patch(&[1, 2, 3], &[(9, true), (2, false)]), Some((3, vec![(1, 9)])));
        assert_eq!(patch(&[1, 2, 3], &[(2, true), (9, false)]), Some((3, vec![])));
        assert_eq!(patch(&[1, 2, 3, 4], &[(4, false), (1, false)]), Some((2, vec![(0, 3)])));
    }

    #[test]
    fn the_first_and_the_last_endpoint_are_not_a_small_change() {
        assert_eq!(patch(&[], &[(1, true)]), None);
        assert_eq!(patch(&[1], &[(1, false)]), None);
    }

    proptest! {
        #[test]
        fn a_patch_leads_as_far_as_placing_all_and_changes_as_few_slots(
            before in proptest::collection::hash_set(0u8..40, 1..30),
            changes in proptest::collection::hash_map(0u8..40, any::<bool>(), 0..9),
            ipv6: bool,
        ) {
            let layout = Layout::new(if ipv6 { Family::Ip6 } else { Family::Ip });
            let old: Box<[_]> = before.iter().map(|number| Some(target(*number, ipv6))).collect();
            let mut kept = fragment(&layout, old.clone()).keep();
            let changed = changes.iter().map(|(number, is)| (target(*number, ipv6), *is));
            let wanted: Vec<Target> = (0..40)
                .filter(|number| *changes.get(number).unwrap_or(&before.contains(number)))
                .map(|number| target(number, ipv6))
                .collect();
            let Some(patch) = Patch::new(&kept, &layout, changed) else {
                prop_assert!(wanted.is_empty());
                return Ok(());
            };
            let is_nothing = patch.is_nothing(&kept);
            let distance = patch.distance(&kept);
            Fragment::patch(&mut kept, patch);
            let new = Fragment::restore(&kept);
            let mut held: Vec<_> = new.slots.iter().map(|slot| slot.unwrap()).collect();
            held.sort();
            let mut all = wanted.clone();
            all.sort();
            prop_assert_eq!(held, all);
            prop_assert_eq!(&new, &fragment(&layout, new.slots.clone()));
            prop_assert_eq!(is_nothing, new.slots == old);
            prop_assert_eq!(distance, fragment(&layout, old.clone()).distance(&new));
            let kept_by = |slots: &[Option<Target>]| {
                old.iter().zip(slots).filter(|(old, new)| old == new).count()
            };
            prop_assert_eq!(kept_by(&new.slots), kept_by(&assign(&old, &wanted)));
        }
    }
}
