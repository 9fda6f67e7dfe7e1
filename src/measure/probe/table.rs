//! Reports as text tables.

use super::report::Report;
use crate::figures::{Value, aligned, label, number};

/// Returns the whole report: the run, a row for each time, then the counts.
pub fn table(report: &Report) -> String {
    let header = ["", "p50", "p90", "p99", "max", "count"];
    let mut times = vec![header.map(str::to_owned).to_vec()];
    let mut counts = Vec::new();
    for row in &report.rows {
        match &row.value {
            Value::Spread(spread) => {
                let numbers = [spread.p50, spread.p90, spread.p99, spread.max].map(number);
                let count = spread.count.to_string();
                times.push([vec![label(row)], numbers.to_vec(), vec![count]].concat());
            }
            Value::Single(value) => counts.push(vec![label(row), number(*value)]),
        }
    }
    let mut text = heading(report);
    if times.len() > 1 {
        text.push_str(&aligned(&times));
        text.push('\n');
    }
    text.push_str(&aligned(&counts));
    for note in notes(report) {
        text.push('\n');
        text.push_str(&note);
    }
    text
}

fn heading(report: &Report) -> String {
    let (machine, settings) = (&report.machine, &report.settings);
    let rate = match settings.rate {
        0 => "one after the other".to_owned(),
        rate => format!("{rate}/s"),
    };
    let [first, second] = report.endpoints;
    format!(
        "deltaproxy {} on node {}, Linux {}, {} CPUs {}\n\
         Service {}/{}, endpoint {first} or {second}; {} changes {rate}, after {}\n\n",
        report.version,
        report.node,
        machine.kernel,
        machine.cpus,
        machine.cpu,
        report.service,
        settings.protocol,
        settings.changes,
        settings.warm_up,
    )
}

/// Returns notes on the interpretation of the figures.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.committers.is_empty() {
        notes.push(format!("Commits to nftables by: {}.\n", report.committers.join(", ")));
    } else if let Some(why) = &report.commits_unseen {
        notes.push(format!("Commits to nftables were not seen: {why}.\n"));
    } else {
        notes.push("No commit to nftables named an endpoint: the proxy uses none.\n".to_owned());
    }
    if report.interrupted {
        let (made, wanted) = (report.changes.len(), report.settings.changes);
        notes.push(format!("It ended after {made} of {wanted} changes.\n"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::report::tests::report;

    #[test]
    fn times_have_percentiles_and_counts_do_not() {
        let text = table(&report());
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
        assert!(table(&report).contains("the proxy uses none"));
        report.commits_unseen = Some("Operation not permitted".into());
        assert!(table(&report).contains("not seen: Operation not permitted."));
        report.interrupted = true;
        assert!(table(&report).contains("ended after 1 of 1 changes"));
    }
}
