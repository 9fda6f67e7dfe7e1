//! Packets that our rules rejected or dropped, by family and reason.

use std::collections::BTreeMap;

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

/// Sums over successive reads. They never decrease: the rule that replaces another one begins at
/// zero, and so the sum grows by its count.
#[derive(Debug, Default)]
pub struct RefusalSums {
    last: RefusedPackets,
    sums: RefusedPackets,
}

impl RefusalSums {
    /// Adds the packets since the last read.
    pub fn add(&mut self, now: RefusedPackets) {
        for (key, counter) in &now {
            let last = self.last.get(key).copied().unwrap_or_default();
            *self.sums.entry(*key).or_default() += counter.since(last);
        }
        self.last = now;
    }

    /// Returns the sums.
    pub fn sums(&self) -> &RefusedPackets {
        &self.sums
    }
}

#[cfg(test)]
mod tests {
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
}
