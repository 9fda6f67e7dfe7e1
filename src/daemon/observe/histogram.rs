//! Histograms with classic and native buckets.
//!
//! One lock keeps both: Prometheus refuses a native histogram whose buckets do not add up to its
//! count.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::metric::{Distribution, Metric, MetricKind, Sample};
use super::native_buckets::NativeBuckets;

/// A histogram; its clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Histogram(Arc<Mutex<Distribution>>);

impl Histogram {
    /// Adds a value.
    pub(super) fn observe(&self, value: f64) {
        let mut values = self.0.lock();
        values.sum += value;
        values.count += 1;
        if let Some((_, count)) = values.classic.iter_mut().find(|(bound, _)| *bound >= value) {
            *count += 1;
        }
        values.native.observe(value);
    }

    /// Adds a time in seconds.
    pub(super) fn took(&self, time: Duration) {
        self.observe(time.as_secs_f64());
    }
}

impl Metric for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;

    /// Upper bounds of the classic buckets.
    type Form = Vec<f64>;

    fn new(bounds: &Vec<f64>) -> Self {
        let classic = bounds.iter().chain([&f64::INFINITY]).map(|bound| (*bound, 0)).collect();
        let native = NativeBuckets::default();
        Self(Arc::new(Mutex::new(Distribution { sum: 0.0, count: 0, classic, native })))
    }

    fn sample(&self) -> Sample {
        Sample::Distribution(self.0.lock().clone())
    }
}
