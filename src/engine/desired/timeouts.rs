//! Timeouts of session affinity.
//!
//! Each timeout in use has a number in routes and its own chains in both tables, so their number is
//! limited.

use std::collections::BTreeMap;
use std::ops::Bound;

use ahash::HashMap;

use crate::model::ObjectName;
use crate::ruleset::{affinity, number};

/// Maximum number of different timeouts at once.
const LIMIT: usize = 64;

/// The timeout of each service with affinity: the requested one, unless there are too many
/// different ones.
#[derive(Debug, Default)]
pub struct Timeouts {
    by_service: HashMap<ObjectName, u32>,
    /// Number of services for each timeout.
    services: BTreeMap<u32, usize>,
    /// Timeouts in use now or before, with their numbers.
    numbered: affinity::NumberedTimeouts,
}

/// The affinity timeout of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedTimeout {
    /// Its number in routes.
    pub number: number::Timeout,
    /// The timeout in seconds.
    pub seconds: u32,
}

impl Timeouts {
    /// Sets the timeout that a service requests, in seconds; `None` if it has no affinity. Beyond
    /// `LIMIT` different timeouts, the service gets the next longer one of another service, or the
    /// longest.
    pub fn request(&mut self, service: &ObjectName, seconds: Option<u32>) {
        // Most clusters have no affinity, and a removal hashes the name even then.
        if self.by_service.is_empty() && seconds.is_none() {
            return;
        }
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
        // 0 is for port ranges without affinity.
        if seconds == 0 || self.services.len() < LIMIT {
            return seconds;
        }
        let longer = self.services.range((Bound::Included(seconds), Bound::Unbounded)).next();
        longer.or(self.services.last_key_value()).map_or(seconds, |(seconds, _)| *seconds)
    }

    /// Returns the timeout of a service; `None` if it has no affinity, or its timeout has no
    /// number.
    pub fn of(&self, service: &ObjectName) -> Option<GrantedTimeout> {
        let seconds = *self.by_service.get(service)?;
        let mut numbered = self.numbered.iter();
        let (number, _) = numbered.find(|(_, known)| **known == seconds)?;
        Some(GrantedTimeout { number: *number, seconds })
    }

    /// Assigns a number to each timeout of a service; returns whether one was new.
    pub fn number_all(&mut self) -> bool {
        let known = self.numbered.len();
        for seconds in self.services.keys() {
            if self.numbered.values().any(|numbered| numbered == seconds) {
                continue;
            }
            if *seconds == 0 {
                self.numbered.insert(number::Timeout::NONE, 0);
                continue;
            }
            let mut numbers = (1..number::Timeout::LAST).filter_map(number::Timeout::new);
            if let Some(free) = numbers.find(|number| !self.numbered.contains_key(number)) {
                self.numbered.insert(free, *seconds);
            }
        }
        self.numbered.len() > known
    }

    /// Replaces the numbers by those in the kernel's tables, so that correct routes stay. Returns
    /// whether a number changed. If the tables differ, the first one counts.
    pub fn adopt(&mut self, found: impl Iterator<Item = affinity::NumberedTimeouts>) -> bool {
        let former = std::mem::take(&mut self.numbered);
        for (number, seconds) in found.flatten() {
            if !self.numbered.values().any(|numbered| *numbered == seconds) {
                self.numbered.entry(number).or_insert(seconds);
            }
        }
        self.number_all();
        self.numbered != former
    }

    /// Drops the timeouts of no service; returns whether there was one. No route may name them.
    pub fn forget_unused(&mut self) -> bool {
        let known = self.numbered.len();
        self.numbered.retain(|_, seconds| self.services.contains_key(seconds));
        self.numbered.len() < known
    }

    /// Returns the timeouts that tables need chains for.
    pub fn numbered(&self) -> &affinity::NumberedTimeouts {
        &self.numbered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(number: u32) -> ObjectName {
        ObjectName::namespaced("default", &number.to_string())
    }

    fn seconds(timeouts: &Timeouts, number: u32) -> Option<u32> {
        timeouts.of(&service(number)).map(|granted| granted.seconds)
    }

    fn all(timeouts: &Timeouts) -> Vec<(u32, u32)> {
        timeouts.numbered().iter().map(|(number, secs)| (number.bits() >> 8, *secs)).collect()
    }

    #[test]
    fn a_timeout_keeps_its_number_until_no_service_has_it_and_it_is_forgotten() {
        let mut timeouts = Timeouts::default();
        timeouts.request(&service(1), Some(60));
        timeouts.request(&service(2), Some(60));
        assert!(timeouts.number_all());
        timeouts.request(&service(1), Some(30));
        assert!(timeouts.number_all() && !timeouts.number_all());
        assert_eq!(all(&timeouts), [(1, 60), (2, 30)]);
        timeouts.request(&service(2), None);
        assert_eq!((seconds(&timeouts, 1), seconds(&timeouts, 2)), (Some(30), None));
        assert_eq!(all(&timeouts), [(1, 60), (2, 30)]);
        assert!(timeouts.forget_unused() && !timeouts.forget_unused());
        timeouts.request(&service(2), Some(90));
        timeouts.number_all();
        assert_eq!(all(&timeouts), [(1, 90), (2, 30)]);
    }

    #[test]
    fn numbers_found_in_the_kernel_stay() {
        let mut timeouts = Timeouts::default();
        timeouts.request(&service(1), Some(60));
        timeouts.request(&service(2), Some(90));
        timeouts.number_all();
        let number = |n| number::Timeout::new(n).unwrap();
        let found = [
            [(number(1), 30), (number(7), 60)].into(),
            [(number(7), 20), (number(8), 60), (number(9), 10)].into(),
        ];
        assert!(timeouts.adopt(found.into_iter()));
        assert_eq!(all(&timeouts), [(1, 30), (2, 90), (7, 60), (9, 10)]);
        assert!(!timeouts.adopt([timeouts.numbered().clone()].into_iter()));
        let granted = GrantedTimeout { number: number(7), seconds: 60 };
        assert_eq!(timeouts.of(&service(1)), Some(granted));
    }

    #[test]
    fn of_too_many_timeouts_the_next_longer_one_is_taken() {
        let mut timeouts = Timeouts::default();
        for number in 1..=64 {
            timeouts.request(&service(number), Some(number * 100));
        }
        timeouts.request(&service(100), Some(150));
        timeouts.request(&service(101), Some(80_000));
        timeouts.number_all();
        assert_eq!(seconds(&timeouts, 100), Some(200));
        assert_eq!(seconds(&timeouts, 101), Some(6_400));
        timeouts.request(&service(1), None);
        timeouts.request(&service(100), Some(150));
        timeouts.number_all();
        assert_eq!(seconds(&timeouts, 100), Some(150));
    }
}
