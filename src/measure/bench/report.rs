//! Results of a run, as rows: for the table, for `--json` and for comparison.

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::figures::{Machine, Row, find};

/// All results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// Machine of the run.
    pub machine: Machine,
    /// The flags, defaults included.
    pub settings: Settings,
    /// Reports by size of cluster, in the order of `--sizes`.
    pub sizes: Vec<SizeReport>,
    /// The run was stopped before everything was measured.
    pub interrupted: bool,
}

/// Results for one size of cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeReport {
    /// Initial number of services.
    pub services: u32,
    /// Initial number of endpoints.
    pub endpoints: u32,
    /// Number of single changes that the kernel committed, of those requested.
    pub committed: u32,
    /// Measured values.
    pub rows: Vec<Row>,
    /// The run was stopped before everything was measured.
    pub interrupted: bool,
}

impl SizeReport {
    /// Finds the row with a name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        find(&self.rows, name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::{Distribution, Mix};
    use crate::figures::{Spread, Unit, Value};

    /// Returns a small report: one number, one spread, and one unique row.
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

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let text = serde_json::to_string(&report()).unwrap();
        assert!(text.contains(r#""rows":[{"name":"all loaded","unit":"s","value":1.5}"#), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
    }
}
