//! Aligned columns of text.

/// Returns the width of each column, in characters.
pub fn widths(lines: &[impl AsRef<[String]>]) -> Vec<usize> {
    let cells = |column: usize| lines.iter().filter_map(move |line| line.as_ref().get(column));
    let columns = (0..).map(|column| cells(column).map(|cell| cell.chars().count()).max());
    columns.map_while(|width| width).collect()
}

/// Returns a line without its end. Cells are at the left of their columns, or where `to_right` says
/// so, as for numbers, at the right.
pub fn line(
    cells: impl IntoIterator<Item = impl AsRef<str>>,
    widths: &[usize],
    to_right: impl Fn(usize) -> bool,
) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.into_iter().zip(widths).enumerate() {
        let (separator, cell) = (if column == 0 { "" } else { "  " }, cell.as_ref());
        line += separator;
        line +=
            &if to_right(column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_in_characters() {
        let lines = [vec!["a", "22", "x"], vec!["äöü", "3"]];
        let lines = lines.map(|line| line.into_iter().map(str::to_owned).collect::<Vec<_>>());
        let widths = widths(&lines);
        assert_eq!(widths, [3, 2, 1]);
        let written = lines.map(|it| line(&it, &widths, |column| column == 1));
        assert_eq!(written, ["a    22  x", "äöü   3"]);
        assert_eq!(line(["a", "1", ""], &widths, |_| false), "a    1", "no spaces at the end");
    }
}
