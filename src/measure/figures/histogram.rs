//! Lossless histograms of durations.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Returns a histogram with three digits of nanoseconds up to 1,000 s, more than any sample here.
pub fn histogram() -> Histogram<u64> {
    // The crate accepts these constant bounds; without bounds the histogram would reallocate.
    Histogram::new_with_bounds(1, 1_000_000_000_000, 3).unwrap_or_else(|_| unreachable!())
}

/// Adds a sample.
pub fn record(samples: &mut Histogram<u64>, duration: Duration) {
    samples.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}
