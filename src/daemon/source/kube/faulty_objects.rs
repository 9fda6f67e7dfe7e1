//! The objects of a resource that have problems, so that the end of their problems is reported.

use ahash::HashSet;
use engine::model::ObjectName;

/// Objects whose last version has problems, and those of them that the present list contained.
#[derive(Debug, Default)]
pub(super) struct FaultyObjects {
    present: HashSet<ObjectName>,
    listed: HashSet<ObjectName>,
}

impl FaultyObjects {
    /// Returns whether no object has problems.
    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Records a version of an object with problems.
    pub(super) fn add(&mut self, name: &ObjectName) {
        self.listed.insert(name.clone());
        self.present.insert(name.clone());
    }

    /// Records a version of an object without problems, or its deletion; returns whether it had
    /// problems.
    pub(super) fn remove(&mut self, name: &ObjectName) -> bool {
        self.present.remove(name)
    }

    /// Begins a list.
    pub(super) fn begin_list(&mut self) {
        self.listed.clear();
    }

    /// Ends a list; returns the objects with problems that it did not contain.
    pub(super) fn end_list(&mut self) -> Vec<ObjectName> {
        let listed = std::mem::take(&mut self.listed);
        self.present.extract_if(|name| !listed.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_end_with_a_correction_a_deletion_or_a_list_without_the_object() {
        let names = ["a/one", "a/two", "a/three"].map(ObjectName::written);
        let mut faulty = FaultyObjects::default();
        assert!(!faulty.remove(&names[0]));
        names.iter().for_each(|name| faulty.add(name));
        assert!(faulty.remove(&names[0]) && !faulty.is_empty());
        faulty.begin_list();
        faulty.add(&names[1]);
        assert_eq!(faulty.end_list(), [names[2].clone()]);
        assert!(faulty.remove(&names[1]) && faulty.is_empty());
    }
}
