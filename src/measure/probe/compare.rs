//! Two reports side by side.

use super::report::Report;
use crate::figures::{differences, side_by_side};

/// Returns the rows that both reports have, with the ratio of the second to the first, and then the
/// differences between the runs.
pub fn compare(first: &Report, second: &Report) -> String {
    let facts = |report: &Report| {
        let settings = &report.settings;
        [
            ("version", report.version.clone()),
            ("node", report.node.clone()),
            ("kernel", report.machine.kernel.clone()),
            ("CPUs", report.machine.cpus.to_string()),
            ("CPU", report.machine.cpu.clone()),
            ("commits by", report.committers.join(", ")),
            ("protocol", settings.protocol.to_string()),
            ("changes", settings.changes.to_string()),
            ("changes in a second", settings.rate.to_string()),
            ("changes before", settings.warm_up.to_string()),
            ("ended early", report.interrupted.to_string()),
        ]
    };
    let rows = side_by_side("rule sync", &first.rows, &second.rows);
    format!("{rows}\n{}", differences(facts(first), facts(second)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::report::tests::report;

    #[test]
    fn rows_stand_side_by_side_and_what_differs_follows() {
        let (first, mut second) = (report(), report());
        second.node = "node2".into();
        second.rows.iter_mut().for_each(|row| row.double());
        let text = compare(&first, &second);
        assert!(text.contains("change: answer of the API server, us"), "{text}");
        assert!(text.contains("x2.00 / x2.00"), "{text}");
        assert!(text.ends_with("\nnode: node1 and node2\n"), "{text}");
    }
}
