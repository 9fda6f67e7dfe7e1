//! Results of a run: their text, their plot, JSON, and the comparison of two runs.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::change_times::{CURVES, ChangeTimes};
use super::settings::ProbeSettings;
use crate::figures::{
    self, Machine, Row, Value, aligned, differences, label, number, rate, side_by_side,
};

/// All results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Version of this program.
    pub version: String,
    /// Machine of the run.
    pub machine: Machine,
    /// Name of the node.
    pub node: String,
    /// The flags, defaults included.
    pub settings: ProbeSettings,
    /// Address of the Service.
    pub service: SocketAddr,
    /// Addresses of its endpoints, one of which it has at a time.
    pub endpoints: [SocketAddr; 2],
    /// Names of the programs whose commits named an endpoint.
    pub committers: Vec<String>,
    /// Why commits could not be observed, if so.
    pub commits_unseen: Option<String>,
    /// Measured values.
    pub rows: Vec<Row>,
    /// All changes.
    pub changes: Vec<ChangeTimes>,
    /// The run was stopped before everything was measured.
    pub interrupted: bool,
}

impl ProbeReport {
    /// Returns the run, a row for each time, then the counts.
    pub fn table(&self) -> String {
        let header = ["", "p50", "p90", "p99", "max", "count"];
        let mut times = vec![header.map(str::to_owned).to_vec()];
        let mut counts = Vec::new();
        for row in &self.rows {
            match &row.value {
                Value::Spread(spread) => {
                    let numbers = [spread.p50, spread.p90, spread.p99, spread.max].map(number);
                    let count = spread.count.to_string();
                    times.push([vec![label(row)], numbers.to_vec(), vec![count]].concat());
                }
                Value::Single(value) => counts.push(vec![label(row), number(*value)]),
            }
        }
        let mut text = self.heading();
        if times.len() > 1 {
            text.push_str(&aligned(&times));
            text.push('\n');
        }
        text.push_str(&aligned(&counts));
        for note in self.notes() {
            text.push('\n');
            text.push_str(&note);
        }
        text
    }

    fn heading(&self) -> String {
        let (machine, settings) = (&self.machine, &self.settings);
        let [first, second] = self.endpoints;
        format!(
            "deltaproxy {} on node {}, {machine}\n\
             Service {}/{}, endpoint {first} or {second}; {} changes {}, after {}\n\n",
            self.version,
            self.node,
            self.service,
            settings.protocol.name(),
            settings.changes,
            rate(settings.rate),
            settings.warm_up,
        )
    }

    /// Returns notes on the interpretation of the figures.
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![if !self.committers.is_empty() {
            format!("Commits to nftables by: {}.\n", self.committers.join(", "))
        } else if let Some(why) = &self.commits_unseen {
            format!("Commits to nftables were not seen: {why}.\n")
        } else {
            "No commit to nftables named an endpoint: the proxy uses none.\n".to_owned()
        }];
        if self.interrupted {
            let (made, wanted) = (self.changes.len(), self.settings.changes);
            notes.push(format!("It ended after {made} of {wanted} changes.\n"));
        }
        notes
    }

    /// Returns the times as curves over percentiles, in SVG; without times, only the axes.
    pub fn plot(&self) -> String {
        let (node, kernel) = (&self.node, &self.machine.kernel);
        let title =
            format!("Rule sync of node {node} on Linux {kernel}: time of a change by percentile");
        figures::plot(&title, CURVES, &[(String::new(), &self.rows)])
    }

    /// Returns the rows that both reports have, with the ratio of the second to the first, and then
    /// the differences between the runs.
    pub fn compare(&self, second: &Self) -> String {
        let rows = side_by_side("rule sync", &self.rows, &second.rows);
        format!("{rows}\n{}", differences(self.facts(), second.facts()))
    }

    /// Returns facts whose differences make a comparison less fair.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let settings = &self.settings;
        let mut facts = vec![("version", self.version.clone()), ("node", self.node.clone())];
        facts.extend(self.machine.facts());
        facts.extend([
            ("commits by", self.committers.join(", ")),
            ("protocol", settings.protocol.name().to_owned()),
            ("changes", settings.changes.to_string()),
            ("changes in a second", settings.rate.to_string()),
            ("changes before", settings.warm_up.to_string()),
            ("ended early", self.interrupted.to_string()),
        ]);
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Protocol;
    use crate::probe::change_times;

    /// Returns a report of one change.
    fn report() -> ProbeReport {
        let changes = vec![change_times::tests::change()];
        ProbeReport {
            version: "0.1.0".into(),
            machine: Machine { kernel: "6.18".into(), cpus: 2, cpu: "Xeon".into() },
            node: "node1".into(),
            settings: ProbeSettings {
                protocol: Protocol::Tcp,
                address: None,
                changes: 1,
                rate: 2,
                warm_up: 3,
                timeout: 30,
            },
            service: "10.96.0.7:80".parse().unwrap(),
            endpoints: ["192.0.2.1:30001", "192.0.2.1:30002"].map(|it| it.parse().unwrap()),
            committers: vec!["nft".into()],
            commits_unseen: None,
            rows: change_times::rows(&changes),
            changes,
            interrupted: false,
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let text = serde_json::to_string(&report()).unwrap();
        let read: ProbeReport = serde_json::from_str(&text).unwrap();
        // Only names of rows are compared: percentiles may lose their last digits in JSON.
        let names = |report: &ProbeReport| -> Vec<_> {
            report.rows.iter().map(|row| row.name.clone()).collect()
        };
        assert_eq!(names(&read), names(&report()));
        let without_rows = |report| ProbeReport { rows: Vec::new(), ..report };
        assert_eq!(without_rows(read), without_rows(report()));
    }

    #[test]
    fn rows_stand_side_by_side_and_what_differs_follows() {
        let (first, mut second) = (report(), report());
        second.node = "node2".into();
        second.rows.iter_mut().for_each(|row| row.double());
        let text = first.compare(&second);
        assert!(text.contains("change: answer of the API server, us"), "{text}");
        assert!(text.contains("x2.00 / x2.00"), "{text}");
        assert!(text.ends_with("\nnode: node1 and node2\n"), "{text}");
    }

    #[test]
    fn each_stage_has_a_curve() {
        let svg = report().plot();
        assert_eq!(svg.matches("<polyline").count(), CURVES.len());
        assert!(svg.contains(">change: first packet at the new endpoint</text>"), "{svg}");
    }

    #[test]
    fn times_have_percentiles_and_counts_do_not() {
        let text = report().table();
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect::<Vec<_>>()
        };
        let first = line("change: first packet at the new endpoint, us");
        assert_eq!(first.len(), 8 + 5, "{first:?}");
        assert_eq!(first.last(), Some(&"1"));
        assert_eq!(line("tries: refused").last(), Some(&"1"));
        assert!(text.contains("Service 10.96.0.7:80/TCP"), "{text}");
        assert!(text.contains("by: nft."), "{text}");
    }

    #[test]
    fn it_is_said_why_there_is_no_commit() {
        let mut report = report();
        report.committers.clear();
        assert!(report.table().contains("the proxy uses none"));
        report.commits_unseen = Some("Operation not permitted".into());
        assert!(report.table().contains("not seen: Operation not permitted."));
        report.interrupted = true;
        assert!(report.table().contains("ended after 1 of 1 changes"));
    }
}
