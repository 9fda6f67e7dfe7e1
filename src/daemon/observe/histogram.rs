//! Histograms with classic and native buckets.
//!
//! One lock keeps both: Prometheus refuses a native histogram whose buckets do not add up to its
//! count.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::native_buckets::NativeBuckets;

/// A histogram; its clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Histogram(Arc<Mutex<Values>>);

/// The values of a histogram at one time.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) sum: f64,
    pub(super) count: u64,
    /// Upper bounds and counts of the classic buckets. The last bound is infinite.
    pub(super) classic: Vec<(f64, u64)>,
    pub(super) native: NativeBuckets,
}

thread_local! {
    /// Values of the histograms that this thread encoded, in order; `None` outside of [`recorded`].
    static ENCODED: RefCell<Option<Vec<Values>>> = const { RefCell::new(None) };
}

/// Calls `encode`, which encodes a registry as text. Returns also the values of the registry's
/// histograms in the order of the text, because no text format has native buckets.
pub(super) fn recorded(encode: impl FnOnce() -> String) -> (String, Vec<Values>) {
    ENCODED.with_borrow_mut(|encoded| *encoded = Some(Vec::new()));
    let text = encode();
    (text, ENCODED.take().unwrap_or_default())
}

impl Histogram {
    /// Creates a histogram without values, with these upper bounds of classic buckets.
    pub(super) fn new(bounds: impl IntoIterator<Item = f64>) -> Self {
        let classic = bounds.into_iter().chain([f64::INFINITY]).map(|bound| (bound, 0)).collect();
        let native = NativeBuckets::default();
        Self(Arc::new(Mutex::new(Values { sum: 0.0, count: 0, classic, native })))
    }

    /// Adds a value.
    pub(super) fn observe(&self, value: f64) {
        let mut values = self.values();
        values.sum += value;
        values.count += 1;
        if let Some((_, count)) = values.classic.iter_mut().find(|(bound, _)| *bound >= value) {
            *count += 1;
        }
        values.native.observe(value);
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let values = self.values().clone();
        encoder.encode_histogram::<NoLabelSet>(values.sum, values.count, &values.classic, None)?;
        ENCODED.with_borrow_mut(|encoded| {
            if let Some(encoded) = encoded {
                encoded.push(values);
            }
        });
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
