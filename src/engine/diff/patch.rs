//! A change of few endpoints of a plain list, computed without the other endpoints.
//!
//! A list may have thousands of endpoints. The result equals that of filling all slots anew.

use smallvec::SmallVec;

use super::list::List;
use crate::model::Target;
use crate::ruleset::number::SizeClass;

/// A change of an installed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    /// Number of slots after the change.
    pub(super) length: usize,
    /// The slots below `length` with another endpoint after the change, ascending.
    pub(super) slots: Edits,
    /// Number of slots before the change.
    former: usize,
}

/// Slots with their new endpoints.
type Edits = SmallVec<[(usize, Target); 2]>;

/// The slots while a patch is computed.
struct PatchedSlots<'a> {
    installed: &'a List,
    length: usize,
    edits: Edits,
}

impl Patch {
    /// Returns the patch that gives each endpoint marked `true` a slot and frees the others' slots.
    /// `None` if that depends on all endpoints: the list is empty, would become empty, or has more
    /// endpoints than are used.
    pub(super) fn new(
        installed: &List,
        endpoints: impl Iterator<Item = (Target, bool)>,
    ) -> Option<Self> {
        let former = installed.len();
        let mut slots = PatchedSlots { installed, length: former, edits: Edits::new() };
        let mut gaps = SmallVec::<[usize; 2]>::new();
        let mut new = SmallVec::<[Target; 2]>::new();
        for (target, is_wanted) in endpoints {
            match (installed.position(&target), is_wanted) {
                (Some(slot), false) => gaps.push(slot),
                (None, true) => new.push(target),
                (Some(_), true) | (None, false) => {}
            }
        }
        // The last gap is closed first, so that no moved endpoint comes from a gap.
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        for target in new {
            match gaps.pop() {
                Some(gap) => slots.put(gap, target),
                None => slots.push(target),
            }
        }
        gaps.into_iter().try_for_each(|gap| slots.close(gap))?;
        let PatchedSlots { length, edits, .. } = slots;
        if former == 0 || length == 0 || former.max(length) >= SizeClass::LARGEST.most() as usize {
            return None;
        }
        let mut slots = edits;
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        Some(Self { length, slots, former })
    }

    /// Returns whether the list stays unchanged.
    pub(super) fn is_nothing(&self) -> bool {
        self.slots.is_empty() && self.length == self.former
    }

    /// Returns the maximum number of elements of the list that change.
    pub(super) fn elements(&self) -> usize {
        2 * self.slots.len() + self.former.saturating_sub(self.length)
    }
}

impl PatchedSlots<'_> {
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

    /// Moves the last endpoint into the gap; returns `None` if there is a hole.
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
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU16;

    use nft::family::Family;
    use proptest::prelude::*;

    use super::*;
    use crate::diff::slots::assign;
    use crate::model::Protocol;

    fn target(number: u8, ipv6: bool) -> Target {
        let v4 = Ipv4Addr::from([10, 0, 0, number]);
        let address = if ipv6 { v4.to_ipv6_mapped().into() } else { v4.into() };
        Target { address, port: NonZeroU16::new(8080).unwrap() }
    }

    fn list(targets: impl Iterator<Item = Target>, ipv6: bool) -> List {
        let family = if ipv6 { Family::Ip6 } else { Family::Ip };
        let mut list = List::new(family, Protocol::Tcp);
        targets.enumerate().for_each(|(slot, target)| list.put(slot, target));
        list
    }

    fn patch(installed: &[u8], changes: &[(u8, bool)]) -> Option<(usize, Vec<(usize, u8)>)> {
        let installed = list(installed.iter().map(|number| target(*number, false)), false);
        let changes = changes.iter().map(|(number, wanted)| (target(*number, false), *wanted));
        let patch = Patch::new(&installed, changes)?;
        let number = |target: &Target| match target.address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
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
        fn a_patch_leads_to_the_same_endpoints_as_filling_all_slots_and_changes_as_few(
            before in proptest::collection::hash_set(0u8..40, 1..30),
            changes in proptest::collection::hash_map(0u8..40, any::<bool>(), 0..9),
            ipv6: bool,
        ) {
            let installed = list(before.iter().map(|number| target(*number, ipv6)), ipv6);
            let old: Vec<_> = installed.iter().collect();
            let changed = changes.iter().map(|(number, is)| (target(*number, ipv6), *is));
            let wanted: Vec<Target> = (0..40)
                .filter(|number| *changes.get(number).unwrap_or(&before.contains(number)))
                .map(|number| target(number, ipv6))
                .collect();
            let Some(patch) = Patch::new(&installed, changed) else {
                prop_assert!(wanted.is_empty());
                return Ok(());
            };
            let mut new = old.clone();
            new.resize(patch.length, None);
            patch.slots.iter().for_each(|(slot, target)| new[*slot] = Some(*target));
            let mut held: Vec<_> = new.iter().map(|slot| slot.unwrap()).collect();
            held.sort();
            let mut all = wanted.clone();
            all.sort();
            prop_assert_eq!(held, all);
            prop_assert_eq!(patch.is_nothing(), new == old);
            let kept_by = |slots: &[Option<Target>]| {
                old.iter().zip(slots).filter(|(old, new)| old == new).count()
            };
            prop_assert_eq!(kept_by(&new), kept_by(&assign(&old, &wanted)));
        }
    }
}
