//! Draws a view on a terminal, or writes it as plain text.
//!
//! Lines are laid out from the top; the lists share the remaining lines. Any screen size works.

mod numbers;
mod screen_lists;
mod style;
mod table;

use std::ops::Range;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};

use self::numbers::{count, number, percentile, span};
use self::style::{BAD, BOLD, FAINT, GOOD, NARROW};
use self::table::{Cell, Column, Table};
use super::scrape::{COUNTERS, TIMES};
use super::screen_state::{ScreenList, ScreenState};
use super::views::{DaemonView, KernelView, StateRow, Times, TopView, lengths};
use crate::show::format::age;

/// Rows of a list without focus, if another list needs the lines.
const FEW: usize = 3;

/// Columns between the two tables at the top.
const BETWEEN: usize = 4;

/// Most columns of plain text, and most rows of each list.
const PLAIN: (u16, usize) = (400, 20);

/// Draws a view. Limits the scroll offsets in `state`.
pub fn draw(frame: &mut Frame<'_>, view: &TopView, state: &mut ScreenState) {
    let area = frame.area();
    let keys = Some(keys(state));
    paint(frame.buffer_mut(), area, (view, keys), state);
}

/// Returns a view as plain text, with the first rows of each list.
pub fn plain(view: &TopView) -> String {
    let mut view = view.clone();
    let (width, most) = PLAIN;
    if let Ok(kernel) = &mut view.kernel {
        kernel.connections.iter_mut().for_each(|it| it.truncate(most));
    }
    if let Ok(daemon) = &mut view.daemon {
        daemon.problems.rows.truncate(most);
    }
    let (head, lists) = (head(&view, width.into()).len(), lengths(&view).into_iter().flatten());
    let lines = head + lists.map(|length| length + 2).sum::<usize>();
    let area = Rect::new(0, 0, width, u16::try_from(lines).unwrap_or(u16::MAX));
    let mut buffer = Buffer::empty(area);
    paint(&mut buffer, area, (&view, None), &mut ScreenState::default());
    let mut text = String::new();
    for y in 0..area.height {
        // A wide character is stored in its first cell; the next cell is skipped.
        let (mut line, mut next) = (String::new(), 0);
        for x in 0..area.width {
            if x >= next {
                let symbol = buffer[(x, y)].symbol();
                line.push_str(symbol);
                next = x + u16::try_from(Span::raw(symbol).width()).unwrap_or(1).max(1);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn paint(
    buffer: &mut Buffer,
    area: Rect,
    (view, keys): (&TopView, Option<Line<'static>>),
    state: &mut ScreenState,
) {
    let width = usize::from(area.width);
    let height = usize::from(area.height).saturating_sub(usize::from(keys.is_some()));
    let mut lines = head(view, width);
    lines.extend(lists(view, state, (height.saturating_sub(lines.len()), width)));
    for (line, row) in lines.iter().zip(area.rows()).take(height) {
        buffer.set_line(row.x, row.y, line, row.width);
    }
    if let (Some(keys), Some(last)) = (keys, area.rows().next_back()) {
        buffer.set_line(last.x, last.y, &keys, last.width);
    }
}

fn keys(state: &ScreenState) -> Line<'static> {
    let parts = [
        ("q", " quit  "),
        ("Tab", " list: "),
        ("", state.focus.name()),
        ("  Up/Down", " scroll  "),
        ("s", " sort: "),
        ("", state.order.name()),
    ];
    let spans = parts.map(|(key, text)| [Span::styled(key, BOLD), Span::raw(text)]);
    Line::from_iter(spans.into_iter().flatten())
}

/// Returns all lines above the lists.
fn head(view: &TopView, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![first_line(view)];
    if let Err(why) = &view.daemon {
        let text = format!("no daemon: {why}; the screen has what the kernel holds");
        lines.push(Line::styled(text, BAD));
    }
    match &view.kernel {
        Err(why) => {
            let text = format!("services and connections are not shown: {why}");
            lines.push(Line::styled(text, BAD));
        }
        Ok(kernel) => {
            lines.extend(kernel.notes.iter().map(|note| Line::styled(note.clone(), BAD)));
        }
    }
    lines.extend(rates(view));
    if let Ok(daemon) = &view.daemon {
        lines.push(Line::default());
        lines.extend(side_by_side(daemon, width));
    }
    lines
}

fn first_line(view: &TopView) -> Line<'static> {
    let mut spans = vec![Span::styled("deltaproxy top", BOLD)];
    let mut add = |text: String, style| {
        spans.push(Span::raw("  "));
        spans.push(Span::styled(text, style));
    };
    if let Ok(daemon) = &view.daemon {
        add(daemon.condition.clone(), if daemon.is_good { GOOD } else { BAD });
        add(format!("node {}", daemon.node), Style::new());
        add(format!("up {}", age(daemon.up)), Style::new());
        add(format!("version {}", daemon.version), FAINT);
        add(daemon.source.clone(), FAINT);
    } else if let Ok(KernelView { frontends, .. }) = &view.kernel {
        add(format!("{frontends} addresses of services in the tables"), Style::new());
    }
    Line::from(spans)
}

/// Returns changes and transactions per second; without a daemon, the commits of all programs.
fn rates(view: &TopView) -> Option<Line<'static>> {
    let (rates, span_of): (Vec<(&str, f64)>, _) = match (&view.daemon, &view.kernel) {
        (Ok(daemon), _) => {
            let rates = COUNTERS.iter().map(|(name, _)| *name).zip(daemon.rates?);
            (rates.collect(), daemon.span?)
        }
        (Err(_), Ok(kernel)) => {
            (vec![("commits of all programs", kernel.commits_per_second?)], kernel.span?)
        }
        (Err(_), Err(_)) => return None,
    };
    let mut spans = vec![Span::styled(format!("per second, last {}:", span(span_of)), FAINT)];
    for (name, rate) in rates {
        let is_bad = rate > 0.0 && matches!(name, "refused" | "failed syncs" | "problems");
        let style = if is_bad { BAD } else { BOLD };
        spans.push(Span::raw(format!("  {name} ")));
        spans.push(Span::styled(number(rate), style));
    }
    Some(Line::from(spans))
}

/// Places times left, and watches and tables right, or below on a narrow screen.
fn side_by_side(daemon: &DaemonView, width: usize) -> Vec<Line<'static>> {
    let (times, states) = (times(daemon, width), states(daemon));
    let left = times.lines(width);
    let used = left.iter().map(Line::width).max().unwrap_or_default() + BETWEEN;
    let right = states.lines(width.saturating_sub(used));
    if right.iter().map(Line::width).max().unwrap_or_default() + used > width {
        return left.into_iter().chain(states.lines(width)).collect();
    }
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let mut lines = Vec::new();
    loop {
        match (left.next(), right.next()) {
            (None, None) => return lines,
            (one, None) => lines.extend(one),
            (one, Some(other)) => {
                let mut line = one.unwrap_or_default();
                line.push_span(" ".repeat(used.saturating_sub(line.width())));
                other.spans.into_iter().for_each(|span| line.push_span(span));
                lines.push(line);
            }
        }
    }
}

fn times(daemon: &DaemonView, width: usize) -> Table {
    let last = daemon.span.map_or_else(|| "TIMES".to_owned(), |it| format!("LAST {}", span(it)));
    let mut columns = vec![Column::text(last)];
    columns.extend(["COUNT", "P50", "P99"].map(Column::number));
    let is_wide = width >= NARROW;
    if is_wide {
        columns.extend(["ALL", "P50", "P99"].map(Column::number));
    }
    let cells = |times: Option<Times>, style| {
        let cell = |text| Cell::styled(text, style);
        match times {
            None => ["-"; 3].map(|text| cell(text.to_owned())),
            Some(times) => {
                [count(times.count), percentile(times.p50), percentile(times.p99)].map(cell)
            }
        }
    };
    let rows = TIMES.iter().zip(&daemon.times).map(|((name, ..), times)| {
        let mut row = vec![Cell::plain(name)];
        row.extend(cells(times.recent, Style::new()));
        if is_wide {
            row.extend(cells(Some(times.all), FAINT));
        }
        row
    });
    Table { columns, rows: rows.collect() }
}

fn states(daemon: &DaemonView) -> Table {
    let row = |row: &StateRow| {
        let style = if row.is_good { GOOD } else { BAD };
        let ago = row.age.map_or_else(|| "never".to_owned(), age);
        vec![Cell::plain(&row.name), Cell::styled(&row.state, style), Cell::plain(ago)]
    };
    let [name, state] = ["WATCH OR TABLE", "STATE"].map(Column::text);
    Table {
        columns: vec![name, state, Column::number("AGO")],
        rows: daemon.watches.iter().chain(&daemon.families).map(row).collect(),
    }
}

/// Returns the lists, each after a blank line, in `left` lines.
fn lists(
    view: &TopView,
    state: &mut ScreenState,
    (left, width): (usize, usize),
) -> Vec<Line<'static>> {
    let lengths = lengths(view);
    let focus = state.focus.place();
    state.heights = heights(left, lengths, focus);
    let mut lines = Vec::new();
    for list in ScreenList::ALL {
        let place = list.place();
        let Some(length) = lengths[place] else { continue };
        let height = state.heights[place];
        let offset = state.offsets[place].min(length.saturating_sub(height));
        state.offsets[place] = offset;
        let seen: Range<usize> = offset..length.min(offset + height);
        lines.push(Line::default());
        lines.extend(screen_lists::table(list, view, state, (seen, width)).lines(width));
    }
    lines
}

/// Returns the rows of each list: first a few for each, then the remaining ones, beginning with the list in
/// focus. Each visible list needs two more lines.
fn heights(left: usize, lengths: [Option<usize>; 3], focus: usize) -> [usize; 3] {
    let shown = lengths.iter().flatten().count();
    let mut left = left.saturating_sub(2 * shown);
    let mut heights = [0; 3];
    let order = || std::iter::once(focus).chain((0..3).filter(move |place| *place != focus));
    for most in [FEW, usize::MAX] {
        for place in order() {
            let wanted = lengths[place].unwrap_or_default().min(most) - heights[place];
            let given = wanted.min(left);
            heights[place] += given;
            left -= given;
        }
    }
    heights
}

#[cfg(test)]
mod tests;
