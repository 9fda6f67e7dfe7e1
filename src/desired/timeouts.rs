//! How long services with session affinity remember their clients: what each is granted.

use std::collections::BTreeMap;
use std::ops::Bound;

use ahash::HashMap;

use crate::model::ObjectName;

/// Different timeouts that services have at once. Each has two chains and a set of its own in both
/// tables and a rule that packets pass, so there are to be few of them.
const LIMIT: usize = 64;

/// The timeout that each service with affinity has, in seconds: the one it asks for, if there are
/// not too many different ones.
#[derive(Debug, Default)]
pub(super) struct GrantedTimeouts {
    by_service: HashMap<ObjectName, u32>,
    /// How many services have each.
    services: BTreeMap<u32, usize>,
}

impl GrantedTimeouts {
    /// What a service asks for: `None` if it has no affinity. Beyond [`LIMIT`] different timeouts
    /// it gets the next longer one that another service has, or the longest.
    pub(super) fn ask(&mut self, service: &ObjectName, seconds: Option<u32>) {
        if let Some(former) = self.by_service.remove(service)
            && let Some(count) = self.services.get_mut(&former)
        {
            *count -= 1;
            if *count == 0 {
                self.services.remove(&former);
            }
        }
        if let Some(seconds) = seconds {
            let granted = self.granted(seconds);
            self.by_service.insert(service.clone(), granted);
            *self.services.entry(granted).or_default() += 1;
        }
    }

    fn granted(&self, seconds: u32) -> u32 {
        if self.services.len() < LIMIT {
            return seconds;
        }
        let longer = self.services.range((Bound::Included(seconds), Bound::Unbounded)).next();
        longer.or(self.services.last_key_value()).map_or(seconds, |(seconds, _)| *seconds)
    }

    /// What a service has.
    pub(super) fn of(&self, service: &ObjectName) -> Option<u32> {
        self.by_service.get(service).copied()
    }

    /// All timeouts that services have, ascending.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.services.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(number: u32) -> ObjectName {
        ObjectName::namespaced("default", &number.to_string())
    }

    #[test]
    fn a_timeout_is_known_as_long_as_a_service_has_it() {
        let mut timeouts = GrantedTimeouts::default();
        timeouts.ask(&service(1), Some(60));
        timeouts.ask(&service(2), Some(60));
        timeouts.ask(&service(1), Some(90));
        assert_eq!(Vec::from_iter(timeouts.all()), [60, 90]);
        timeouts.ask(&service(2), None);
        assert_eq!((Vec::from_iter(timeouts.all()), timeouts.of(&service(2))), (vec![90], None));
    }

    #[test]
    fn of_too_many_timeouts_the_next_longer_one_is_taken() {
        let mut timeouts = GrantedTimeouts::default();
        for number in 1..=64 {
            timeouts.ask(&service(number), Some(number * 100));
        }
        timeouts.ask(&service(100), Some(150));
        timeouts.ask(&service(101), Some(80_000));
        assert_eq!(timeouts.of(&service(100)), Some(200));
        assert_eq!(timeouts.of(&service(101)), Some(6_400));
        timeouts.ask(&service(1), None);
        timeouts.ask(&service(100), Some(150));
        assert_eq!(timeouts.of(&service(100)), Some(150));
    }
}
