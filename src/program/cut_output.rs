//! Output cut to the lines of a terminal.

use std::io::{self, Write};

/// Truncates output to the lines of a terminal.
pub(super) struct CutOutput {
    text: Vec<u8>,
    left: usize,
    cut: usize,
}

/// Lines of a terminal that does not report its size.
const LINES: u16 = 24;

impl CutOutput {
    pub(super) fn new() -> Self {
        let size = terminal_size::terminal_size();
        let lines = size.map_or(LINES, |(_, terminal_size::Height(height))| height);
        Self { text: Vec::new(), left: usize::from(lines).saturating_sub(1), cut: 0 }
    }

    pub(super) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        match self.cut {
            0 => text.into_owned(),
            more => format!("{text}... {more} more lines"),
        }
    }
}

impl Write for CutOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = usize::from(part.ends_with(b"\n"));
            if self.left > 0 {
                self.text.extend_from_slice(part);
                self.left -= ends;
            } else {
                self.cut += ends;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_keeps_its_lines_and_counts_the_others() {
        let mut screen = CutOutput { text: Vec::new(), left: 2, cut: 0 };
        for text in ["one\ntw", "o\nthree\nfo", "ur\n"] {
            screen.write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(screen.text(), "one\ntwo\n... 2 more lines");
    }
}
