//! Rows of a report: for text, for JSON, and for comparison.
//!
//! Names of rows are stable across versions of the program, because comparisons match rows by name.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One measured quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the quantity.
    pub name: String,
    /// Unit of the value.
    pub unit: Unit,
    /// Measured value.
    pub value: Value,
}

engine::named! {
    /// Unit of a row, with the suffix of the number.
    #[derive(Serialize, Deserialize)]
    pub enum Unit {
        /// Microseconds.
        #[serde(rename = "us")]
        Microseconds = "us",
        /// Milliseconds.
        #[serde(rename = "ms")]
        Milliseconds = "ms",
        /// Seconds.
        #[serde(rename = "s")]
        Seconds = "s",
        /// Millions of bytes.
        #[serde(rename = "MB")]
        Megabytes = "MB",
        /// A count.
        #[serde(rename = "")]
        Count = "",
        /// Count per second.
        #[serde(rename = "/s")]
        PerSecond = "/s",
    }
}

/// One number, or the spread of many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Many samples.
    Spread(Spread),
    /// One number.
    Single(f64),
}

/// Spread of samples, in the unit of their row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of samples.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
    /// Points of the curve: percentile and its sample.
    pub curve: Vec<(f64, f64)>,
}

/// Percentiles of [`Spread::curve`].
const CURVE: [f64; 19] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9,
    99.95, 99.99, 100.0,
];

impl Row {
    /// Creates a row with one number.
    pub fn single(name: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self { name: name.into(), unit, value: Value::Single(value) }
    }

    /// Creates a row with a count.
    pub fn count(name: impl Into<String>, value: usize) -> Self {
        Self::single(name, Unit::Count, f64::from(u32::try_from(value).unwrap_or(u32::MAX)))
    }

    /// Creates a row in microseconds from samples in nanoseconds; `None` without samples.
    pub fn spread(name: impl Into<String>, samples: &Histogram<u64>) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        let at = |percentile| micros(samples.value_at_percentile(percentile));
        let value = Value::Spread(Spread {
            count: samples.len(),
            mean: samples.mean() / 1e3,
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: micros(samples.max()),
            curve: CURVE.iter().map(|percentile| (*percentile, at(*percentile))).collect(),
        });
        Some(Self { name: name.into(), unit: Unit::Microseconds, value })
    }
}

/// Converts nanoseconds to microseconds; exact to a tenth of a nanosecond below 100 days.
fn micros(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6
}

/// Finds the row with a name.
pub fn find<'a>(rows: &'a [Row], name: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.name == name)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    impl Row {
        pub(crate) fn double(&mut self) {
            match &mut self.value {
                Value::Single(value) => *value *= 2.0,
                Value::Spread(spread) => {
                    spread.p50 *= 2.0;
                    spread.p99 *= 2.0;
                    spread.max *= 2.0;
                }
            }
        }
    }

    #[test]
    fn samples_become_microseconds() {
        let mut samples = crate::figures::histogram();
        (1..=100).for_each(|n| samples.saturating_record(n * 1_000));
        let row = Row::spread("a", &samples).unwrap();
        let Value::Spread(spread) = row.value else { panic!("it is a spread") };
        assert_eq!(spread.count, 100);
        assert!((spread.p50 - 50.0).abs() < 0.1 && (spread.max - 100.0).abs() < 0.1, "{spread:?}");
        assert_eq!(Row::spread("none", &crate::figures::histogram()), None);
    }
}
