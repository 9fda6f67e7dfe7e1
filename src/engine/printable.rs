//! Untrusted text, escaped for a log or a terminal.

use std::fmt::{self, Display, Write};

/// Prints a value with its control characters escaped as in Rust strings: a newline could forge a
/// log line, and an escape sequence could change the terminal's display.
pub struct Printable<T>(pub T);

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            match part.chars().next_back().filter(|last| last.is_control()) {
                Some(last) => {
                    self.0.write_str(&part[..part.len() - last.len_utf8()])?;
                    write!(self.0, "{}", last.escape_default())?;
                }
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_others_are_kept() {
        let text = |text: &str| Printable(text).to_string();
        assert_eq!(text("default/web: \"größe\" is wrong"), "default/web: \"größe\" is wrong");
        assert_eq!(text("a\nERROR forged\r"), r"a\nERROR forged\r");
        assert_eq!(text("\u{1b}[31mred\u{9b}2J"), r"\u{1b}[31mred\u{9b}2J");
        assert_eq!(text(""), "");
    }
}
