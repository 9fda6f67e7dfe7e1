//! Services that wait to be rendered.

use std::collections::VecDeque;

use ahash::HashSet;

use crate::model::ObjectName;

/// Each service once, in the order in which they are to be rendered.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: HashSet<ObjectName>,
    queue: VecDeque<ObjectName>,
}

/// So many services touched together are a small change, which does not wait behind a large one.
pub(super) const SMALL_CHANGE: usize = 16;

impl Backlog {
    /// Adds services that were touched together.
    pub(super) fn add(&mut self, names: impl ExactSizeIterator<Item = ObjectName>) {
        let is_small = names.len() <= SMALL_CHANGE;
        for name in names {
            let is_new = self.waiting.insert(name.clone());
            if is_small {
                self.queue.push_front(name);
            } else if is_new {
                self.queue.push_back(name);
            }
        }
    }

    /// The next service to render.
    pub(super) fn next(&mut self) -> Option<ObjectName> {
        while let Some(name) = self.queue.pop_front() {
            // A small change may have put it in front a second time.
            if self.waiting.remove(&name) {
                return Some(name);
            }
        }
        // After a large change its room is given back.
        self.waiting.shrink_to(SMALL_CHANGE);
        self.queue.shrink_to(SMALL_CHANGE);
        None
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

    #[test]
    fn a_small_change_comes_before_a_large_one_and_each_service_once() {
        let mut backlog = Backlog::default();
        backlog.add(names(0..100).into_iter());
        backlog.add(names(50..51).into_iter());
        let first = backlog.next().unwrap();
        assert_eq!(first.as_str(), "default/50");
        let rest: HashSet<_> = std::iter::from_fn(|| backlog.next()).collect();
        assert_eq!(rest.len(), 99);
        assert!(backlog.is_empty());
    }
}
