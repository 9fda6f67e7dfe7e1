//! Services that wait to be rendered.

use std::collections::VecDeque;

use ahash::HashSet;

use crate::diff::Lane;
use crate::model::ObjectName;

/// Each service once, those of small changes apart.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: HashSet<ObjectName>,
    /// Services of each lane in the order in which they were touched. One that was rendered
    /// meanwhile, or waits in both lanes, no longer counts the second time.
    queues: [VecDeque<ObjectName>; 2],
}

/// So many services touched together are a small change, which does not wait behind a large one:
/// they fill about half a transaction, and the other half is for the large change.
pub(super) const SMALL_CHANGE: usize = 256;

impl Backlog {
    /// Adds services that were touched together.
    pub(super) fn add(&mut self, names: impl ExactSizeIterator<Item = ObjectName>) {
        let lane = if names.len() <= SMALL_CHANGE { Lane::Fast } else { Lane::Slow };
        self.add_to(lane, names);
    }

    /// Adds services to a lane.
    pub(super) fn add_to(&mut self, lane: Lane, names: impl Iterator<Item = ObjectName>) {
        for name in names {
            let is_new = self.waiting.insert(name.clone());
            if is_new || lane == Lane::Fast {
                self.queues[lane as usize].push_back(name);
            }
        }
    }

    /// The next service of a lane to render.
    pub(super) fn next(&mut self, lane: Lane) -> Option<ObjectName> {
        while let Some(name) = self.queues[lane as usize].pop_front() {
            if self.waiting.remove(&name) {
                return Some(name);
            }
        }
        self.release_memory();
        None
    }

    /// After a large change its room is given back.
    fn release_memory(&mut self) {
        self.waiting.shrink_to(SMALL_CHANGE);
        self.queues.iter_mut().for_each(|queue| queue.shrink_to(SMALL_CHANGE));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<usize>) -> HashSet<ObjectName> {
        range.map(|n| ObjectName::namespaced("default", &n.to_string())).collect()
    }

    fn rest(backlog: &mut Backlog, lane: Lane) -> Vec<ObjectName> {
        std::iter::from_fn(|| backlog.next(lane)).collect()
    }

    #[test]
    fn a_small_change_comes_before_a_large_one_and_each_service_once() {
        let mut backlog = Backlog::default();
        backlog.add(names(0..1000).into_iter());
        backlog.add(names(500..501).into_iter());
        backlog.add(names(1000..1001).into_iter());
        let small: Vec<_> = [500..501, 1000..1001].into_iter().flat_map(names).collect();
        assert_eq!(rest(&mut backlog, Lane::Fast), small);
        let large = rest(&mut backlog, Lane::Slow);
        assert_eq!((large.len(), large.into_iter().collect::<HashSet<_>>().len()), (999, 999));
        assert!(backlog.is_empty());
    }
}
