//! Services that wait to be rendered.

use std::collections::VecDeque;

use ahash::HashMap;

use crate::diff::Lane;
use crate::model::{Extent, ObjectName};

/// Each service once, those of small changes apart.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: HashMap<ObjectName, Extent>,
    /// Services of each lane in the order in which they were touched. One that was rendered
    /// meanwhile, or waits in both lanes, no longer counts the second time.
    queues: [VecDeque<ObjectName>; 2],
}

/// So many services touched together are a small change, which does not wait behind a large one:
/// they fill about half a transaction, and the other half is for the large change.
pub(super) const SMALL_CHANGE: usize = 256;

impl Backlog {
    /// Adds services that were touched together.
    pub(super) fn add(&mut self, services: impl ExactSizeIterator<Item = (ObjectName, Extent)>) {
        let lane = if services.len() <= SMALL_CHANGE { Lane::Fast } else { Lane::Slow };
        self.add_to(lane, services);
    }

    /// Adds services to a lane.
    pub(super) fn add_to(
        &mut self,
        lane: Lane,
        services: impl Iterator<Item = (ObjectName, Extent)>,
    ) {
        for (name, extent) in services {
            let is_new = extent.join(&mut self.waiting, name.clone());
            if is_new || lane == Lane::Fast {
                self.queues[lane as usize].push_back(name);
            }
        }
    }

    /// The next service of a lane to render, and how much of it.
    pub(super) fn next(&mut self, lane: Lane) -> Option<(ObjectName, Extent)> {
        while let Some(name) = self.queues[lane as usize].pop_front() {
            if let Some(extent) = self.waiting.remove(&name) {
                return Some((name, extent));
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

    fn rest(backlog: &mut Backlog, lane: Lane) -> Vec<ObjectName> {
        std::iter::from_fn(|| backlog.next(lane)).map(|(name, _)| name).collect()
    }

    #[test]
    fn a_small_change_comes_before_a_large_one_and_each_service_once() {
        let mut backlog = Backlog::default();
        backlog.add(services(0..1000));
        backlog.add(services(500..501));
        backlog.add(services(1000..1001));
        let small: Vec<_> = [500..501, 1000..1001].into_iter().flat_map(names).collect();
        assert_eq!(rest(&mut backlog, Lane::Fast), small);
        let large = rest(&mut backlog, Lane::Slow);
        assert_eq!((large.len(), large.into_iter().collect::<HashSet<_>>().len()), (999, 999));
        assert!(backlog.is_empty());
    }
}
