//! What a run found, as rows: what people read, what `--json` writes and what is compared.
//!
//! A row's name is the same in every version of the program, because runs are compared by it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::settings::Settings;

/// Everything that one run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// The flags, defaults included.
    pub settings: Settings,
    /// One for each size of cluster, in the order of `--sizes`.
    pub sizes: Vec<SizeReport>,
    /// Whether it was ended before everything was measured.
    pub interrupted: bool,
}

/// The machine that a run was made on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// How many processors the process may use.
    pub cpus: usize,
    /// The model of the first processor, empty if it is not said.
    pub cpu: String,
}

/// What was found with one size of cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeReport {
    /// Services at first.
    pub services: u32,
    /// Endpoints at first.
    pub endpoints: u32,
    /// Changes that the kernel has committed one by one, of those that were asked for.
    pub committed: u32,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Whether it was ended before everything was measured.
    pub interrupted: bool,
}

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

impl SizeReport {
    /// The row of that name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// Nanoseconds as microseconds; to a tenth of a nanosecond nothing is lost below 100 days.
fn micros(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let cpu = processors.lines().find_map(|line| line.strip_prefix("model name"));
        let cpu = cpu.unwrap_or_default().trim_start_matches([' ', '\t', ':']);
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu.trim().to_owned(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::{Distribution, Mix};

    /// A small report: one number, one spread, and one row of its own.
    pub(in crate::bench) fn report() -> Report {
        let spread = Spread {
            count: 3,
            mean: 30.0,
            p50: 10.0,
            p90: 15.0,
            p99: 20.0,
            p999: 50.0,
            max: 100.0,
            curve: vec![(0.0, 5.0), (50.0, 10.0), (99.0, 20.0), (100.0, 100.0)],
        };
        let (unit, value) = (Unit::Microseconds, Value::Spread(spread));
        let rows = vec![
            Row::single("all loaded", Unit::Seconds, 1.5),
            Row { name: "endpoint change".into(), unit, value },
            Row::count("only in the first", 7),
        ];
        let size = SizeReport { services: 1_000, rows, ..SizeReport::default() };
        Report {
            version: "0.1.0".into(),
            machine: Machine { kernel: "6.18".into(), cpus: 2, cpu: String::new() },
            settings: Settings {
                sizes: vec![1_000],
                endpoints: 5,
                distribution: Distribution::Real,
                seed: 1,
                changes: 100,
                rate: 0,
                mix: Mix::default(),
                traffic: false,
                in_place: false,
                baseline: false,
            },
            sizes: vec![size],
            interrupted: false,
        }
    }

    impl Row {
        pub(in crate::bench) fn double(&mut self) {
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
    fn a_report_is_read_as_it_was_written() {
        let text = serde_json::to_string(&report()).unwrap();
        assert!(text.contains(r#""rows":[{"name":"all loaded","unit":"s","value":1.5}"#), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
    }

    #[test]
    fn samples_become_microseconds() {
        let mut samples = crate::bench::spreads::histogram();
        (1..=100).for_each(|n| samples.saturating_record(n * 1_000));
        let row = Row::spread("a", &samples).unwrap();
        let Value::Spread(spread) = row.value else { panic!("it is a spread") };
        assert_eq!(spread.count, 100);
        assert!((spread.p50 - 50.0).abs() < 0.1 && (spread.max - 100.0).abs() < 0.1, "{spread:?}");
        assert_eq!(Row::spread("none", &crate::bench::spreads::histogram()), None);
    }
}
