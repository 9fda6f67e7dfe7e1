//! Untrusted text, escaped for a log or a terminal.

use std::fmt::{self, Display, Write};

/// Prints a value with its control characters escaped as in Rust strings: a newline could forge a
/// log line, an escape sequence could change the terminal's display, and a change of direction
/// could show other words than those that are there.
pub struct Printable<T>(pub T);

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_unprintable) {
            match part.chars().next_back().filter(|last| is_unprintable(*last)) {
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

/// Returns whether a terminal may obey a character instead of showing it: controls, ends of lines
/// and paragraphs, and marks of direction.
fn is_unprintable(character: char) -> bool {
    let is_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_direction || matches!(character, '\u{2028}' | '\u{2029}')
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

    #[test]
    fn characters_that_change_the_direction_of_the_text_are_escaped() {
        let text = |text: &str| Printable(text).to_string();
        assert_eq!(text("a\u{202e}b\u{2066}c\u{200f}"), r"a\u{202e}b\u{2066}c\u{200f}");
        assert_eq!(text("\u{61c}שלום\u{2028}"), r"\u{61c}שלום\u{2028}");
    }
}
