//! Services waiting for their update.

use std::collections::VecDeque;

use ahash::HashMap;

use crate::model::{Extent, ObjectName};

/// The extent of each waiting service once. Their order is in two lanes and a backlog, which may
/// name a service again.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: HashMap<ObjectName, Extent>,
    /// Services of each lane, in order. A service that was already taken, or is in both lanes, is
    /// skipped the second time.
    lanes: [VecDeque<ObjectName>; 2],
    /// Services to be added to the slow lane later, unordered: there may be very many.
    backlog: VecDeque<ObjectName>,
}

/// Services moved from the backlog at once; takes a few milliseconds at most.
const ADDED: usize = 1_024;

/// The priority of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Small changes: taken before all of the slow lane, however long that waits.
    Fast,
    /// Large changes.
    Slow,
}

/// The size of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeSize {
    /// Few services: they do not wait for those of a large change.
    Small,
    /// Many services.
    Large,
}

impl ChangeSize {
    pub(super) fn of(services: usize) -> Self {
        if services <= SMALL_CHANGE { Self::Small } else { Self::Large }
    }
}

/// Maximum number of services in a small change, which does not wait behind a large one. Small and
/// large changes use separate pieces.
pub(super) const SMALL_CHANGE: usize = 256;

impl Queue {
    /// Adds services that were touched together.
    pub(super) fn add(&mut self, services: impl ExactSizeIterator<Item = (ObjectName, Extent)>) {
        let lane = match ChangeSize::of(services.len()) {
            ChangeSize::Small => Lane::Fast,
            ChangeSize::Large => Lane::Slow,
        };
        self.add_to(lane, services);
    }

    pub(super) fn add_to(
        &mut self,
        lane: Lane,
        services: impl Iterator<Item = (ObjectName, Extent)>,
    ) {
        for (name, extent) in services {
            let is_new = extent.join(&mut self.waiting, name.clone());
            if is_new || lane == Lane::Fast {
                self.lanes[lane as usize].push_back(name);
            }
        }
    }

    /// Adds services after all others.
    pub(super) fn add_last(&mut self, services: impl IntoIterator<Item = ObjectName>) {
        self.backlog.extend(services);
    }

    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Puts a service first in a lane, to be updated as a whole.
    pub(super) fn put_first(&mut self, lane: Lane, name: ObjectName) {
        self.waiting.insert(name.clone(), Extent::Whole);
        self.lanes[lane as usize].push_front(name);
    }

    /// Returns the lane of the next service.
    pub(super) fn next_lane(&mut self) -> Option<Lane> {
        for lane in [Lane::Fast, Lane::Slow] {
            let names = &mut self.lanes[lane as usize];
            while let Some(name) = names.front() {
                if self.waiting.contains_key(name) {
                    return Some(lane);
                }
                names.pop_front();
            }
        }
        self.has_backlog().then_some(Lane::Slow)
    }

    /// Takes the next service, with the extent of its update.
    pub(super) fn take(&mut self) -> Option<(ObjectName, Extent)> {
        if self.waiting.is_empty() && self.has_backlog() {
            let services: Vec<_> = self.backlog.drain(..self.backlog.len().min(ADDED)).collect();
            self.add_to(Lane::Slow, services.into_iter().map(|name| (name, Extent::Whole)));
        }
        for lane in &mut self.lanes {
            while let Some(name) = lane.pop_front() {
                if let Some(extent) = self.waiting.remove(&name) {
                    return Some((name, extent));
                }
            }
        }
        self.shrink();
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.backlog.is_empty()
    }

    fn shrink(&mut self) {
        self.waiting.shrink_to(SMALL_CHANGE);
        self.lanes.iter_mut().for_each(|lane| lane.shrink_to(SMALL_CHANGE));
        self.backlog.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use ahash::HashSet;

    use super::*;

    fn services(
        range: std::ops::Range<usize>,
    ) -> impl ExactSizeIterator<Item = (ObjectName, Extent)> {
        names(range).into_iter().map(|name| (name, Extent::Whole))
    }

    fn names(range: std::ops::Range<usize>) -> HashSet<ObjectName> {
        range.map(|n| ObjectName::namespaced("default", &n.to_string())).collect()
    }

    fn rest(queue: &mut Queue) -> Vec<ObjectName> {
        std::iter::from_fn(|| queue.take()).map(|(name, _)| name).collect()
    }

    #[test]
    fn a_small_change_comes_before_a_large_one_and_each_service_once() {
        let mut queue = Queue::default();
        queue.add(services(0..1000));
        queue.add(services(500..501));
        queue.add(services(1000..1001));
        let small: Vec<_> = [500..501, 1000..1001].into_iter().flat_map(names).collect();
        let mut all = rest(&mut queue);
        assert_eq!(all[..2], small);
        let length = all.len();
        all.sort();
        all.dedup();
        assert_eq!((length, all.len()), (1001, 1001));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_service_with_a_rest_to_do_comes_first_in_its_lane() {
        let mut queue = Queue::default();
        queue.add_to(Lane::Slow, services(0..5));
        queue.put_first(Lane::Slow, ObjectName::namespaced("default", "7"));
        assert_eq!(rest(&mut queue)[0].as_str(), "default/7");
    }
}
