//! Services waiting for their update.
//!
//! They are taken in the order in which they came. A namespace that has used its part of a round
//! waits until the services of others are taken.

use std::collections::VecDeque;

use ahash::HashMap;

use crate::desired::DesiredService;
use crate::model::{Extent, ObjectName};

/// The extent of each waiting service once. Their order is in two lanes and a backlog, which may
/// name a service again.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: HashMap<ObjectName, Extent>,
    /// Services of each lane, in order. A service that was already taken, or is in both lanes, is
    /// skipped the second time.
    lanes: [VecDeque<ObjectName>; 2],
    /// A service with a remainder to do and what it should have, if nothing has touched it since: a
    /// large service is rendered once for all of its pieces.
    resumed: Option<(ObjectName, DesiredService)>,
    /// Services of each lane whose namespace has used its part of the round.
    deferred: [VecDeque<ObjectName>; 2],
    /// The work for each namespace in this round, and for all.
    work: HashMap<Box<str>, usize>,
    work_of_all: usize,
    /// Services to be added to the slow lane later, unordered: there may be very many.
    backlog: VecDeque<ObjectName>,
}

/// Services moved from the backlog at once; takes a few milliseconds at most.
const ADDED: usize = 1_024;

/// The part of a namespace in a round, in bytes of elements: half a millisecond in the kernel.
const PART: usize = 64 * 1024;

/// The work of a round, after which each namespace gets a new part. So none waits for ever.
const ROUND: usize = 16 * PART;

/// Services without a part that are passed over for one with a part. There may be very many, of one
/// namespace: they go to the end, and a new round begins.
const MOST_PASSED: usize = 64;

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
            self.resumed.take_if(|(resumed, _)| *resumed == name);
            let is_new = extent.join(&mut self.waiting, name.clone());
            if is_new || lane == Lane::Fast {
                self.lanes[lane as usize].push_back(name);
            }
        }
    }

    /// Adds services after all others.
    pub(super) fn add_last(&mut self, services: impl IntoIterator<Item = ObjectName>) {
        let known = self.backlog.len();
        self.backlog.extend(services);
        self.resumed.take_if(|_| self.backlog.len() > known);
    }

    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Puts a service first in a lane, to be updated as a whole.
    pub(super) fn put_first(&mut self, lane: Lane, name: ObjectName) {
        self.waiting.insert(name.clone(), Extent::Whole);
        self.lanes[lane as usize].push_front(name);
    }

    /// Adds the work for a service to that of its namespace, in bytes of elements, if any service
    /// waits.
    pub(super) fn charge(&mut self, service: &ObjectName, bytes: usize) {
        if self.waiting.is_empty() {
            return;
        }
        match self.work.get_mut(service.namespace()) {
            Some(work) => *work += bytes,
            None => drop(self.work.insert(service.namespace().into(), bytes)),
        }
        self.work_of_all += bytes;
        if self.work_of_all >= ROUND {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        (self.work_of_all, self.work) = (0, HashMap::default());
        for (lane, deferred) in self.lanes.iter_mut().zip(&mut self.deferred) {
            lane.append(deferred);
        }
    }

    /// Keeps what a service with a remainder should have, until something touches it.
    pub(super) fn resume(&mut self, name: ObjectName, rendered: DesiredService) {
        self.resumed = Some((name, rendered));
    }

    /// Returns what a service that was taken should have, if nothing has touched it since its last
    /// piece.
    pub(super) fn take_resumed(&mut self, name: &ObjectName) -> Option<DesiredService> {
        self.resumed.take_if(|(resumed, _)| resumed == name).map(|(_, rendered)| rendered)
    }

    /// Returns the lane of the next service, which is the first in it.
    pub(super) fn next_lane(&mut self) -> Option<Lane> {
        let mut passed = 0;
        for lane in [Lane::Fast, Lane::Slow] {
            while let Some(name) = self.lanes[lane as usize].front() {
                let is_waiting = self.waiting.contains_key(name);
                let has_part = self.work.get(name.namespace()).is_none_or(|work| *work < PART);
                if is_waiting && has_part {
                    return Some(lane);
                }
                if is_waiting && passed == MOST_PASSED {
                    self.begin_round();
                    return self.next_lane();
                }
                passed += usize::from(is_waiting);
                let first = self.lanes[lane as usize].pop_front();
                self.deferred[lane as usize].extend(first.filter(|_| is_waiting));
            }
        }
        if self.deferred.iter().any(|deferred| !deferred.is_empty()) {
            self.begin_round();
            return self.next_lane();
        }
        self.has_backlog().then_some(Lane::Slow)
    }

    /// Takes the next service, with the extent of its update.
    pub(super) fn take(&mut self) -> Option<(ObjectName, Extent)> {
        if self.waiting.is_empty() && self.has_backlog() {
            let services: Vec<_> = self.backlog.drain(..self.backlog.len().min(ADDED)).collect();
            self.add_to(Lane::Slow, services.into_iter().map(|name| (name, Extent::Whole)));
        }
        let name = self.next_lane().and_then(|lane| self.lanes[lane as usize].pop_front());
        let next = name.and_then(|name| self.waiting.remove(&name).map(|extent| (name, extent)));
        if next.is_none() {
            self.shrink();
        }
        next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.backlog.is_empty()
    }

    fn shrink(&mut self) {
        self.waiting.shrink_to(SMALL_CHANGE);
        self.lanes.iter_mut().for_each(|lane| lane.shrink_to(SMALL_CHANGE));
        self.deferred = Default::default();
        (self.work_of_all, self.work) = (0, HashMap::default());
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
    fn a_namespace_that_has_used_its_part_waits_for_others_but_not_for_ever() {
        let mut queue = Queue::default();
        let add = |queue: &mut Queue, namespace: &str, names: std::ops::Range<usize>| {
            let names = names.map(|n| ObjectName::namespaced(namespace, &n.to_string()));
            let services: Vec<_> = names.map(|name| (name, Extent::Whole)).collect();
            queue.add(services.into_iter());
        };
        let take = |queue: &mut Queue, bytes: usize| {
            let (name, _) = queue.take().unwrap();
            queue.charge(&name, bytes);
            name.as_str().to_owned()
        };
        add(&mut queue, "greedy", 0..9);
        add(&mut queue, "small", 0..1);
        assert_eq!(take(&mut queue, PART), "greedy/0");
        assert_eq!(take(&mut queue, 1), "small/0");
        assert_eq!(take(&mut queue, PART), "greedy/1", "no other namespace waits");
        add(&mut queue, "small", 1..3);
        assert_eq!(take(&mut queue, 1), "small/1");
        assert_eq!(take(&mut queue, ROUND), "small/2");
        assert_eq!(take(&mut queue, PART), "greedy/2", "a new round");
        add(&mut queue, "small", 3..20);
        let mut taken: Vec<_> = (0..17).map(|_| take(&mut queue, PART / 16)).collect();
        assert!(taken[..16].iter().all(|name| name.starts_with("small")), "{taken:?}");
        taken.extend(rest(&mut queue).into_iter().map(|name| name.as_str().to_owned()));
        assert_eq!(taken.len(), 23);
    }

    #[test]
    fn a_namespace_alone_waits_for_nothing_and_few_of_it_are_passed_over() {
        let mut queue = Queue::default();
        queue.add(services(0..1_000));
        let other = ObjectName::namespaced("other", "1");
        queue.add_to(Lane::Slow, [(other.clone(), Extent::Whole)].into_iter());
        let mut taken = 0;
        while let Some((name, _)) = queue.take() {
            queue.charge(&name, PART);
            assert!(queue.deferred[Lane::Slow as usize].len() <= MOST_PASSED + 1);
            if name == other {
                break;
            }
            taken += 1;
        }
        assert!(taken <= 1_000 / MOST_PASSED + 1, "{taken}");
        assert_eq!(rest(&mut queue).len(), 1_000 - taken);
    }

    #[test]
    fn a_service_with_a_rest_to_do_comes_first_in_its_lane() {
        let mut queue = Queue::default();
        queue.add_to(Lane::Slow, services(0..5));
        queue.put_first(Lane::Slow, ObjectName::namespaced("default", "7"));
        assert_eq!(rest(&mut queue)[0].as_str(), "default/7");
    }
}
