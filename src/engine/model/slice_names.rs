//! Names of slices beside those of their services.
//!
//! A controller names a slice after its service, with a dash and some letters. Such a name takes no
//! memory of its own, and the slice is found by it.

use ahash::{HashMap, HashSet};

use super::name::ObjectName;

/// The name of a slice among those of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SliceName {
    /// What follows the name of the service and a dash, and has no dash; filled with zeros.
    Suffix([u8; SUFFIX]),
    /// The number of another name, in an array because that needs no alignment.
    Other([u8; 8]),
}

/// Most bytes of a suffix. Those of Kubernetes have 5.
const SUFFIX: usize = 11;

/// Names of slices, of which those that are not after their service are stored.
#[derive(Debug, Default)]
pub(super) struct SliceNames {
    /// Each with its service and its name there.
    others: HashMap<ObjectName, (ObjectName, SliceName)>,
    last: u64,
}

impl SliceName {
    /// Returns the service that a slice seems to be named after, and its name there.
    fn of(slice: &ObjectName) -> Option<(&str, Self)> {
        let (service, text) = slice.as_str().rsplit_once('-')?;
        let mut suffix = [0; SUFFIX];
        suffix.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.contains(['\0', '/'])).then_some((service, Self::Suffix(suffix)))
    }

    /// Returns the full name; `None` for another name.
    pub(super) fn full(self, service: &ObjectName) -> Option<ObjectName> {
        let Self::Suffix(suffix) = self else { return None };
        let suffix = String::from_utf8_lossy(&suffix);
        let suffix = suffix.trim_end_matches('\0');
        Some(ObjectName::written(&format!("{service}-{suffix}")))
    }
}

impl SliceNames {
    /// Records that a slice is of this service; returns its name there.
    pub(super) fn put(&mut self, slice: &ObjectName, service: &ObjectName) -> SliceName {
        if let Some((prefix, name)) = SliceName::of(slice)
            && prefix == service.as_str()
        {
            self.remove(slice);
            return name;
        }
        let (of, name) = self.others.entry(slice.clone()).or_insert_with(|| {
            self.last += 1;
            (service.clone(), SliceName::Other(self.last.to_ne_bytes()))
        });
        *of = service.clone();
        *name
    }

    pub(super) fn remove(&mut self, slice: &ObjectName) {
        if !self.others.is_empty() {
            self.others.remove(slice);
        }
    }

    /// Returns the only service that may have a slice of this name, and its name there.
    pub(super) fn place<'a>(&'a self, slice: &'a ObjectName) -> Option<(&'a str, SliceName)> {
        let other = self.others.get(slice).map(|(service, name)| (service.as_str(), *name));
        other.or_else(|| SliceName::of(slice))
    }

    /// Returns the names of slices that are not named after their service.
    pub(super) fn of(&self, others: &HashSet<SliceName>) -> impl Iterator<Item = &ObjectName> {
        self.others.iter().filter(|(_, (_, name))| others.contains(name)).map(|(full, _)| full)
    }

    #[cfg(test)]
    pub(super) fn count_others(&self) -> usize {
        self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_found_by_their_names() {
        let name = |name| ObjectName::namespaced("my-team", name);
        let mut names = SliceNames::default();
        for (slice, service, is_named_after_it) in [
            ("web-abcde", "web", true),
            ("web-12345678901", "web", true),
            ("web-", "web", true),
            ("web-123456789012", "web", false),
            ("web-a\0", "web", false),
            ("web-eu-abcde", "web", false),
            ("web-eu-bcdef", "web-eu", true),
            ("web", "web", false),
            ("other-abcde", "web", false),
        ] {
            let (slice, service) = (name(slice), name(service));
            let put = names.put(&slice, &service);
            assert_eq!(names.place(&slice), Some((service.as_str(), put)), "{slice}");
            assert_eq!(put, names.put(&slice, &service), "{slice}");
            assert_eq!(put.full(&service), is_named_after_it.then_some(slice), "{service}");
        }
        assert_eq!(names.count_others(), 5);
    }

    #[test]
    fn a_slice_that_moves_has_one_place() {
        let (web, dns) = (ObjectName::written("default/web"), ObjectName::written("default/dns"));
        let slice = ObjectName::written("default/web-abcde");
        let mut names = SliceNames::default();
        let named_after_it = names.put(&slice, &web);
        let other = names.put(&slice, &dns);
        assert_eq!(names.place(&slice), Some(("default/dns", other)));
        assert_eq!(names.put(&slice, &web), named_after_it);
        assert_eq!(names.place(&slice), Some(("default/web", named_after_it)));
        assert_eq!(names.count_others(), 0);
    }

    #[test]
    fn a_name_without_a_dash_has_no_place_before_it_is_put() {
        // The dash of the namespace separates nothing.
        assert_eq!(SliceNames::default().place(&ObjectName::written("my-team/slice")), None);
    }
}
