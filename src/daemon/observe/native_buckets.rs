//! The buckets of native histograms: their bounds are powers of one base, and empty ones cost
//! nothing.
//!
//! The bucket at index `i` counts the values in `(base^(i - 1), base^i]`, where `base` is
//! `2^(2^-schema)`. The sum of all counts is the number of values. At most [`MAX_BUCKETS`] buckets
//! have counts. With one more value outside of these, every two adjacent buckets become one.

use std::f64::consts::SQRT_2;

/// Values up to this one are counted in the zero bucket (2^-128, as in Prometheus' Go client).
pub(super) const ZERO_THRESHOLD: f64 = f64::from_bits((1_023 - 128) << 52);

/// The limit of Kubernetes' components (k8s.io/component-base/metrics).
pub(super) const MAX_BUCKETS: usize = 160;

/// The schema of a histogram without values: eight buckets for each power of two, the first schema
/// whose base is below the factor 1.1 of Kubernetes' components.
const FIRST_SCHEMA: i32 = 3;

/// The coarsest schema that Prometheus accepts. All positive numbers of type `f64` are in 132 of
/// its buckets, so the limit always holds.
const LAST_SCHEMA: i32 = -4;

/// The bounds between 1 and 2 of [`FIRST_SCHEMA`]: 2^(i/8).
const BOUNDS: [f64; 1 << FIRST_SCHEMA] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

/// Counts of values by the power of the base that is the first one not below them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NativeBuckets {
    pub(super) schema: i32,
    pub(super) zero_count: u64,
    /// Counts by index, in ascending order; none is zero.
    counts: Vec<(i32, u64)>,
}

/// Buckets as Prometheus reads them: runs of adjacent buckets, and their counts as differences.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Spans {
    /// Distance of each run from the end of the one before, and its length. The first distance is
    /// an index.
    pub(super) spans: Vec<(i32, u32)>,
    /// Difference of each count from the one before; the first one is a count.
    pub(super) deltas: Vec<i64>,
}

impl Default for NativeBuckets {
    fn default() -> Self {
        Self { schema: FIRST_SCHEMA, zero_count: 0, counts: Vec::new() }
    }
}

impl NativeBuckets {
    /// Counts a value. Ours are times and sizes, so negative ones need no buckets.
    pub(super) fn observe(&mut self, value: f64) {
        if value.is_nan() || value <= ZERO_THRESHOLD {
            self.zero_count += 1;
            return;
        }
        let index = coarser(index(value), FIRST_SCHEMA - self.schema);
        match self.counts.binary_search_by_key(&index, |(index, _)| *index) {
            Ok(found) => self.counts[found].1 += 1,
            Err(place) => self.counts.insert(place, (index, 1)),
        }
        while self.counts.len() > MAX_BUCKETS && self.schema > LAST_SCHEMA {
            self.halve();
        }
    }

    /// Makes one bucket of every two adjacent ones.
    fn halve(&mut self) {
        self.schema -= 1;
        self.counts.iter_mut().for_each(|(index, _)| *index = coarser(*index, 1));
        self.counts.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 += next.1;
            }
            is_same
        });
    }

    /// Returns the buckets as runs. A gap of up to two empty buckets is part of a run: their
    /// differences are shorter than another run.
    pub(super) fn spans(&self) -> Spans {
        let mut spans = Spans::default();
        let (mut end, mut before) = (0, 0);
        for (index, count) in &self.counts {
            let gap = index - end;
            let bridged = match spans.spans.last_mut() {
                Some((_, length)) if gap <= 2 => {
                    *length += gap.unsigned_abs() + 1;
                    gap
                }
                Some(_) | None => {
                    spans.spans.push((gap, 1));
                    0
                }
            };
            for count in (0..bridged).map(|_| 0).chain([count.cast_signed()]) {
                spans.deltas.push(count - before);
                before = count;
            }
            end = index + 1;
        }
        spans
    }
}

/// Returns the index of a value above [`ZERO_THRESHOLD`] in [`FIRST_SCHEMA`].
fn index(value: f64) -> i32 {
    const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    let bits = value.to_bits();
    // The value has no sign, and is at least 2^-128: above the numbers without an exponent.
    let exponent = i32::try_from(bits >> FRACTION_BITS).unwrap_or(0) - (f64::MAX_EXP - 1);
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let from_1_to_2 = f64::from_bits(1.0_f64.to_bits() | fraction);
    let below = BOUNDS.partition_point(|bound| *bound < from_1_to_2);
    (exponent << FIRST_SCHEMA) + i32::try_from(below).unwrap_or(0)
}

/// Returns the index of the bucket that contains the bucket `index`, with the base squared `steps`
/// times.
fn coarser(index: i32, steps: i32) -> i32 {
    (index + (1 << steps) - 1) >> steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> NativeBuckets {
        let mut buckets = NativeBuckets::default();
        values.iter().for_each(|value| buckets.observe(*value));
        buckets
    }

    /// Returns the counts by index, read from runs.
    fn read(spans: &Spans) -> Vec<(i32, u64)> {
        let (mut end, mut count, mut deltas) = (0, 0, spans.deltas.iter());
        let mut counts = Vec::new();
        for (distance, length) in &spans.spans {
            end += distance;
            for _ in 0..*length {
                count += deltas.next().unwrap();
                counts.push((end, u64::try_from(count).unwrap()));
                end += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        counts.retain(|(_, count)| *count > 0);
        counts
    }

    #[test]
    fn a_value_is_in_the_bucket_that_ends_at_or_above_it() {
        for (value, expected) in [
            (1.0, 0),
            (1.000_1, 1),
            (2.0, 8),
            (2.1, 9),
            (0.5, -8),
            (0.500_01, -7),
            (0.001, -79),
            (f64::MAX, 8192),
            (f64::INFINITY, 8192),
            (ZERO_THRESHOLD * 1.01, -1023),
        ] {
            assert_eq!(of(&[value]).counts, [(expected, 1)], "{value}");
        }
        assert_eq!(ZERO_THRESHOLD, 2.0_f64.powi(-128));
        let zeros = of(&[0.0, ZERO_THRESHOLD, -1.0, f64::NAN]);
        assert_eq!((zeros.zero_count, zeros.spans()), (4, Spans::default()));
    }

    #[test]
    fn short_gaps_are_part_of_a_run() {
        // Indices 0, 0, 3, 8 and 16.
        let spans = of(&[1.0, 1.0, 1.296, 2.0, 4.0]).spans();
        assert_eq!(spans.spans, [(0, 4), (4, 1), (7, 1)]);
        assert_eq!(spans.deltas, [2, -2, 0, 1, 0, 0]);
    }

    #[test]
    fn values_of_all_sizes_stay_within_the_limit() {
        let mut buckets = NativeBuckets::default();
        let mut count = 0;
        for exponent in -200..1024 {
            for factor in BOUNDS {
                buckets.observe(2.0_f64.powi(exponent) * factor);
                count += 1;
                assert!(buckets.counts.len() <= MAX_BUCKETS);
            }
        }
        let sum: u64 = buckets.counts.iter().map(|(_, count)| count).sum();
        assert_eq!(sum + buckets.zero_count, count);
        assert!(buckets.counts.capacity() <= 2 * MAX_BUCKETS);
        assert_eq!(buckets.schema, -3);
    }

    proptest! {
        #[test]
        fn every_value_is_counted_between_the_bounds_of_its_bucket(
            exponents in prop::collection::vec(-100.0_f64..100.0, 0..400),
        ) {
            let values: Vec<_> = exponents.into_iter().map(f64::exp2).collect();
            let buckets = of(&values);
            let read = read(&buckets.spans());
            prop_assert_eq!(&read, &buckets.counts);
            prop_assert!(read.len() <= MAX_BUCKETS);
            let width = 2.0_f64.powi(-buckets.schema);
            for (index, count) in read {
                let bound = |index: i32| (f64::from(index) * width).exp2();
                // Values next to a bound may be on either side of the computed one.
                let (low, high) = (bound(index - 1), bound(index));
                let within = |slack: f64| {
                    let range = low * (1.0 + slack)..high * (1.0 - slack);
                    values.iter().filter(|value| range.contains(value)).count() as u64
                };
                prop_assert!(within(1e-12) <= count && count <= within(-1e-12));
            }
        }
    }
}
