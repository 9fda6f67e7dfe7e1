//! nft(8) text that several objects share: names, comments, durations, lists.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Name of a table, chain or set.
pub type Name = Cow<'static, str>;

/// Maximum length of a comment in bytes: `NFTNL_UDATA_COMMENT_MAXLEN` in libnftnl.
const COMMENT_LIMIT: usize = 128;

/// Returns a comment that nft(8) can print and read: at most 128 bytes, truncated at a character
/// boundary, without quotes and control characters, which it cannot escape.
pub(super) fn comment(text: &str) -> Cow<'_, str> {
    let text = &text[..text.floor_char_boundary(COMMENT_LIMIT)];
    if text.contains(unprintable) {
        Cow::Owned(text.replace(unprintable, "'"))
    } else {
        Cow::Borrowed(text)
    }
}

fn unprintable(character: char) -> bool {
    character == '"' || character.is_control()
}

/// Writes `comment "…"` after a space; nothing without a comment.
pub(super) struct Comment<'a>(pub(super) Option<&'a str>);

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, " comment \"{}\"", comment(text)),
            None => Ok(()),
        }
    }
}

/// A duration as printed by nft(8), `1h30m`; in milliseconds.
pub(super) struct Time(pub(super) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, length) in UNITS {
            let count = rest / length;
            rest %= length;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

const UNITS: [(&str, u128); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Returns the items with a separator between them.
pub(super) fn joined<I>(items: I, separator: &str) -> impl fmt::Display
where
    I: Iterator<Item: fmt::Display> + Clone,
{
    fmt::from_fn(move |f| {
        for (i, item) in items.clone().enumerate() {
            f.write_str(if i > 0 { separator } else { "" })?;
            write!(f, "{item}")?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_printed_in_the_units_of_nft() {
        let text = |ms| Time(Duration::from_millis(ms)).to_string();
        assert_eq!(text(600_000), "10m");
        assert_eq!(text(10_800_000), "3h");
        assert_eq!(text(90_061_001), "1d1h1m1s1ms");
        assert_eq!(text(0), "0s");
    }

    #[test]
    fn a_comment_is_cut_between_characters_and_has_no_quote() {
        assert_eq!(comment("default/web:http"), "default/web:http");
        assert_eq!(comment("a\"b\nc"), "a'b'c");
        assert_eq!(comment(&format!("{}é", "x".repeat(127))).len(), 127);
        assert_eq!(comment(&"x".repeat(200)).len(), 128);
    }
}
