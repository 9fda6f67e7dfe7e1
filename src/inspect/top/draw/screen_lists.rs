//! The three lists: services, draining endpoints and problems.

use std::ops::Range;

use ratatui_core::style::{Modifier, Style};

use super::numbers::number;
use super::style::{BAD, FAINT, NARROW};
use super::table::{Cell, Column, Table};
use crate::show::Order;
use crate::show::format::age;
use crate::top::screen_state::{ScreenList, ScreenState};
use crate::top::views::{DrainingRow, ProblemRow, ServiceRow, TopView};

/// Returns the rows of `list` in `seen`, below titles.
pub(super) fn table(
    list: ScreenList,
    view: &TopView,
    state: &ScreenState,
    (seen, width): (Range<usize>, usize),
) -> Table {
    let kernel = view.kernel.as_ref().ok();
    let is_wide = width >= NARROW;
    match list {
        ScreenList::Services => {
            let top = kernel.and_then(|it| it.services.as_ref());
            let rows = top.map(|top| &top.rows[seen.clone()]).unwrap_or_default();
            let title = title("SERVICE", &seen, top.map_or(0, |top| top.count));
            Table {
                columns: service_columns(title, is_wide),
                rows: rows.iter().map(|row| service_row(row, state.order, is_wide)).collect(),
            }
        }
        ScreenList::Draining => {
            let top = kernel.and_then(|it| it.draining.as_ref());
            let rows = top.map(|top| &top.rows[seen.clone()]).unwrap_or_default();
            let title = title("DRAINING ENDPOINT", &seen, top.map_or(0, |top| top.count));
            Table {
                columns: draining_columns(title, is_wide),
                rows: rows.iter().map(|row| draining_row(row, is_wide)).collect(),
            }
        }
        ScreenList::Problems => {
            let top = view.daemon.as_ref().ok().map(|it| &it.problems);
            let rows = top.map(|top| &top.rows[seen.clone()]).unwrap_or_default();
            let title = title("PROBLEM", &seen, top.map_or(0, |top| top.count));
            let [age, times] = ["AGO", "TIMES"].map(Column::number);
            let [state, field, why] = ["STATE", "FIELD", "WHY"].map(Column::text);
            Table {
                columns: vec![Column::text(title), state, age, times, field, why],
                rows: rows.iter().map(problem_row).collect(),
            }
        }
    }
}

/// Returns the first title: the name, the visible rows and their total.
fn title(name: &str, seen: &Range<usize>, count: usize) -> String {
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

fn service_row(row: &ServiceRow, order: Order, is_wide: bool) -> Vec<Cell> {
    let sorted = |text: String, by: Order| {
        let style = if order == by { Modifier::BOLD } else { Modifier::empty() };
        Cell::styled(text, Style::new().add_modifier(style))
    };
    let mut cells = vec![sorted(or_dash(&row.service), Order::Name)];
    if is_wide {
        cells.push(Cell::plain(&*row.address));
    } else if row.service.is_empty() {
        cells[0] = Cell::plain(&*row.address);
    }
    let began = row.began_per_second.map_or_else(|| "-".to_owned(), number);
    cells.push(sorted(began, Order::Began));
    cells.push(sorted(row.active.to_string(), Order::Active));
    cells.push(sorted(row.new.to_string(), Order::New));
    if is_wide {
        cells.push(Cell::styled(row.ended.to_string(), FAINT));
    }
    cells.push(match row.endpoints {
        0 => Cell::styled("0", BAD),
        endpoints => Cell::plain(endpoints.to_string()),
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

fn draining_row(row: &DrainingRow, is_wide: bool) -> Vec<Cell> {
    let mut cells = vec![Cell::plain(&*row.endpoint), Cell::plain(or_dash(&row.service))];
    if is_wide {
        cells.push(Cell::plain(&*row.address));
    }
    cells.push(Cell::plain(row.connections.to_string()));
    cells.push(Cell::plain(row.oldest.map_or_else(|| "-".to_owned(), age)));
    cells
}

fn problem_row(row: &ProblemRow) -> Vec<Cell> {
    vec![
        Cell::plain(&*row.object),
        if row.is_present { Cell::styled("present", BAD) } else { Cell::plain("solved") },
        Cell::plain(age(row.age)),
        Cell::plain(row.count.to_string()),
        Cell::plain(or_dash(&row.field)),
        Cell::plain(&*row.message),
    ]
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}
