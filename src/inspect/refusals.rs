//! Packets that our rules rejected or dropped, by family and reason, and by service.

use std::collections::{BTreeMap, BTreeSet};

use engine::model::Target;
use engine::ruleset::Refusal;
use nft::{Counter, Family};

use super::tables::OurTable;

/// Counts by family and reason; absent for a reason whose rule does not exist.
pub type RefusedPackets = BTreeMap<(Family, Refusal), Counter>;

/// Returns what the rules of the tables have counted since they were added.
pub fn refused_packets(tables: &[OurTable]) -> RefusedPackets {
    let mut found = RefusedPackets::new();
    for table in tables {
        for (reason, counter) in table.contents.rules.iter().filter_map(Refusal::counted) {
            *found.entry((table.family, reason)).or_default() += counter;
        }
    }
    found
}

/// Sums over successive reads. They never decrease: the rule or element that replaces another one
/// begins at zero, and so the sum grows by its count.
#[derive(Debug)]
pub struct CounterSums<Source, Group> {
    last: BTreeMap<Source, Counter>,
    sums: BTreeMap<Group, Counter>,
}

/// Sums of [`refused_packets`].
pub type RefusalSums = CounterSums<(Family, Refusal), (Family, Refusal)>;

/// Packets that were answered with RST because their endpoint is gone: by service, from each
/// endpoint.
pub type ResetSums = CounterSums<(Box<str>, Target), Box<str>>;

impl<Source, Group> Default for CounterSums<Source, Group> {
    fn default() -> Self {
        Self { last: BTreeMap::new(), sums: BTreeMap::new() }
    }
}

impl<Source: Ord, Group: Ord> CounterSums<Source, Group> {
    /// Returns the sums.
    pub fn sums(&self) -> &BTreeMap<Group, Counter> {
        &self.sums
    }

    /// Adds the packets since the last read to the group of their source.
    fn add_by(&mut self, now: BTreeMap<Source, Counter>, group: impl Fn(&Source) -> Group) {
        for (source, counter) in &now {
            let last = self.last.get(source).copied().unwrap_or_default();
            *self.sums.entry(group(source)).or_default() += counter.since(last);
        }
        self.last = now;
    }
}

impl RefusalSums {
    /// Adds the packets since the last read.
    pub fn add(&mut self, now: RefusedPackets) {
        self.add_by(now, |key| *key);
    }
}

impl ResetSums {
    /// Adds the packets since the last read. Forgets services without an ended endpoint. A torn read
    /// may lack endpoints that are there: they count as before.
    pub fn add(&mut self, mut now: BTreeMap<(Box<str>, Target), Counter>, is_whole: bool) {
        for (endpoint, counter) in self.last.iter().filter(|_| !is_whole) {
            now.entry(endpoint.clone()).or_insert(*counter);
        }
        let present: BTreeSet<_> = now.keys().map(|(service, _)| service.clone()).collect();
        self.add_by(now, |(service, _)| service.clone());
        self.sums.retain(|service, _| present.contains(service));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    #[test]
    fn a_sum_grows_also_when_its_rule_is_replaced_or_gone_for_a_while() {
        let key = (Family::Ip, Refusal::SourceRange);
        let mut sums = RefusalSums::default();
        for (packets, expected) in
            [(Some(5), 5), (Some(9), 9), (Some(2), 11), (None, 11), (Some(3), 14)]
        {
            let counter = |packets| Counter { packets, bytes: 60 * packets };
            sums.add(packets.map(|it| (key, counter(it))).into_iter().collect());
            assert_eq!(sums.sums()[&key], counter(expected));
        }
    }

    #[test]
    fn resets_of_a_service_grow_while_any_of_its_endpoints_is_ended() {
        let ended = |last, packets| {
            let port = NonZeroU16::new(8080).unwrap();
            let endpoint = Target { address: [10, 244, 1, last].into(), port };
            (("default/web".into(), endpoint), Counter { packets, bytes: 0 })
        };
        let mut sums = ResetSums::default();
        let reads = [
            (vec![ended(5, 3), ended(6, 1)], true, Some(4)),
            (vec![ended(5, 4)], false, Some(5)),
            (vec![ended(6, 4)], true, Some(8)),
            (vec![], false, Some(8)),
            (vec![ended(5, 2), ended(6, 4)], true, Some(10)),
            (vec![], true, None),
            (vec![ended(5, 1)], true, Some(1)),
        ];
        for (now, is_whole, expected) in reads {
            sums.add(now.into_iter().collect(), is_whole);
            assert_eq!(sums.sums().get("default/web").map(|it| it.packets), expected);
        }
    }
}
