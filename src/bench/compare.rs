//! Two reports side by side.

use super::report::{Report, SizeReport};
use super::table::{aligned, cell, ratio};

/// Rows that both reports have, for the sizes that both have, with how many times the first the
/// second is; then what was different about the runs.
pub fn compare(first: &Report, second: &Report) -> String {
    let mut text = String::new();
    for size in &first.sizes {
        let Some(other) = second.sizes.iter().find(|other| other.services == size.services) else {
            continue;
        };
        text.push_str(&rows(size, other));
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("No number of services was measured in both runs.\n\n");
    }
    for line in differences(first, second) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn rows(first: &SizeReport, second: &SizeReport) -> String {
    let header = [&format!("{} services", first.services), "first", "second", "second / first"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for row in &first.rows {
        let Some(other) = second.row(&row.name) else { continue };
        let name = match row.unit.symbol() {
            "" => row.name.clone(),
            unit => format!("{}, {unit}", row.name),
        };
        let ratio = ratio(&row.value, &other.value);
        lines.push(vec![name, cell(&row.value), cell(&other.value), ratio]);
    }
    aligned(&lines)
}

/// What makes the comparison less fair than it looks.
fn differences(first: &Report, second: &Report) -> Vec<String> {
    let (one, other) = (&first.settings, &second.settings);
    let facts = [
        ("version", first.version.clone(), second.version.clone()),
        ("kernel", first.machine.kernel.clone(), second.machine.kernel.clone()),
        ("CPUs", first.machine.cpus.to_string(), second.machine.cpus.to_string()),
        ("CPU", first.machine.cpu.clone(), second.machine.cpu.clone()),
        ("endpoints of a service", one.endpoints.to_string(), other.endpoints.to_string()),
        ("distribution", one.distribution.to_string(), other.distribution.to_string()),
        ("seed", one.seed.to_string(), other.seed.to_string()),
        ("changes", one.changes.to_string(), other.changes.to_string()),
        ("changes in a second", one.rate.to_string(), other.rate.to_string()),
        ("mix", one.mix.to_string(), other.mix.to_string()),
        ("traffic", one.traffic.to_string(), other.traffic.to_string()),
        ("ended early", first.interrupted.to_string(), second.interrupted.to_string()),
    ];
    let differing = facts.into_iter().filter(|(_, first, second)| first != second);
    differing.map(|(what, first, second)| format!("{what}: {first} and {second}")).collect()
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
