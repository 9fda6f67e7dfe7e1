//! The table in which a hash of a packet's source finds its endpoint.
//!
//! It is filled as in section 3.4 of "Maglev: A Fast and Reliable Software Network Load Balancer"
//! (NSDI 2016). Each endpoint prefers slots in an order of its own, and endpoints take the first
//! free slot of their order in turn. With weights, an endpoint takes a slot in a part of its turns:
//! its weight divided by the highest weight.
//!
//! So the table depends on the set of endpoints and their weights only, on every node and after any
//! history. The removal of an endpoint leaves most slots of the others unchanged.

use crate::model::Weight;
use crate::ruleset::number::TableSize;
use crate::stable_hash;

/// The largest number of endpoints for which each table size, except the largest, is used.
///
/// More slots give more even shares and move fewer clients when an endpoint is removed. Both matter
/// most with few endpoints. Each slot takes kernel memory.
const MOST: [usize; 3] = [5, 20, 160];

/// Returns the size of the table for `endpoints` endpoints.
pub(crate) fn size_for(endpoints: usize) -> TableSize {
    let mut sizes = TableSize::ALL.into_iter().zip(MOST);
    let enough = sizes.find(|(_, most)| endpoints <= *most);
    enough.map_or(TableSize::LARGEST, |(size, _)| size)
}

/// Returns the size of the table for `endpoints` endpoints if it may have at most `most` slots;
/// `None` if no such table holds all of them.
pub(crate) fn size_within(endpoints: usize, most: u32) -> Option<TableSize> {
    let largest = size_for(endpoints);
    let mut sizes = TableSize::ALL.into_iter().filter(|size| *size <= largest);
    let holds_all = |size: &TableSize| size.slots() as usize >= endpoints && size.slots() <= most;
    sizes.rfind(holds_all)
}

/// Fills a table; returns the position of the endpoint in each slot.
///
/// `endpoints` are the [hashes](stable_hash) of distinct endpoints in an order that all nodes
/// share, at most as many as slots. `weights` has the weight of each, above 0.
pub(crate) fn fill(endpoints: &[u64], weights: Option<&[Weight]>, size: TableSize) -> Box<[u16]> {
    let mut slots = vec![FREE; size.slots() as usize].into_boxed_slice();
    let mut orders: Vec<_> = endpoints.iter().map(|hash| Order::of(*hash, size)).collect();
    let weight_of = |i: usize| weights.and_then(|it| it.get(i)).map_or(1, |it| u32::from(*it));
    let most = (0..endpoints.len()).map(weight_of).max().unwrap_or(0);
    let mut free = if most == 0 { 0 } else { slots.len() };
    while free > 0 {
        for (i, order) in orders.iter_mut().enumerate() {
            order.credit += weight_of(i);
            if order.credit < most {
                continue;
            }
            order.credit -= most;
            let slot = order.first(|slot| slots[slot] == FREE);
            // There are at most 65,521 slots, and no more endpoints: `i` is below `FREE`.
            slots[slot] = u16::try_from(i).unwrap_or(FREE);
            free -= 1;
            if free == 0 {
                break;
            }
        }
    }
    slots
}

/// The value of a free slot.
const FREE: u16 = u16::MAX;

/// The slots in an endpoint's order of preference: every `skip`-th from a first one. The number of
/// slots is prime, so the order covers all slots.
struct Order {
    next: u32,
    skip: u32,
    slots: u32,
    /// The endpoint takes a slot when this reaches the highest weight.
    credit: u32,
}

impl Order {
    fn of(hash: u64, size: TableSize) -> Self {
        let slots = size.slots();
        let below = |hash: u64, limit: u32| u32::try_from(hash % u64::from(limit)).unwrap_or(0);
        let (next, skip) =
            (below(hash, slots), below(stable_hash::mix(hash ^ OTHER), slots - 1) + 1);
        Self { next, skip, slots, credit: 0 }
    }

    /// Returns the next free slot of the order.
    fn first(&mut self, is_free: impl Fn(usize) -> bool) -> usize {
        loop {
            let slot = self.next as usize;
            self.next = (self.next + self.skip) % self.slots;
            if is_free(slot) {
                return slot;
            }
        }
    }
}

/// Makes the second hash of an endpoint independent of the first.
const OTHER: u64 = 0x6d61_676c_6576_3135;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, Ipv4Addr};
    use std::num::NonZeroU16;

    use super::*;
    use crate::model::Target;
    use crate::stable_hash::of_target;

    const PORT: NonZeroU16 = NonZeroU16::new(8080).unwrap();

    fn endpoints(count: u32) -> Vec<Target> {
        let address = |i: u32| IpAddr::from(Ipv4Addr::from(0x0af4_0000 + i));
        (0..count).map(|i| Target { address: address(i), port: PORT }).collect()
    }

    fn hashes(endpoints: &[Target]) -> Vec<u64> {
        endpoints.iter().map(of_target).collect()
    }

    fn table(endpoints: &[Target], size: TableSize) -> Vec<Target> {
        fill(&hashes(endpoints), None, size).iter().map(|i| endpoints[usize::from(*i)]).collect()
    }

    fn slots_of(table: &[u16], endpoint: u16) -> usize {
        table.iter().filter(|it| **it == endpoint).count()
    }

    #[test]
    fn a_table_is_full_and_even_to_one_slot() {
        for count in [2, 5, 6, 20, 21, 160, 161, 1_000, 5_000] {
            let size = size_for(count as usize);
            let table = fill(&hashes(&endpoints(count)), None, size);
            assert_eq!(table.len(), size.slots() as usize);
            let fewest = table.len() / count as usize;
            for endpoint in 0..u16::try_from(count).unwrap() {
                let slots = slots_of(&table, endpoint);
                assert!(slots == fewest || slots == fewest + 1, "{endpoint} of {count}: {slots}");
            }
        }
        assert!(fill(&[], None, TableSize::ALL[0]).iter().all(|slot| *slot == FREE));
    }

    #[test]
    fn shares_follow_weights() {
        let weights = [1, 3, 10, 100, 250];
        let table = fill(&hashes(&endpoints(5)), Some(&weights), TableSize::ALL[2]);
        let all: u32 = weights.iter().map(|it| u32::from(*it)).sum();
        for (i, weight) in (0..).zip(weights) {
            let desired = table.len() as f64 * f64::from(weight) / f64::from(all);
            let found = slots_of(&table, i) as f64;
            assert!((desired - found).abs() < 2.0, "{weight}: {found} instead of {desired:.1}");
        }
        let even = fill(&hashes(&endpoints(5)), Some(&[7; 5]), TableSize::ALL[2]);
        assert_eq!(even, fill(&hashes(&endpoints(5)), None, TableSize::ALL[2]));
    }

    /// Returns the share of the other endpoints' slots that change when one endpoint is removed:
    /// the worst of 20 cases.
    fn disruption(count: u32) -> f64 {
        let all = endpoints(count);
        let size = size_for(count as usize);
        let before = table(&all, size);
        let worst = (0..20).map(|i| {
            let gone = all[(i * count / 20) as usize];
            let rest: Vec<_> = all.iter().copied().filter(|it| *it != gone).collect();
            let after = table(&rest, size);
            let pairs = before.iter().zip(&after).filter(|(was, _)| **was != gone);
            let moved = pairs.filter(|(was, is)| was != is).count();
            moved as f64 / before.len() as f64
        });
        worst.fold(0.0, f64::max)
    }

    #[test]
    fn an_endpoint_that_goes_moves_few_slots_of_others() {
        for (count, most) in [
            (3, 0.01),
            (5, 0.04),
            (6, 0.02),
            (10, 0.04),
            (20, 0.05),
            (21, 0.02),
            (100, 0.04),
            (160, 0.03),
            (161, 0.01),
        ] {
            let moved = disruption(count);
            assert!(moved > 0.0 && moved < most, "{count} endpoints: {moved}");
        }
    }

    /// Other tables would move all clients when another version of this program starts.
    #[test]
    fn tables_are_those_of_every_other_version() {
        let three = fill(&hashes(&endpoints(3)), None, TableSize::ALL[0]);
        assert_eq!(three[..16], [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1, 1]);
        let many = fill(&hashes(&endpoints(5_000)), None, TableSize::LARGEST);
        assert_eq!(many[..6], [3_569, 3_942, 1_252, 3_961, 554, 3_416]);
    }

    #[test]
    fn the_order_of_an_endpoint_has_every_slot() {
        for size in TableSize::ALL {
            let mut order = Order::of(hashes(&endpoints(1))[0], size);
            let all: BTreeSet<_> = (0..size.slots()).map(|_| order.first(|_| true)).collect();
            assert_eq!(all.len(), size.slots() as usize);
        }
    }
}
