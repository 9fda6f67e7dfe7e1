//! Shares of endpoints under scheduler `lc`, which follow their live connections.
//!
//! Pure functions. An endpoint with more connections than the others gets a smaller share of the
//! new ones. Shares are whole numbers, change by about half at most with each adjustment. Their sum
//! is constant while the endpoints stay the same.

use std::collections::BinaryHeap;

use super::weights::Weight;

/// Share of an endpoint relative to the others, from 1 to 64.
pub type Share = u8;

/// Share if all are equal; also the number of slots, except in very long lists.
pub const EVEN: Share = 8;

/// Largest share: eight times an even one.
pub(super) const MOST: Share = 64;

/// An endpoint with its live connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Live connections.
    pub live: u32,
    /// Weight by annotations, above 0.
    pub weight: Weight,
    /// Present share.
    pub share: Share,
}

/// Connections added to each endpoint and to their mean, so that a few do not count much.
const DAMPING: f64 = 2.0;

/// Slots of a list beyond which shares are rounded more coarsely.
const SLOTS: u64 = 8_192;

/// Fixed-point units per share.
const PARTS: i32 = 256;

/// Least difference of two endpoints that moves a share from one to the other. Below one share,
/// rounding would move shares back and forth.
const LEAST: i32 = PARTS * 3 / 2;

/// Least difference from an even share that ends the even state: half.
const LEAVES_EVEN: i32 = PARTS * EVEN as i32 / 2;

/// Largest difference from an even share that returns to the even state.
const RETURNS_TO_EVEN: i32 = PARTS;

/// Moves at most `limit` shares from endpoints with many connections to those with few. Returns the
/// number of shares moved.
pub fn adjust(loads: &mut [Load], limit: usize) -> usize {
    if loads.len() < 2 {
        return 0;
    }
    let is_even = are_even(loads.iter().map(|load| load.share));
    let mut desired = desired_shares(loads);
    let even = PARTS * i32::from(EVEN);
    let farthest = desired.iter().map(|target| (target - even).abs()).max().unwrap_or(0);
    if is_even && farthest < LEAVES_EVEN {
        return 0;
    }
    let least = if farthest <= RETURNS_TO_EVEN {
        desired.fill(even);
        0
    } else {
        LEAST
    };
    Move { limits: loads.iter().map(|load| limits(load.share)).collect(), loads, desired, least }
        .run(limit)
}

/// Returns whether all shares are [`EVEN`].
pub(super) fn are_even(mut shares: impl Iterator<Item = Share>) -> bool {
    shares.all(|share| share == EVEN)
}

/// Returns the number of slots of each endpoint, at least one: its share, multiplied by its weight
/// relative to the mean weight.
pub(super) fn slots(weights: Option<&[Weight]>, shares: &[Share]) -> Vec<Weight> {
    let scale = Scale::new(weights, shares.len());
    let slots = |(i, share): (usize, &Share)| {
        let exact = u64::from(*share) * scale.units(weights, i);
        let rounded = (exact + scale.all / 2) / scale.all;
        Weight::try_from(rounded).unwrap_or(Weight::MAX).max(1)
    };
    shares.iter().enumerate().map(slots).collect()
}

/// Returns shares for which [`slots`] returns `slots`, if there are any.
pub(super) fn shares_of(weights: Option<&[Weight]>, slots: &[u32]) -> Vec<Share> {
    let scale = Scale::new(weights, slots.len());
    let share = |(i, slots): (usize, &u32)| {
        let units = scale.units(weights, i).max(1);
        let rounded = (u64::from(*slots) * scale.all + units / 2) / units;
        Share::try_from(rounded).unwrap_or(MOST).clamp(1, MOST)
    };
    slots.iter().enumerate().map(share).collect()
}

/// The fraction by which a share is multiplied.
struct Scale {
    /// Numerator for an endpoint of weight 1.
    unit: u64,
    /// Denominator.
    all: u64,
}

impl Scale {
    fn new(weights: Option<&[Weight]>, endpoints: usize) -> Self {
        let count = (endpoints as u64).max(1);
        let even = u64::from(EVEN);
        let sum = match weights {
            Some(weights) => weights.iter().map(|it| u64::from(*it)).sum::<u64>().max(1),
            None => count,
        };
        Self { unit: count * (SLOTS / count).clamp(1, even), all: sum * even }
    }

    fn units(&self, weights: Option<&[Weight]>, i: usize) -> u64 {
        self.unit * weights.map_or(1, |weights| u64::from(weights.get(i).copied().unwrap_or(1)))
    }
}

/// Returns the share that each endpoint should have, in parts. Their mean is even, but for those
/// at a limit.
#[allow(clippy::cast_possible_truncation, reason = "clamped to the range of a share")]
fn desired_shares(loads: &[Load]) -> Vec<i32> {
    let count = loads.len() as f64;
    let mean_weight = loads.iter().map(|load| f64::from(load.weight.max(1))).sum::<f64>() / count;
    let mean = loads.iter().map(|load| f64::from(load.live)).sum::<f64>() / count;
    let desired = |load: &Load| {
        let live = f64::from(load.live) * mean_weight / f64::from(load.weight.max(1));
        ((mean + DAMPING) / (live + DAMPING)).powi(2)
    };
    let all: f64 = loads.iter().map(desired).sum();
    let even = f64::from(EVEN) * f64::from(PARTS);
    let most = f64::from(MOST) * f64::from(PARTS);
    let target = |load: &Load| (desired(load) * count / all * even).round();
    loads.iter().map(|load| target(load).clamp(f64::from(PARTS), most) as i32).collect()
}

/// Returns the least and the largest share after one adjustment.
fn limits(share: Share) -> (Share, Share) {
    let share = u16::from(share);
    let (least, largest) = (share * 2 / 3, (share * 3).div_ceil(2));
    let within = |share: u16| Share::try_from(share).unwrap_or(MOST).clamp(1, MOST);
    (within(least), within(largest))
}

/// One adjustment.
struct Move<'a> {
    loads: &'a mut [Load],
    /// Least and largest share of each endpoint.
    limits: Vec<(Share, Share)>,
    /// Share that each should have, in parts.
    desired: Vec<i32>,
    /// Smallest difference of two endpoints that moves a share.
    least: i32,
}

/// Endpoints with their distance from the target, largest first, and then the first ones.
type Ranking = BinaryHeap<(i32, std::cmp::Reverse<usize>)>;

impl Move<'_> {
    fn run(&mut self, limit: usize) -> usize {
        let places = || (0..self.loads.len()).map(std::cmp::Reverse);
        let mut givers: Ranking = places().map(|i| (self.excess(i.0), i)).collect();
        let mut takers: Ranking = places().map(|i| (-self.excess(i.0), i)).collect();
        let sum: usize = self.loads.iter().map(|load| usize::from(load.share)).sum();
        let desired = self.loads.len() * usize::from(EVEN);
        let mut moved = 0;
        // Added and removed endpoints changed the sum.
        for _ in desired..sum.min(desired.saturating_add(limit)) {
            moved += usize::from(self.take(&mut givers).is_some());
        }
        for _ in sum..desired.min(sum.saturating_add(limit)) {
            moved += usize::from(self.give(&mut takers).is_some());
        }
        while moved < limit {
            self.skip_limited(&mut givers, &mut takers);
            let (Some((excess, _)), Some((lack, _))) = (givers.peek(), takers.peek()) else {
                break;
            };
            if *excess <= 0 || *lack <= 0 || excess + lack <= self.least {
                break;
            }
            self.take(&mut givers);
            self.give(&mut takers);
            moved += 1;
        }
        moved
    }

    fn excess(&self, i: usize) -> i32 {
        i32::from(self.loads[i].share) * PARTS - self.desired[i]
    }

    /// Removes the endpoints at their limits from the tops.
    fn skip_limited(&self, givers: &mut Ranking, takers: &mut Ranking) {
        let share = |i: usize| self.loads[i].share;
        while givers.peek().is_some_and(|(_, i)| share(i.0) <= self.limits[i.0].0) {
            givers.pop();
        }
        while takers.peek().is_some_and(|(_, i)| share(i.0) >= self.limits[i.0].1) {
            takers.pop();
        }
    }

    /// Takes a share from the endpoint that has the most beyond its target.
    fn take(&mut self, givers: &mut Ranking) -> Option<()> {
        self.skip_limited(givers, &mut Ranking::new());
        let (excess, i) = givers.pop()?;
        self.loads[i.0].share -= 1;
        givers.push((excess - PARTS, i));
        Some(())
    }

    /// Gives a share to the endpoint that lacks most.
    fn give(&mut self, takers: &mut Ranking) -> Option<()> {
        self.skip_limited(&mut Ranking::new(), takers);
        let (lack, i) = takers.pop()?;
        self.loads[i.0].share += 1;
        takers.push((lack - PARTS, i));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loads(live: &[u32]) -> Vec<Load> {
        live.iter().map(|live| Load { live: *live, weight: 1, share: EVEN }).collect()
    }

    fn shares(loads: &[Load]) -> Vec<Share> {
        loads.iter().map(|load| load.share).collect()
    }

    /// Adjusts until nothing changes; returns the number of adjustments.
    #[track_caller]
    fn settle(loads: &mut [Load]) -> usize {
        (0..100).find(|_| adjust(loads, usize::MAX) == 0).expect("it settles")
    }

    #[test]
    fn a_crowded_endpoint_loses_shares_to_the_others_by_half_at_most_each_time() {
        let mut all = loads(&[30, 0, 0, 0]);
        let moved = adjust(&mut all, usize::MAX);
        assert_eq!((moved, shares(&all)), (3, vec![5, 9, 9, 9]));
        adjust(&mut all, usize::MAX);
        assert_eq!(shares(&all), [3, 10, 10, 9]);
        settle(&mut all);
        assert_eq!(shares(&all), [1, 11, 10, 10]);
        all.iter_mut().for_each(|load| load.live = 5);
        settle(&mut all);
        assert_eq!(shares(&all), [EVEN; 4]);
    }

    #[test]
    fn the_share_of_a_new_endpoint_grows_stepwise() {
        let mut all = loads(&[50, 50, 50, 50, 50, 50, 50, 50, 50, 0]);
        let mut seen = vec![EVEN];
        for _ in 0..20 {
            adjust(&mut all, usize::MAX);
            seen.push(all[9].share);
        }
        assert_eq!(seen[..5], [8, 12, 18, 27, 41]);
        assert!(seen.windows(2).all(|pair| pair[0] <= pair[1]), "{seen:?}");
        assert_eq!(seen.last(), Some(&64));
        assert_eq!(shares(&all)[..3], [1, 1, 2], "{all:?}");
    }

    #[test]
    fn weight_3_balances_at_three_times_the_connections() {
        let weighted = |live: [u32; 2]| {
            let load = |(live, weight)| Load { live, weight, share: EVEN };
            let mut all: Vec<_> = live.into_iter().zip([3, 1]).map(load).collect();
            settle(&mut all);
            shares(&all)
        };
        assert_eq!(weighted([30, 10]), [EVEN; 2]);
        let crowded = weighted([10, 10]);
        assert!(crowded[0] > EVEN && crowded[1] < EVEN, "{crowded:?}");
    }

    #[test]
    fn a_few_connections_leave_even_shares_alone() {
        for live in [&[0, 0, 0][..], &[1, 0, 0], &[100, 95, 105], &[1], &[]] {
            assert_eq!(adjust(&mut loads(live), usize::MAX), 0, "{live:?}");
        }
    }

    #[test]
    fn nearly_even_shares_return_to_even_ones() {
        let mut all = loads(&[20, 21, 19, 20]);
        for (load, share) in all.iter_mut().zip([9, 7, 8, 8]) {
            load.share = share;
        }
        settle(&mut all);
        assert_eq!(shares(&all), [EVEN; 4]);
    }

    #[test]
    fn slots_are_shares_times_weights_and_at_least_one() {
        assert_eq!(slots(None, &[8, 1, 64]), [8, 1, 64]);
        assert_eq!(slots(Some(&[3, 1]), &[8, 8]), [12, 4]);
        assert_eq!(slots(Some(&[1000, 1]), &[8, 8]), [16, 1]);
        assert_eq!(slots(None, &[]), Vec::<Weight>::new());
        assert_eq!(slots(Some(&[0, 0]), &[8, 8]), [1, 1]);
        let many = slots(None, &vec![EVEN; 20_000]);
        assert!(many.iter().all(|count| *count == 1));
        let sum: u64 = slots(None, &vec![EVEN; 3_000]).into_iter().map(u64::from).sum();
        assert_eq!(sum, 6_000);
    }

    proptest! {
        #[test]
        fn any_adjustment_is_bounded_damped_and_settles(
            start in proptest::collection::vec((0u32..5_000, 0u16..500, 1u8..=MOST), 0..40),
            limit in 0usize..60,
        ) {
            let load = |(live, weight, share)| Load { live, weight, share };
            let mut all: Vec<_> = start.into_iter().map(load).collect();
            let before = all.clone();
            let moved = adjust(&mut all, limit);
            prop_assert!(moved <= limit);
            let mut changed = 0;
            for (old, new) in before.iter().zip(&all) {
                let (least, largest) = limits(old.share);
                prop_assert!((least..=largest).contains(&new.share), "{old:?} {new:?}");
                prop_assert_eq!((old.live, old.weight), (new.live, new.weight));
                changed += usize::from(old.share.abs_diff(new.share));
            }
            prop_assert!(changed <= 2 * moved);
            settle(&mut all);
        }

        #[test]
        fn slots_of_recovered_shares_are_unchanged(
            all in proptest::collection::vec((1u16..60, 1u8..=MOST), 1..30),
            is_weighted: bool,
        ) {
            let (weights, shares): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            let weights = is_weighted.then_some(&*weights);
            let found = slots(weights, &shares);
            let counts: Vec<_> = found.iter().map(|it| u32::from(*it)).collect();
            prop_assert_eq!(slots(weights, &shares_of(weights, &counts)), found);
        }
    }
}
