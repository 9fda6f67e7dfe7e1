//! The services that wait for a frontend of another service.
//!
//! Anyone who can write Services can let thousands of them claim one frontend. So every method
//! takes logarithmic time: none iterates the services.

use std::collections::BTreeSet;

use ahash::HashMap;

use crate::model::ObjectName;

/// Whether the address of a claim is not the cluster IP of the claimant, then its age and name. The
/// lowest wins.
pub(super) type Precedence = (bool, Age);

/// Creation time and name of a service.
pub(super) type Age = (i64, ObjectName);

/// The services that wait for a frontend, in the order of their precedence.
///
/// Each has the precedence of its last claim, or of the last time it was the first. A service whose
/// precedence changes claims again later, so a lower one may be missing until then.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    ordered: BTreeSet<Precedence>,
    /// The precedence of each service in `ordered`, without its name.
    precedences: HashMap<ObjectName, (bool, i64)>,
}

impl Waiting {
    /// Adds a service, or changes its precedence.
    pub(super) fn insert(&mut self, precedence: Precedence) {
        let (is_other, (created, name)) = &precedence;
        self.remove(name);
        self.precedences.insert(name.clone(), (*is_other, *created));
        self.ordered.insert(precedence);
    }

    /// Removes a service; returns whether it was there.
    pub(super) fn remove(&mut self, name: &ObjectName) -> bool {
        let Some((is_other, created)) = self.precedences.remove(name) else { return false };
        self.ordered.remove(&(is_other, (created, name.clone())))
    }

    /// Returns the first service with its precedence, which `precedence` returns at present.
    ///
    /// A service that has become younger moves back: once for each change of a service.
    pub(super) fn first(
        &mut self,
        precedence: impl Fn(&ObjectName) -> Precedence,
    ) -> Option<Precedence> {
        loop {
            let (_, (_, name)) = self.ordered.first()?;
            let current = precedence(name);
            if self.ordered.first() == Some(&current) {
                return Some(current);
            }
            self.insert(current);
        }
    }

    pub(super) fn contains(&self, name: &ObjectName) -> bool {
        self.precedences.contains_key(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordered.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.ordered.len(), self.precedences.len());
        self.ordered.len()
    }
}
