//! Two reports side by side.

use super::report::Report;
use crate::figures::{differences, side_by_side};

/// Returns the rows and sizes that both reports have, with the ratio of the second to the first,
/// and then the differences between the runs.
pub fn compare(first: &Report, second: &Report) -> String {
    let mut text = String::new();
    for size in &first.sizes {
        let Some(other) = second.sizes.iter().find(|other| other.services == size.services) else {
            continue;
        };
        let title = format!("{} services", size.services);
        text.push_str(&side_by_side(&title, &size.rows, &other.rows));
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("No number of services was measured in both runs.\n\n");
    }
    text + &differences(facts(first), facts(second))
}

/// Returns facts whose differences make a comparison less fair.
fn facts(report: &Report) -> [(&'static str, String); 12] {
    let (machine, settings) = (&report.machine, &report.settings);
    [
        ("version", report.version.clone()),
        ("kernel", machine.kernel.clone()),
        ("CPUs", machine.cpus.to_string()),
        ("CPU", machine.cpu.clone()),
        ("endpoints of a service", settings.endpoints.to_string()),
        ("distribution", settings.distribution.to_string()),
        ("seed", settings.seed.to_string()),
        ("changes", settings.changes.to_string()),
        ("changes in a second", settings.rate.to_string()),
        ("mix", settings.mix.to_string()),
        ("traffic", settings.traffic.to_string()),
        ("ended early", report.interrupted.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report;

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
        assert_eq!(compare(&first, &second), expected);
    }

    #[test]
    fn runs_of_other_sizes_have_nothing_to_compare() {
        let (first, mut second) = (report(), report());
        second.sizes[0].services = 5;
        assert_eq!(
            compare(&first, &second),
            "No number of services was measured in both runs.\n\n"
        );
    }
}
