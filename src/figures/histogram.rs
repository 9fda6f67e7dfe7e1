//! Samples of durations, in histograms that lose none.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Three digits of nanoseconds up to 1,000 s, which is more than anything here takes.
pub fn histogram() -> Histogram<u64> {
    // The bounds are constants that the crate allows; without bounds it would grow as needed.
    Histogram::new_with_bounds(1, 1_000_000_000_000, 3).unwrap_or_else(|_| unreachable!())
}

/// Adds a sample.
pub fn record(samples: &mut Histogram<u64>, duration: Duration) {
    samples.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}
