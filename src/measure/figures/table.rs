//! Rows as text: cells, aligned columns, and two reports side by side.

use engine::columns;

use super::row::{Row, Value, find};

/// Returns the name of a row, with its unit.
pub fn label(row: &Row) -> String {
    match row.unit.name() {
        "" => row.name.clone(),
        unit => format!("{}, {unit}", row.name),
    }
}

/// Formats a value as a cell of the table.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Single(value) => number(*value),
        Value::Spread(spread) => {
            format!("{} / {} / {}", number(spread.p50), number(spread.p99), number(spread.max))
        }
    }
}

/// Formats a number with three digits, or all digits of a large one.
pub fn number(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 && value.abs() < 1e9 => format!("{value:.0}"),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Describes a rate of changes per second; 0 is none.
pub fn rate(rate: u32) -> String {
    match rate {
        0 => "one after the other".to_owned(),
        rate => format!("{rate}/s"),
    }
}

/// Returns a table of the rows that both reports have, with the ratio of the second to the first.
pub fn side_by_side(title: &str, first: &[Row], second: &[Row]) -> String {
    let header = [title, "first", "second", "second / first"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for row in first {
        let Some(other) = find(second, &row.name) else { continue };
        let ratio = ratio(&row.value, &other.value);
        lines.push(vec![label(row), cell(&row.value), cell(&other.value), ratio]);
    }
    aligned(&lines)
}

/// Returns a line for each fact that differs between two runs.
pub fn differences(first: Vec<(&str, String)>, second: Vec<(&str, String)>) -> String {
    let pairs = first.into_iter().zip(second);
    let differing = pairs.filter(|((_, first), (_, second))| first != second);
    differing
        .map(|((what, first), (_, second))| format!("{what}: {first} and {second}\n"))
        .collect()
}

/// Returns the ratio of the second value to the first; for spreads, that of p50 and p99.
pub fn ratio(first: &Value, second: &Value) -> String {
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

/// Aligns columns, the first to the left and the others to the right.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let widths = columns::widths(lines);
    let lines = lines.iter().map(|line| columns::line(line, &widths, |column| column > 0) + "\n");
    lines.collect()
}
