//! Two maps that should be equal, and the keys on which they differ.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;

use ahash::HashMap;

/// Desired and installed state of many keys.
///
/// `installed` is what the kernel last acknowledged; it moves only in [`Tracker::commit`] and
/// [`Tracker::observe`]. `desired` holds a value only for keys on which the two differ, so memory
/// and the cost of a sync are those of what changed. `None` means that the key should not be
/// there.
#[derive(Debug)]
pub struct Tracker<K, V: Keep> {
    installed: HashMap<K, V::Kept>,
    desired: HashMap<K, Pending<V>>,
    /// Keys of `desired` in the order in which they came to differ, with the unit they belong
    /// to, by lane. Entries that no longer count are skipped when it is their turn.
    queues: [VecDeque<(K, Unit)>; 2],
    unit: Unit,
    lane: Lane,
}

/// A value that takes less room while it does not change.
pub trait Keep: Sized {
    /// The form in which it is kept.
    type Kept: Debug;
    /// A small change of a value that is kept.
    type Patch: Debug;

    /// Makes it small.
    fn keep(self) -> Self::Kept;

    /// The value that was made small.
    fn restore(kept: &Self::Kept) -> Self;

    /// Whether this is the value that was made small.
    fn is(&self, kept: &Self::Kept) -> bool;

    /// Makes a small change.
    fn patch(kept: &mut Self::Kept, patch: Self::Patch);
}

/// What becomes of a key.
#[derive(Debug)]
pub enum Update<V: Keep> {
    /// There is nothing any more.
    Gone,
    /// This is there.
    Is(V),
    /// What is there changes a little.
    Patched(V::Patch),
}

/// Which keys are taken first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// Before all of the other lane, however long that waits.
    Fast,
    /// When nothing is left in the fast lane.
    #[default]
    Slow,
}

/// A value that the kernel does not hold yet.
#[derive(Debug)]
struct Pending<V: Keep> {
    update: Update<V>,
    /// Whether an entry of the queue stands for it; if not, a transaction is on its way.
    queued: bool,
}

/// Keys for which room is kept.
const SMALL: usize = 1_024;

/// Keys of one unit belong together and should be committed together.
pub type Unit = u64;

impl<K, V: Keep> Default for Tracker<K, V> {
    fn default() -> Self {
        Self {
            installed: HashMap::default(),
            desired: HashMap::default(),
            queues: [VecDeque::new(), VecDeque::new()],
            unit: 0,
            lane: Lane::default(),
        }
    }
}

impl<K: Copy + Eq + Hash, V: Keep + PartialEq> Tracker<K, V> {
    /// Begins a new unit: what is wanted from now on belongs together, in this lane.
    pub fn begin_unit(&mut self, lane: Lane) {
        self.unit += 1;
        self.lane = lane;
    }

    /// What the kernel holds under `key`.
    pub fn installed(&self, key: &K) -> Option<V> {
        self.kept(key).map(V::restore)
    }

    /// The same, as it is kept.
    pub fn kept(&self, key: &K) -> Option<&V::Kept> {
        self.installed.get(key)
    }

    /// What is to become of `key`, if the kernel holds something else.
    pub fn desired(&self, key: &K) -> Option<&Update<V>> {
        Some(&self.desired.get(key)?.update)
    }

    /// Every key that the kernel holds.
    pub fn installed_keys(&self) -> impl Iterator<Item = &K> {
        self.installed.keys()
    }

    /// States what the kernel should hold under `key`.
    pub fn want(&mut self, key: K, value: Option<V>) {
        let is_installed = match (self.installed.get(&key), &value) {
            (Some(kept), Some(value)) => value.is(kept),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        match is_installed {
            true => _ = self.desired.remove(&key),
            false => self.put(key, value.map_or(Update::Gone, Update::Is)),
        }
    }

    /// States that what is installed under `key`, which is what is desired, is to change a little.
    pub fn want_patch(&mut self, key: K, patch: V::Patch) {
        self.put(key, Update::Patched(patch));
    }

    fn put(&mut self, key: K, update: Update<V>) {
        if let Some(pending) = self.desired.get_mut(&key) {
            pending.update = update;
            // It may wait in the slow lane.
            if self.lane == Lane::Fast && pending.queued {
                self.queues[Lane::Fast as usize].push_back((key, self.unit));
            }
        } else {
            self.desired.insert(key, Pending { update, queued: true });
            self.queues[self.lane as usize].push_back((key, self.unit));
        }
    }

    /// Whether nothing differs.
    pub fn is_settled(&self) -> bool {
        self.desired.is_empty()
    }

    /// Whether `key` differs and no transaction that makes it right is on its way.
    pub fn differs(&self, key: &K) -> bool {
        self.desired.contains_key(key)
    }

    /// How many keys differ.
    pub fn differences(&self) -> usize {
        self.desired.len()
    }

    /// The key that has differed longest, of the fast lane if it has any, with its unit.
    ///
    /// It is the first until it is taken off the queue or equal.
    pub fn first(&mut self) -> Option<(K, Unit)> {
        for queue in &mut self.queues {
            while let Some((key, unit)) = queue.front() {
                if self.desired.get(key).is_some_and(|pending| pending.queued) {
                    return Some((*key, *unit));
                }
                queue.pop_front();
            }
        }
        None
    }

    fn pop_first(&mut self) {
        if let Some(queue) = self.queues.iter_mut().find(|queue| !queue.is_empty()) {
            queue.pop_front();
        }
    }

    /// Takes `key`, the first, off the queue with what should be there: a transaction makes it so.
    ///
    /// [`Tracker::commit`] or [`Tracker::observe`] must follow.
    pub fn take_first_whole(&mut self, key: &K) -> Update<V> {
        self.pop_first();
        self.desired.remove(key).map_or(Update::Gone, |pending| pending.update)
    }

    /// Takes `key`, the first, off the queue: a transaction makes it `next`, which is what should
    /// be there or a step towards it.
    ///
    /// [`Tracker::commit`] or [`Tracker::observe`] must follow.
    pub fn take_first(&mut self, key: &K, next: Option<&V>) {
        self.pop_first();
        let is_goal = |update: &Update<V>| match (update, next) {
            (Update::Is(goal), Some(next)) => goal == next,
            (Update::Gone, None) => true,
            (Update::Is(_) | Update::Gone | Update::Patched(_), _) => false,
        };
        match self.desired.get_mut(key) {
            Some(pending) if !is_goal(&pending.update) => pending.queued = false,
            _ => _ = self.desired.remove(key),
        }
    }

    /// The kernel has acknowledged what became of `key`.
    pub fn commit(&mut self, key: K, update: Update<V>) {
        match update {
            Update::Is(value) => _ = self.installed.insert(key, value.keep()),
            Update::Gone => _ = self.installed.remove(&key),
            Update::Patched(patch) => {
                if let Some(kept) = self.installed.get_mut(&key) {
                    V::patch(kept, patch);
                }
            }
        }
        if let Some(pending) = self.desired.get_mut(&key)
            && !pending.queued
        {
            pending.queued = true;
            self.queues[Lane::Slow as usize].push_front((key, self.unit));
        }
        self.release_memory();
    }

    /// After a large change nothing remains but what is installed.
    fn release_memory(&mut self) {
        if self.desired.is_empty() && self.desired.capacity() > SMALL {
            self.desired = HashMap::default();
            for queue in &mut self.queues {
                queue.clear();
                queue.shrink_to(SMALL);
            }
        }
    }

    /// The kernel was found to hold exactly `installed`.
    ///
    /// Every key that should be there must be stated again with [`Tracker::want`], and every
    /// other key of `installed` as `None`.
    pub fn observe(&mut self, installed: HashMap<K, V::Kept>) {
        self.installed = installed;
        self.desired = HashMap::default();
        self.queues = [VecDeque::new(), VecDeque::new()];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Keep for u8 {
        type Kept = Self;
        type Patch = Self;

        fn keep(self) -> Self {
            self
        }

        fn restore(kept: &Self) -> Self {
            *kept
        }

        fn is(&self, kept: &Self) -> bool {
            self == kept
        }

        fn patch(kept: &mut Self, more: Self) {
            *kept += more;
        }
    }

    fn update(value: Option<u8>) -> Update<u8> {
        value.map_or(Update::Gone, Update::Is)
    }

    /// Commits everything that differs, as a transaction would.
    fn settle(tracker: &mut Tracker<u8, u8>) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Some((key, _)) = tracker.first() {
            let update = tracker.take_first_whole(&key);
            taken.push((key, update));
        }
        let keys = taken.iter().map(|(key, _)| *key).collect();
        taken.into_iter().for_each(|(key, update)| tracker.commit(key, update));
        keys
    }

    #[test]
    fn a_key_that_became_equal_again_is_not_committed() {
        let mut tracker = Tracker::default();
        tracker.want(1, Some(10));
        tracker.want(1, None);
        assert!(tracker.is_settled());
        assert_eq!(tracker.first(), None);
    }

    #[test]
    fn a_key_that_differs_twice_is_taken_once() {
        let mut tracker = Tracker::default();
        tracker.want(1, Some(10));
        tracker.want(1, None);
        tracker.want(1, Some(11));
        assert_eq!(settle(&mut tracker), [1]);
        assert_eq!(tracker.installed(&1), Some(11));
    }

    #[test]
    fn the_fast_lane_is_taken_first_also_for_a_key_that_waits_in_the_slow_one() {
        let mut tracker = Tracker::default();
        for key in 1..=3 {
            tracker.want(key, Some(10));
        }
        tracker.begin_unit(Lane::Fast);
        tracker.want(4, Some(10));
        tracker.want(2, Some(11));
        assert_eq!(settle(&mut tracker), [4, 2, 1, 3]);
        assert_eq!(tracker.installed(&2), Some(11));
    }

    #[test]
    fn an_intermediate_value_leaves_the_key_first_in_the_queue() {
        let mut tracker = Tracker::default();
        tracker.want(1, Some(10));
        tracker.want(2, Some(20));
        tracker.take_first(&1, Some(&5));
        tracker.commit(1, update(Some(5)));
        assert_eq!(tracker.first().map(|(key, _)| key), Some(1));
        assert_eq!(tracker.installed(&1), Some(5));
        assert!(matches!(tracker.desired(&1), Some(Update::Is(10))));
    }

    #[test]
    fn a_small_change_is_of_what_is_installed_and_gives_way_to_a_whole_value() {
        let mut tracker = Tracker::default();
        tracker.want(1, Some(10));
        settle(&mut tracker);
        tracker.want_patch(1, 5);
        assert!(tracker.differs(&1));
        assert_eq!(settle(&mut tracker), [1]);
        assert_eq!(tracker.installed(&1), Some(15));
        tracker.want_patch(1, 5);
        tracker.want(1, Some(15));
        assert!(tracker.is_settled());
    }

    #[test]
    fn a_key_found_in_the_kernel_and_not_wanted_is_deleted() {
        let mut tracker = Tracker::default();
        tracker.observe([(1, 10), (2, 20)].into_iter().collect());
        tracker.want(1, Some(10));
        tracker.want(2, None);
        assert_eq!(settle(&mut tracker), [2]);
        assert_eq!(tracker.installed(&2), None);
    }

    proptest! {
        #[test]
        fn settling_makes_installed_what_was_wanted_last(
            wants in proptest::collection::vec((0u8..8, proptest::option::of(0u8..4), any::<bool>()), 0..60)
        ) {
            let mut tracker = Tracker::default();
            let mut model = std::collections::HashMap::new();
            for (key, value, settle_now) in wants {
                tracker.want(key, value);
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
                if settle_now {
                    settle(&mut tracker);
                    prop_assert!(tracker.is_settled());
                }
            }
            settle(&mut tracker);
            for key in 0..8 {
                prop_assert_eq!(tracker.installed(&key), model.get(&key).copied());
            }
            prop_assert!(tracker.is_settled());
        }
    }
}
