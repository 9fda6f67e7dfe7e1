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
    /// The number of another name.
    Other(u32),
}

/// Most bytes of a suffix. Those of Kubernetes have 5.
const SUFFIX: usize = 11;

/// Names of slices, of which those that are not after their service are stored.
#[derive(Debug, Default)]
pub(super) struct SliceNames {
    others: HashMap<ObjectName, Place>,
    /// No two slices in use have the same number: there is no memory for as many as there are.
    last: u32,
}

#[derive(Debug)]
struct Place {
    service: ObjectName,
    number: u32,
}

impl SliceName {
    fn after(service: &ObjectName, slice: &ObjectName) -> Option<Self> {
        let (prefix, suffix) = slice.as_str().rsplit_once('-')?;
        (prefix == service.as_str()).then(|| Self::suffix(suffix)).flatten()
    }

    fn suffix(text: &str) -> Option<Self> {
        let mut suffix = [0; SUFFIX];
        suffix.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.contains(['\0', '/'])).then_some(Self::Suffix(suffix))
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
        if let Some(name) = SliceName::after(service, slice) {
            self.remove(slice);
            return name;
        }
        if let Some(place) = self.others.get_mut(slice) {
            place.service = service.clone();
            return SliceName::Other(place.number);
        }
        self.last = self.last.wrapping_add(1);
        let place = Place { service: service.clone(), number: self.last };
        self.others.insert(slice.clone(), place);
        SliceName::Other(self.last)
    }

    pub(super) fn remove(&mut self, slice: &ObjectName) {
        if !self.others.is_empty() {
            self.others.remove(slice);
        }
    }

    /// Returns the only service that may have a slice of this name, and its name there.
    pub(super) fn place<'a>(&'a self, slice: &'a ObjectName) -> Option<(&'a str, SliceName)> {
        if let Some(Place { service, number }) = self.others.get(slice) {
            return Some((service.as_str(), SliceName::Other(*number)));
        }
        let (service, suffix) = slice.as_str().rsplit_once('-')?;
        Some((service, SliceName::suffix(suffix)?))
    }

    /// Returns the names of slices that are not named after their service.
    pub(super) fn of(&self, others: &HashSet<SliceName>) -> impl Iterator<Item = &ObjectName> {
        let places = self.others.iter();
        let asked = places.filter(|(_, place)| others.contains(&SliceName::Other(place.number)));
        asked.map(|(name, _)| name)
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
