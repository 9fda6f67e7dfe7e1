//! Columns as wide as their cells, in lines as wide as the screen.

use std::borrow::Cow;
use std::fmt::Display;

use engine::printable::Printable;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};

/// Spaces between columns.
const GAP: usize = 2;

/// Minimum width of a truncated column.
const LEAST: usize = 8;

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: String,
    /// Cells are numbers, aligned right.
    is_number: bool,
    /// Cells are truncated if lines are too long.
    may_be_cut: bool,
    least: usize,
}

/// A text with its style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) style: Style,
}

/// Rows below titles.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Column {
    /// Returns a column of texts, aligned left.
    pub(super) fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), is_number: false, may_be_cut: true, least: 0 }
    }

    /// Returns a column of numbers, aligned right, wide enough for most of them.
    pub(super) fn number(title: impl Into<String>) -> Self {
        Self { title: title.into(), is_number: true, may_be_cut: false, least: 6 }
    }
}

impl Cell {
    pub(super) fn plain(text: impl Display) -> Self {
        Self::styled(text, Style::new())
    }

    /// Returns a cell of a text whose control characters are escaped.
    pub(super) fn styled(text: impl Display, style: Style) -> Self {
        Self { text: Printable(text).to_string(), style }
    }
}

impl Table {
    /// Returns the titles and the rows, at most `width` wide if columns can be truncated.
    pub(super) fn lines(&self, width: usize) -> Vec<Line<'static>> {
        let widths = self.widths(width);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let titles = self.columns.iter().map(|column| Cell::styled(&*column.title, bold)).collect();
        let rows = std::iter::once(&titles).chain(&self.rows);
        rows.map(|row: &Vec<Cell>| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[Cell], widths: &[usize]) -> Line<'static> {
        let mut spans = Vec::new();
        for ((column, cell), width) in self.columns.iter().zip(row).zip(widths) {
            if !spans.is_empty() {
                spans.push(Span::raw(" ".repeat(GAP)));
            }
            let text = cut(&cell.text, *width);
            let room = " ".repeat(width.saturating_sub(columns(&text)));
            let text = if column.is_number { room + &text } else { text.into_owned() + &room };
            spans.push(Span::styled(text, cell.style));
        }
        Line::from(spans)
    }

    fn widths(&self, width: usize) -> Vec<usize> {
        let widest = |(place, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(place));
            let widest = cells.map(|cell| columns(&cell.text)).max().unwrap_or_default();
            widest.max(columns(&column.title)).max(column.least)
        };
        let mut widths: Vec<_> = self.columns.iter().enumerate().map(widest).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        loop {
            let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
            let cuttable = (0..widths.len())
                .filter(|place| self.columns[*place].may_be_cut && widths[*place] > LEAST);
            let Some(place) = cuttable.max_by_key(|place| widths[*place]) else { return widths };
            if excess == 0 {
                return widths;
            }
            widths[place] -= excess.min(widths[place] - LEAST).min(STEP);
        }
    }
}

/// Columns are truncated in turn by this step, so that the widest lose most.
const STEP: usize = 4;

/// Truncates a text to `width` columns; `…` marks the cut.
pub(super) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    let mut cut = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += columns(letter.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        cut.push(letter);
    }
    if width > 0 {
        cut.push('…');
    }
    Cow::Owned(cut)
}

/// Returns the terminal columns of a text.
fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cells: &[[&str; 3]]) -> Table {
        let columns = vec![Column::text("NAME"), Column::number("N"), Column::text("WHY")];
        let rows = cells.iter().map(|row| row.iter().map(|text| Cell::plain(*text)).collect());
        Table { columns, rows: rows.collect() }
    }

    fn lines(table: &Table, width: usize) -> Vec<String> {
        table.lines(width).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let table = table(&[["größe", "7", "x"], ["a", "1234567", "yy"]]);
        assert_eq!(
            lines(&table, 80),
            ["NAME         N  WHY", "größe        7  x  ", "a      1234567  yy "]
        );
    }

    #[test]
    fn the_widest_texts_are_cut_to_the_screen() {
        let table = table(&[["a-name-of-twenty-five-xyz", "7", "a-reason-of-sixteen"]]);
        let cut = &lines(&table, 40)[1];
        assert_eq!(cut.chars().count(), 40, "{cut}");
        assert_eq!(cut, "a-name-of-twen…       7  a-reason-of-si…");
        let least = &lines(&table, 3)[1];
        assert_eq!(least, "a-name-…       7  a-reaso…");
    }

    #[test]
    fn a_cut_text_ends_with_a_mark_and_is_no_wider_than_wanted() {
        for (text, width, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("漢字漢", 4, "漢…"),
            ("a", 0, ""),
            ("ab", 1, "…"),
        ] {
            assert_eq!(cut(text, width), expected);
            assert!(columns(&cut(text, width)) <= width);
        }
    }
}
