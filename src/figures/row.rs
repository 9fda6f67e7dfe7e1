//! Rows of a report: for people, for JSON, and to be compared.
//!
//! A row's name is the same in every version of the program, because reports are compared by it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// What it is counted in.
    pub unit: Unit,
    /// What was found.
    pub value: Value,
}

/// What a row is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Millions of bytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// A number of things.
    #[serde(rename = "")]
    Count,
    /// Things in a second.
    #[serde(rename = "/s")]
    PerSecond,
}

impl Unit {
    /// What stands behind the number.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Megabytes => "MB",
            Self::Count => "",
            Self::PerSecond => "/s",
        }
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

/// How samples are spread, in the unit of their row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// Nine of ten are no greater.
    pub p90: f64,
    /// 99 of 100 are no greater.
    pub p99: f64,
    /// 999 of 1,000 are no greater.
    pub p999: f64,
    /// The greatest.
    pub max: f64,
    /// Points of the curve: the percentile, and the sample at it.
    pub curve: Vec<(f64, f64)>,
}

/// Percentiles of [`Spread::curve`].
const CURVE: [f64; 19] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9,
    99.95, 99.99, 100.0,
];

impl Row {
    /// One number.
    pub fn single(name: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self { name: name.into(), unit, value: Value::Single(value) }
    }

    /// A count of things.
    pub fn count(name: impl Into<String>, value: usize) -> Self {
        Self::single(name, Unit::Count, f64::from(u32::try_from(value).unwrap_or(u32::MAX)))
    }

    /// The spread of samples in nanoseconds, as microseconds; `None` if there are none.
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

/// Nanoseconds as microseconds; to a tenth of a nanosecond nothing is lost below 100 days.
fn micros(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6
}

/// The row of that name.
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
