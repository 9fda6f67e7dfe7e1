//! Results of a run, as rows: their text, their plot, `--json`, and the comparison of two runs.

use serde::{Deserialize, Serialize};

use super::settings::BenchSettings;
use crate::figures::{
    self, Machine, Plotted, Row, aligned, cell, differences, find, label, rate, ratio, side_by_side,
};

/// All results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// Version of this program.
    pub version: String,
    /// Machine of the run.
    pub machine: Machine,
    /// The flags, defaults included.
    pub settings: BenchSettings,
    /// BenchReports by size of cluster, in the order of `--sizes`.
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

/// Rows with a curve: the figures of interest to users, not every stage.
const PLOTTED: Plotted = [
    "endpoint change: end to end",
    "endpoint change: all stages",
    "endpoint change: committed by the kernel",
    "one of 5000 endpoints: all stages",
    "endpoint change: kube-proxy's layout by nft",
];

impl BenchReport {
    /// Returns the run, and a row for each measured value, a column for each size.
    pub fn table(&self) -> String {
        let mut header = vec![String::new()];
        header.extend(self.sizes.iter().map(|size| format!("{} services", size.services)));
        let grows = self.sizes.len() > 1;
        header.extend(grows.then(|| "growth".to_owned()));
        let mut lines = vec![header];
        for name in self.row_names() {
            let rows: Vec<_> = self.sizes.iter().map(|size| size.row(name)).collect();
            let mut line =
                vec![rows.iter().flatten().next().map(|it| label(it)).unwrap_or_default()];
            line.extend(rows.iter().map(|it| it.map(|row| cell(&row.value)).unwrap_or_default()));
            line.extend(grows.then(|| self.growth(name)));
            lines.push(line);
        }
        let end =
            if self.interrupted { "\nIt was ended before everything was measured.\n" } else { "" };
        format!("{}{}{end}", self.heading(), aligned(&lines))
    }

    fn heading(&self) -> String {
        let (machine, settings) = (&self.machine, &self.settings);
        format!(
            "deltaproxy {}, {machine}\n{} endpoints a service ({}), {} changes {} ({}), seed \
             {}\nsamples as p50 / p99 / max\n\n",
            self.version,
            settings.endpoints,
            settings.distribution.name(),
            settings.changes,
            rate(settings.rate),
            settings.mix,
            settings.seed,
        )
    }

    /// Returns the names of rows in order, each once.
    fn row_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.sizes.iter().flat_map(|size| &size.rows) {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        names
    }

    /// Returns the ratio of a row with the most services to that with the fewest.
    fn growth(&self, name: &str) -> String {
        let fewest = self.sizes.iter().min_by_key(|size| size.services);
        let most = self.sizes.iter().max_by_key(|size| size.services);
        let row = |size: Option<&SizeReport>| size.and_then(|size| size.row(name)).cloned();
        let ends = row(fewest).zip(row(most));
        ends.map(|(fewest, most)| ratio(&fewest.value, &most.value)).unwrap_or_default()
    }

    /// Returns the spreads as curves over percentiles, in SVG; without spreads, only the axes.
    pub fn plot(&self) -> String {
        let (version, kernel) = (&self.version, &self.machine.kernel);
        let title =
            format!("deltaproxy {version} on Linux {kernel}: time of a change by percentile");
        let group = |it: &SizeReport| format!(", {} services", it.services);
        let groups: Vec<_> = self.sizes.iter().map(|it| (group(it), &*it.rows)).collect();
        figures::plot(&title, PLOTTED, &groups)
    }

    /// Returns the rows and sizes that both reports have, with the ratio of the second to the first,
    /// and then the differences between the runs.
    pub fn compare(&self, second: &Self) -> String {
        let mut text = String::new();
        for size in &self.sizes {
            let same = |other: &&SizeReport| other.services == size.services;
            let Some(other) = second.sizes.iter().find(same) else { continue };
            let title = format!("{} services", size.services);
            text += &format!("{}\n", side_by_side(&title, &size.rows, &other.rows));
        }
        if text.is_empty() {
            text.push_str("No number of services was measured in both runs.\n\n");
        }
        text + &differences(self.facts(), second.facts())
    }

    /// Returns facts whose differences make a comparison less fair.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let settings = &self.settings;
        let mut facts = vec![("version", self.version.clone())];
        facts.extend(self.machine.facts());
        facts.extend([
            ("endpoints of a service", settings.endpoints.to_string()),
            ("distribution", settings.distribution.name().to_owned()),
            ("seed", settings.seed.to_string()),
            ("changes", settings.changes.to_string()),
            ("changes in a second", settings.rate.to_string()),
            ("mix", settings.mix.to_string()),
            ("traffic", settings.traffic.to_string()),
            ("ended early", self.interrupted.to_string()),
        ]);
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Distribution, Mix};
    use crate::figures::{Spread, Unit, Value};

    /// Returns a small report: one number, one spread, and one unique row.
    fn report() -> BenchReport {
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
        BenchReport {
            version: "0.1.0".into(),
            machine: Machine { kernel: "6.18".into(), cpus: 2, cpu: String::new() },
            settings: BenchSettings {
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
        assert_eq!(serde_json::from_str::<BenchReport>(&text).unwrap(), report());
    }

    #[test]
    fn rows_of_both_runs_stand_side_by_side_with_their_ratio() {
        let (first, mut second) = (report(), report());
        second.sizes[0].rows.retain(|row| row.name != "only in the first");
        for row in &mut second.sizes[0].rows {
            row.double();
        }
        second.settings.seed = 9;
        let expected = "\
1000 services                first         second  second / first
all loaded, s                 1.50              3           x2.00
endpoint change, us  10 / 20 / 100  20 / 40 / 200   x2.00 / x2.00

seed: 1 and 9
";
        assert_eq!(first.compare(&second), expected);
    }

    #[test]
    fn runs_of_other_sizes_have_nothing_to_compare() {
        let (first, mut second) = (report(), report());
        second.sizes[0].services = 5;
        assert_eq!(first.compare(&second), "No number of services was measured in both runs.\n\n");
    }

    #[test]
    fn every_plotted_row_has_a_curve_that_rises_to_the_right() {
        let mut report = report();
        report.sizes[0].rows[1].name = "endpoint change: end to end".into();
        let svg = report.plot();
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert!(svg.contains(">endpoint change: end to end, 1000 services</text>"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_report_without_samples_has_axes_only() {
        let svg = report().plot();
        assert_eq!(svg.matches("<polyline").count(), 0);
        assert!(svg.contains("1 ms"));
    }
}
