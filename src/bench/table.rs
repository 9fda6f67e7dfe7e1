//! Reports as tables for people.

use std::fmt::Write;

use super::report::{Report, Row, SizeReport, Value};

/// The whole report: what ran where, and a row for each thing measured, a column for each size.
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
        let unit = rows.iter().flatten().next().map_or("", |row| row.unit.symbol());
        let mut line = vec![if unit.is_empty() { name.into() } else { format!("{name}, {unit}") }];
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

/// Names of rows in the order in which they come, each once.
fn row_names(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in report.sizes.iter().flat_map(|size| &size.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

/// What is in one field of the table.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Single(value) => number(*value),
        Value::Spread(spread) => {
            format!("{} / {} / {}", number(spread.p50), number(spread.p99), number(spread.max))
        }
    }
}

/// Three digits, or all of a large number.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 && value.abs() < 1e9 => format!("{value:.0}"),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// How much greater a row is with the most services than with the fewest.
fn growth(sizes: &[SizeReport], name: &str) -> String {
    let fewest = sizes.iter().min_by_key(|size| size.services).and_then(|size| size.row(name));
    let most = sizes.iter().max_by_key(|size| size.services).and_then(|size| size.row(name));
    match (fewest, most) {
        (Some(fewest), Some(most)) => ratio(&fewest.value, &most.value),
        (None, _) | (_, None) => String::new(),
    }
}

/// How many times the first value the second is: of a spread, p50 and p99.
pub(super) fn ratio(first: &Value, second: &Value) -> String {
    let times = |first: f64, second: f64| {
        if first == 0.0 { String::from("-") } else { format!("x{:.2}", second / first) }
    };
    match (first, second) {
        (Value::Single(first), Value::Single(second)) => times(*first, *second),
        (Value::Spread(first), Value::Spread(second)) => {
            format!("{} / {}", times(first.p50, second.p50), times(first.p99, second.p99))
        }
        (Value::Single(_), Value::Spread(_)) | (Value::Spread(_), Value::Single(_)) => {
            String::new()
        }
    }
}

/// Columns, the first to the left and the others to the right.
pub(super) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = match column {
                0 => write!(row, "{cell:width$}"),
                _ => write!(row, "  {cell:>width$}"),
            };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
