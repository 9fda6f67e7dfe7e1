//! Assigns endpoints to slots 0..N-1 with the fewest moves.
//!
//! A packet selects a slot by a random number below N. So the used slots must be exactly 0..N-1 and
//! hold every endpoint once, or as often as its weight.

use ahash::{HashMap, HashSet};
use smallvec::SmallVec;

use crate::model::Target;

/// Slots of a list. A hole occurs only after a read-back.
pub(super) type Assignment = Box<[Option<Target>]>;

/// Assigns a slot to every wanted endpoint, and keeps the slots of `installed` where possible.
///
/// `wanted` names every endpoint once. When one is removed, the last one moves into the gap.
pub(super) fn assign(installed: &[Option<Target>], wanted: &[Target]) -> Assignment {
    let installed = &installed[..installed.len().min(wanted.len())];
    let mut slots: Assignment = vec![None; wanted.len()].into();
    let mut unplaced = keep_in_order(&mut slots, installed, wanted);
    keep_elsewhere(&mut slots, installed, &mut unplaced);
    let free = slots.iter_mut().filter(|slot| slot.is_none());
    free.zip(unplaced).for_each(|(slot, target)| *slot = Some(target));
    slots
}

/// Assigns `counts` slots to every endpoint, and keeps the slots of `installed` where possible.
pub(super) fn assign_weighted(
    installed: impl Iterator<Item = Option<Target>>,
    wanted: &[Target],
    counts: &[u32],
) -> Assignment {
    let mut left: HashMap<Target, u32> =
        wanted.iter().copied().zip(counts.iter().copied()).collect();
    let length = left.values().map(|count| *count as usize).sum();
    let mut slots: Assignment = vec![None; length].into();
    for (slot, target) in slots.iter_mut().zip(installed) {
        let kept = target.and_then(|target| Some((target, left.get_mut(&target)?)));
        if let Some((target, count)) = kept.filter(|(_, count)| **count > 0) {
            *count -= 1;
            *slot = Some(target);
        }
    }
    let missing = wanted.iter().flat_map(|target| {
        let count = left.get(target).copied().unwrap_or(0);
        std::iter::repeat_n(*target, count as usize)
    });
    let free = slots.iter_mut().filter(|slot| slot.is_none());
    free.zip(missing).for_each(|(slot, target)| *slot = Some(target));
    slots
}

/// Endpoints without a slot, in the order of the wanted ones.
type Unplaced = SmallVec<[Target; FEW]>;

/// Number of endpoints up to which a linear search is used.
const FEW: usize = 8;

/// Keeps the endpoints found by a merge of both lists, and returns the others.
///
/// Most endpoints have the same order in both lists, with some added, removed or moved. A service
/// may have thousands.
fn keep_in_order(
    slots: &mut Assignment,
    installed: &[Option<Target>],
    wanted: &[Target],
) -> Unplaced {
    let mut unplaced = Unplaced::new();
    let mut slot = 0;
    for (i, target) in wanted.iter().enumerate() {
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
            unplaced.push(*target);
            // An added endpoint leaves the slot to the next one.
            if !holds(slot, wanted.get(i + 1)) {
                slot += 1;
            }
        }
    }
    unplaced
}

/// Keeps those of the unplaced endpoints that have another slot.
fn keep_elsewhere(slots: &mut Assignment, installed: &[Option<Target>], unplaced: &mut Unplaced) {
    let mut many: Option<HashSet<Target>> =
        (unplaced.len() > FEW).then(|| unplaced.iter().copied().collect());
    let mut take = |target: &Target| match &mut many {
        Some(many) => many.remove(target),
        None => {
            let position = unplaced.iter().position(|other| other == target);
            position.map(|position| unplaced.remove(position)).is_some()
        }
    };
    for (slot, target) in slots.iter_mut().zip(installed).filter(|(slot, _)| slot.is_none()) {
        *slot = target.filter(&mut take);
    }
    if let Some(many) = many {
        unplaced.retain(|target| many.contains(target));
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
    fn check(before: &[u32], wanted: &[u32], expected: &[u32]) {
        let wanted: Vec<_> = wanted.iter().copied().map(target).collect();
        assert_eq!(assign(&installed(before), &wanted), installed(expected));
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
        let wanted = [target(1), target(2), target(3)];
        assert_eq!(assign(&found, &wanted), installed(&[1, 2, 3]));
    }

    #[test]
    fn an_endpoint_found_twice_in_the_kernel_keeps_one_slot() {
        check(&[1, 1, 2], &[1, 2], &[1, 2]);
    }

    #[test]
    fn an_endpoint_has_as_many_slots_as_its_weight_and_a_change_of_it_moves_no_other() {
        let check = |before: &[u32], counts: &[u32], expected: &[u32]| {
            let wanted: Vec<_> = (1..=3).map(target).collect();
            let found = assign_weighted(installed(before).into_iter(), &wanted, counts);
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
            wanted in proptest::collection::hash_set(0u32..40, 0..30),
        ) {
            let before: Vec<_> = before.into_iter().collect();
            let wanted: Vec<_> = wanted.into_iter().map(target).collect();
            let old = installed(&before);
            let new = assign(&old, &wanted);

            let mut held: Vec<_> = new.iter().map(|slot| slot.unwrap()).collect();
            let mut all = wanted.clone();
            held.sort();
            all.sort();
            prop_assert_eq!(held, all);

            let kept = old.iter().zip(&new).filter(|(old, new)| old == new).count();
            let can_stay = old.iter().take(wanted.len());
            let could_stay = can_stay.filter(|slot| wanted.contains(&slot.unwrap())).count();
            prop_assert_eq!(kept, could_stay);
        }
    }
}
