//! The three lists: services, draining endpoints and problems.

use std::ops::Range;
use std::time::Duration;

use ratatui_core::style::{Modifier, Style};

use super::numbers::number;
use super::style::{BAD, FAINT, NARROW};
use super::table::{Cell, Column, Table};
use crate::show::format::age;
use crate::show::{BusyService, DrainingEndpoint, Order, Top};
use crate::top::screen_state::{ScreenList, ScreenState};
use crate::top::status::ProblemStatus;
use crate::top::views::TopView;

/// Returns the rows of `list` in `seen`, below titles.
pub(super) fn table(
    list: ScreenList,
    view: &TopView,
    state: &ScreenState,
    (seen, width): (Range<usize>, usize),
) -> Table {
    let connections = view.kernel.as_ref().ok().and_then(|it| it.connections.as_ref());
    let is_wide = width >= NARROW;
    match list {
        ScreenList::Services => {
            let top = connections.map(|it| &it.services);
            let since = connections.and_then(|it| it.since);
            Table {
                columns: service_columns(title("SERVICE", &seen, top), is_wide),
                rows: rows(top, seen, |row| service_row(row, since, state.order, is_wide)),
            }
        }
        ScreenList::Draining => {
            let top = connections.map(|it| &it.draining);
            let now = view.kernel.as_ref().map(|it| it.now).unwrap_or_default();
            Table {
                columns: draining_columns(title("DRAINING ENDPOINT", &seen, top), is_wide),
                rows: rows(top, seen, |row| draining_row(row, now, is_wide)),
            }
        }
        ScreenList::Problems => {
            let top = view.daemon.as_ref().ok().map(|it| &it.problems);
            let [age, times] = ["AGO", "TIMES"].map(Column::number);
            let [state, field, why] = ["STATE", "FIELD", "WHY"].map(Column::text);
            let title = Column::text(title("PROBLEM", &seen, top));
            Table {
                columns: vec![title, state, age, times, field, why],
                rows: rows(top, seen, problem_row),
            }
        }
    }
}

fn rows<T>(
    top: Option<&Top<T>>,
    seen: Range<usize>,
    row: impl Fn(&T) -> Vec<Cell>,
) -> Vec<Vec<Cell>> {
    top.map(|top| &top.rows[seen]).unwrap_or_default().iter().map(row).collect()
}

/// Returns the first title: the name, the visible rows and their total.
fn title<T>(name: &str, seen: &Range<usize>, top: Option<&Top<T>>) -> String {
    let count = top.map_or(0, |top| top.count);
    match (seen.len(), count) {
        (_, 0) => format!("{name} (none)"),
        (rows, count) if rows == count => format!("{name} ({count})"),
        _ => format!("{name} ({}-{} of {count})", seen.start + 1, seen.end),
    }
}

fn service_columns(title: String, is_wide: bool) -> Vec<Column> {
    let mut columns = vec![Column::text(title)];
    if is_wide {
        columns.push(Column::text("ADDRESS"));
    }
    columns.extend(["BEGAN/S", "ACTIVE", "NEW"].map(Column::number));
    if is_wide {
        columns.push(Column::number("ENDED"));
    }
    columns.extend(["ENDPOINTS", "DRAINING"].map(Column::number));
    columns
}

fn service_row(
    row: &BusyService,
    since: Option<Duration>,
    order: Order,
    is_wide: bool,
) -> Vec<Cell> {
    let sorted = |text: String, by: Order| {
        let style = if order == by { Modifier::BOLD } else { Modifier::empty() };
        Cell::styled(text, Style::new().add_modifier(style))
    };
    let mut cells = vec![sorted(or_dash(&row.label).to_owned(), Order::Name)];
    if is_wide {
        cells.push(Cell::plain(&row.address));
    } else if row.label.is_empty() {
        cells[0] = Cell::plain(&row.address);
    }
    let seconds = since.map(|it| it.as_secs_f64()).filter(|it| *it > 0.0);
    let began = seconds.map(|seconds| number(f64::from(row.counts.began) / seconds));
    cells.push(sorted(began.unwrap_or_else(|| "-".to_owned()), Order::Began));
    cells.push(sorted(row.counts.active.to_string(), Order::Active));
    cells.push(sorted(row.counts.new.to_string(), Order::New));
    if is_wide {
        cells.push(Cell::styled(row.counts.ended, FAINT));
    }
    cells.push(match row.endpoints {
        0 => Cell::styled(0, BAD),
        endpoints => Cell::plain(endpoints),
    });
    cells.push(sorted(row.draining.to_string(), Order::Draining));
    cells
}

fn draining_columns(title: String, is_wide: bool) -> Vec<Column> {
    let mut columns = vec![Column::text(title), Column::text("SERVICE")];
    if is_wide {
        columns.push(Column::text("ADDRESS"));
    }
    columns.extend(["CONNECTIONS", "OLDEST"].map(Column::number));
    columns
}

fn draining_row(row: &DrainingEndpoint, now: Duration, is_wide: bool) -> Vec<Cell> {
    let mut cells = vec![Cell::plain(&row.endpoint), Cell::plain(or_dash(&row.label))];
    if is_wide {
        cells.push(Cell::plain(&row.address));
    }
    cells.push(Cell::plain(row.counts.live()));
    let oldest = row.counts.oldest.map(|it| now.saturating_sub(Duration::from_nanos(it.get())));
    cells.push(Cell::plain(oldest.map_or_else(|| "-".to_owned(), age)));
    cells
}

fn problem_row((ago, row): &(Duration, ProblemStatus)) -> Vec<Cell> {
    vec![
        Cell::plain(&row.object),
        if row.present { Cell::styled("present", BAD) } else { Cell::plain("solved") },
        Cell::plain(age(*ago)),
        Cell::plain(row.count),
        Cell::plain(or_dash(&row.field)),
        Cell::plain(&row.message),
    ]
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
