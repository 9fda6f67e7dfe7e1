//! Places endpoints in the slots of a list with the fewest moves.
//!
//! A packet selects a slot by a random number below N. So the used slots must be exactly 0..N-1 and
//! hold every endpoint once, or as often as its weight. Endpoints without a slot go to the free
//! ones in order, so that those of the last slots fill the gaps.

use ahash::HashMap;
use smallvec::SmallVec;

use super::list::List;
use crate::desired::SlotPlan;
use crate::model::Target;
use crate::ruleset::number::SizeClass;

/// Slots of a list. A hole occurs only after a read-back.
pub(super) type Assignment = Box<[Option<Target>]>;

/// Returns the slots of a list of these endpoints, each named once. Endpoints keep the slots in
/// which they are installed where possible.
pub(super) fn assign(
    installed: &[Option<Target>],
    endpoints: &[Target],
    plan: &SlotPlan,
) -> Assignment {
    let mut slots: Assignment = vec![None; plan.count(endpoints.len())].into();
    let installed = &installed[..installed.len().min(slots.len())];
    let mut unplaced = match plan {
        SlotPlan::Once => keep_in_order(&mut slots, installed, endpoints),
        SlotPlan::Weighted(counts) => {
            endpoints.iter().copied().zip(counts.iter().copied()).collect()
        }
        SlotPlan::Table(.., table) => {
            let endpoint = |position: &u16| endpoints.get(usize::from(*position)).copied();
            return table.iter().map(endpoint).collect();
        }
    };
    keep_elsewhere(&mut slots, installed, &mut unplaced);
    let free = slots.iter_mut().filter(|slot| slot.is_none());
    let unplaced = unplaced.into_iter();
    let unplaced = unplaced.flat_map(|(it, count)| std::iter::repeat_n(it, count as usize));
    free.zip(unplaced).for_each(|(slot, target)| *slot = Some(target));
    slots
}

/// Endpoints with the number of slots that they lack, in their order.
type Unplaced = SmallVec<[(Target, u32); FEW]>;

/// Number of endpoints up to which a linear search is used.
const FEW: usize = 8;

/// Keeps the endpoints found by a merge of both lists, and returns the others.
///
/// Most endpoints have the same order in both lists, with some added, removed or moved. A service
/// may have thousands.
fn keep_in_order(
    slots: &mut Assignment,
    installed: &[Option<Target>],
    endpoints: &[Target],
) -> Unplaced {
    let mut unplaced = Unplaced::new();
    let mut slot = 0;
    for (i, target) in endpoints.iter().enumerate() {
        let holds = |slot: usize, target: Option<&Target>| {
            target.is_some() && installed.get(slot).and_then(Option::as_ref) == target
        };
        if !holds(slot, Some(target)) && holds(slot + 1, Some(target)) {
            slot += 1;
        }
        if holds(slot, Some(target)) {
            slots[slot] = Some(*target);
            slot += 1;
        } else {
            unplaced.push((*target, 1));
            // An added endpoint leaves the slot to the next one.
            if !holds(slot, endpoints.get(i + 1)) {
                slot += 1;
            }
        }
    }
    unplaced
}

/// Keeps those of the unplaced endpoints that have another slot.
fn keep_elsewhere(slots: &mut Assignment, installed: &[Option<Target>], unplaced: &mut Unplaced) {
    let places = || unplaced.iter().enumerate().map(|(place, (target, _))| (*target, place));
    let many: Option<HashMap<_, _>> = (unplaced.len() > FEW).then(|| places().collect());
    for (slot, target) in slots.iter_mut().zip(installed).filter(|(slot, _)| slot.is_none()) {
        let place = target.and_then(|target| match &many {
            Some(many) => many.get(&target).copied(),
            None => unplaced.iter().position(|(other, _)| *other == target),
        });
        if let Some((target, count)) = place.map(|place| &mut unplaced[place])
            && *count > 0
        {
            *count -= 1;
            *slot = Some(*target);
        }
    }
}

/// A change of few endpoints of a plain list, computed without the other endpoints: a list may have
/// thousands. The result equals that of [`assign`], but for the order.
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

impl Patch {
    /// Returns the patch that gives each endpoint marked `true` a slot and frees the others' slots.
    /// `None` if that depends on all endpoints: the list is empty, would become empty, or has more
    /// endpoints than are used.
    pub(super) fn new(
        installed: &List,
        endpoints: impl Iterator<Item = (Target, bool)>,
    ) -> Option<Self> {
        let former = installed.len();
        let mut gaps = SmallVec::<[usize; 2]>::new();
        let mut new = SmallVec::<[Target; 2]>::new();
        for (target, is_desired) in endpoints {
            match (installed.position(&target), is_desired) {
                (Some(slot), false) => gaps.push(slot),
                (None, true) => new.push(target),
                (Some(_), true) | (None, false) => {}
            }
        }
        let length = former + new.len() - gaps.len();
        if former == 0 || length == 0 || former.max(length) >= SizeClass::LARGEST.most() as usize {
            return None;
        }
        gaps.sort_unstable();
        let moved = (length..former).filter(|slot| !gaps.contains(slot));
        let moved = moved.map(|slot| installed.slot(slot));
        let free = gaps.iter().copied().filter(|gap| *gap < length).chain(former..length);
        let placed = free.zip(new.into_iter().map(Some).chain(moved));
        // A hole cannot be moved.
        let slots = placed.map(|(slot, target)| Some((slot, target?))).collect::<Option<_>>()?;
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::num::NonZeroU16;

    use proptest::prelude::*;

    use super::*;

    fn target(number: u32) -> Target {
        let address = Ipv4Addr::from(0x0a00_0000 + number).into();
        Target { address, port: NonZeroU16::new(8080).unwrap() }
    }

    fn installed(numbers: &[u32]) -> Assignment {
        numbers.iter().map(|&number| Some(target(number))).collect()
    }

    #[track_caller]
    fn check(before: &[u32], desired: &[u32], expected: &[u32]) {
        let desired: Vec<_> = desired.iter().copied().map(target).collect();
        assert_eq!(assign(&installed(before), &desired, &SlotPlan::Once), installed(expected));
    }

    #[test]
    fn the_first_endpoints_keep_their_order() {
        check(&[], &[1, 2, 3], &[1, 2, 3]);
    }

    #[test]
    fn a_new_endpoint_goes_to_the_end() {
        check(&[1, 2], &[0, 1, 2], &[1, 2, 0]);
    }

    #[test]
    fn the_last_endpoint_moves_into_the_gap() {
        check(&[1, 2, 3, 4], &[1, 3, 4], &[1, 4, 3]);
    }

    #[test]
    fn a_replaced_endpoint_leaves_its_slot_to_the_new_one() {
        check(&[1, 2, 3], &[1, 9, 3], &[1, 9, 3]);
    }

    #[test]
    fn a_hole_found_in_the_kernel_is_filled() {
        let found = [Some(target(1)), None, Some(target(3))];
        let desired = [target(1), target(2), target(3)];
        assert_eq!(assign(&found, &desired, &SlotPlan::Once), installed(&[1, 2, 3]));
    }

    #[test]
    fn an_endpoint_found_twice_in_the_kernel_keeps_one_slot() {
        check(&[1, 1, 2], &[1, 2], &[1, 2]);
    }

    #[test]
    fn an_endpoint_has_as_many_slots_as_its_weight_and_a_change_of_it_moves_no_other() {
        let check = |before: &[u32], counts: &[u32], expected: &[u32]| {
            let desired: Vec<_> = (1..=3).map(target).collect();
            let found = assign(&installed(before), &desired, &SlotPlan::Weighted(counts.into()));
            assert_eq!(found, installed(expected));
        };
        check(&[], &[1, 2, 3], &[1, 2, 2, 3, 3, 3]);
        check(&[1, 2, 2, 3, 3, 3], &[2, 2, 3], &[1, 2, 2, 3, 3, 3, 1]);
        check(&[1, 2, 2, 3, 3, 3], &[1, 2, 1], &[1, 2, 2, 3]);
        check(&[9, 2, 2, 3, 3, 3], &[1, 3, 2], &[1, 2, 2, 3, 3, 2]);
    }

    proptest! {
        #[test]
        fn slots_are_dense_hold_everything_once_and_move_minimally(
            before in proptest::collection::hash_set(0u32..40, 0..30),
            desired in proptest::collection::hash_set(0u32..40, 0..30),
        ) {
            let before: Vec<_> = before.into_iter().collect();
            let desired: Vec<_> = desired.into_iter().map(target).collect();
            let old = installed(&before);
            let new = assign(&old, &desired, &SlotPlan::Once);

            let mut held: Vec<_> = new.iter().map(|slot| slot.unwrap()).collect();
            let mut all = desired.clone();
            held.sort();
            all.sort();
            prop_assert_eq!(held, all);

            let kept = old.iter().zip(&new).filter(|(old, new)| old == new).count();
            let can_stay = old.iter().take(desired.len());
            let could_stay = can_stay.filter(|slot| desired.contains(&slot.unwrap())).count();
            prop_assert_eq!(kept, could_stay);
        }
    }
}

#[cfg(test)]
mod patch_tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU16;

    use nft::family::Family;
    use proptest::prelude::*;

    use super::*;
    use crate::model::Protocol;
    use crate::ruleset::ListUse;

    fn target(number: u8, ipv6: bool) -> Target {
        let v4 = Ipv4Addr::from([10, 0, 0, number]);
        let address = if ipv6 { v4.to_ipv6_mapped().into() } else { v4.into() };
        Target { address, port: NonZeroU16::new(8080).unwrap() }
    }

    fn list(targets: impl Iterator<Item = Target>, ipv6: bool) -> List {
        let family = if ipv6 { Family::Ip6 } else { Family::Ip };
        let mut list = List::new(family, ListUse::Port(Protocol::Tcp));
        targets.enumerate().for_each(|(slot, target)| list.put(slot, target));
        list
    }

    fn patch(installed: &[u8], changes: &[(u8, bool)]) -> Option<(usize, Vec<(usize, u8)>)> {
        let installed = list(installed.iter().map(|number| target(*number, false)), false);
        let changes = changes.iter().map(|(number, desired)| (target(*number, false), *desired));
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
            let desired: Vec<Target> = (0..40)
                .filter(|number| *changes.get(number).unwrap_or(&before.contains(number)))
                .map(|number| target(number, ipv6))
                .collect();
            let Some(patch) = Patch::new(&installed, changed) else {
                prop_assert!(desired.is_empty());
                return Ok(());
            };
            let mut new = old.clone();
            new.resize(patch.length, None);
            patch.slots.iter().for_each(|(slot, target)| new[*slot] = Some(*target));
            let mut held: Vec<_> = new.iter().map(|slot| slot.unwrap()).collect();
            held.sort();
            let mut all = desired.clone();
            all.sort();
            prop_assert_eq!(held, all);
            prop_assert_eq!(patch.is_nothing(), new == old);
            let kept_by = |slots: &[Option<Target>]| {
                old.iter().zip(slots).filter(|(old, new)| old == new).count()
            };
            prop_assert_eq!(kept_by(&new), kept_by(&assign(&old, &desired, &SlotPlan::Once)));
        }
    }
}
