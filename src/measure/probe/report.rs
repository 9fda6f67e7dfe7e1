//! Results of a run.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::change::ChangeTimes;
use super::settings::Settings;
use crate::figures::{Machine, Row};

/// All results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// Machine of the run.
    pub machine: Machine,
    /// Name of the node.
    pub node: String,
    /// The flags, defaults included.
    pub settings: Settings,
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::Machine;
    use crate::probe::Protocol;
    use crate::probe::change;

    /// Returns a report of one change.
    pub(in crate::probe) fn report() -> Report {
        let changes = vec![change::tests::change()];
        Report {
            version: "0.1.0".into(),
            machine: Machine { kernel: "6.18".into(), cpus: 2, cpu: "Xeon".into() },
            node: "node1".into(),
            settings: Settings {
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
            rows: change::rows(&changes),
            changes,
            interrupted: false,
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let text = serde_json::to_string(&report()).unwrap();
        let read: Report = serde_json::from_str(&text).unwrap();
        // Only names of rows are compared: percentiles may lose their last digits in JSON.
        let names = |report: &Report| -> Vec<_> {
            report.rows.iter().map(|row| row.name.clone()).collect()
        };
        assert_eq!(names(&read), names(&report()));
        let without_rows = |report| Report { rows: Vec::new(), ..report };
        assert_eq!(without_rows(read), without_rows(report()));
    }
}
