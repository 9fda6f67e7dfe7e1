//! Reports as text tables.

use super::report::{Report, SizeReport};
use crate::figures::{Row, aligned, cell, label, ratio};

/// Returns the whole report: the run, and a row for each measured value, a column for each size.
pub fn table(report: &Report) -> String {
    let mut text = heading(report);
    let names = row_names(report);
    let header = std::iter::once(String::new())
        .chain(report.sizes.iter().map(|size| format!("{} services", size.services)));
    let grows = report.sizes.len() > 1;
    let header: Vec<String> = header.chain(grows.then(|| "growth".to_owned())).collect();
    let mut lines = vec![header];
    for name in names {
        let rows: Vec<Option<&Row>> = report.sizes.iter().map(|size| size.row(name)).collect();
        let mut line =
            vec![rows.iter().flatten().next().map_or_else(String::new, |row| label(row))];
        line.extend(rows.iter().map(|row| row.map_or_else(String::new, |row| cell(&row.value))));
        if grows {
            line.push(growth(&report.sizes, name));
        }
        lines.push(line);
    }
    text.push_str(&aligned(&lines));
    if report.interrupted {
        text.push_str("\nIt was ended before everything was measured.\n");
    }
    text
}

fn heading(report: &Report) -> String {
    let (machine, settings) = (&report.machine, &report.settings);
    let rate = match settings.rate {
        0 => "one after the other".to_owned(),
        rate => format!("{rate}/s"),
    };
    format!(
        "deltaproxy {}, Linux {}, {} CPUs {}\n{} endpoints a service ({}), {} changes {rate} \
         ({}), seed {}\nsamples as p50 / p99 / max\n\n",
        report.version,
        machine.kernel,
        machine.cpus,
        machine.cpu,
        settings.endpoints,
        settings.distribution,
        settings.changes,
        settings.mix,
        settings.seed,
    )
}

/// Returns the names of rows in order, each once.
fn row_names(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in report.sizes.iter().flat_map(|size| &size.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

/// Returns the ratio of a row with the most services to that with the fewest.
fn growth(sizes: &[SizeReport], name: &str) -> String {
    let fewest = sizes.iter().min_by_key(|size| size.services).and_then(|size| size.row(name));
    let most = sizes.iter().max_by_key(|size| size.services).and_then(|size| size.row(name));
    match (fewest, most) {
        (Some(fewest), Some(most)) => ratio(&fewest.value, &most.value),
        (None, _) | (_, None) => String::new(),
    }
}
