//! Texts of an object: borrowed from the input, or stored in one string.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, Range};

use serde::de::{Deserialize, Deserializer, Visitor};

/// A string, borrowed from the input unless it has escapes of JSON or bytes that are not UTF-8.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<Text<'_>> for String {
    fn from(Text(text): Text<'_>) -> Self {
        text.into_owned()
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self(text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text)))
    }
}

/// Many texts in one string, each identified by its [`Span`].
#[derive(Clone, Debug, Default)]
pub(super) struct Texts(String);

/// Position of a text in [`Texts`]; the default is that of the empty text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Texts {
    /// Returns an empty value with capacity for `bytes`.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Appends a text.
    pub(super) fn add(&mut self, text: &str) -> Span {
        let start = self.0.len();
        self.0.push_str(text);
        self.span_from(start)
    }

    /// Appends `first/second`.
    pub(super) fn add_path(&mut self, first: Span, second: Span) -> Span {
        let start = self.0.len();
        self.0.extend_from_within(first.range());
        self.0.push('/');
        self.0.extend_from_within(second.range());
        self.span_from(start)
    }

    /// Appends a name to a list, which is empty or the last item appended, and returns the list.
    pub(super) fn extend_list(&mut self, list: Span, name: &str) -> Span {
        let start = if list.is_empty() { self.0.len() } else { list.start as usize };
        // No zone or node has a name with a line end, or with the space that replaces it.
        if name.contains(LINE_END) {
            self.0.push_str(&name.replace(LINE_END, " "))
        } else {
            self.0.push_str(name)
        }
        self.0.push(LINE_END);
        self.span_from(start)
    }

    /// Returns the text at `span`, which this value must have returned.
    pub(super) fn at(&self, span: Span) -> &str {
        &self.0[span.range()]
    }

    /// Returns the names of the list at `span`, which this value must have returned.
    pub(super) fn list_at(&self, span: Span) -> impl Iterator<Item = &str> + Clone {
        self.at(span).split_terminator(LINE_END)
    }

    /// Returns the span from `start` to the end; empty beyond 4 GiB, which no object has.
    fn span_from(&self, start: usize) -> Span {
        match (u32::try_from(start), u32::try_from(self.0.len())) {
            (Ok(start), Ok(end)) => Span { start, end },
            (Ok(_) | Err(_), Ok(_) | Err(_)) => Span::default(),
        }
    }
}

impl Span {
    /// Returns whether the text or the list is empty.
    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Ends each name of a list.
const LINE_END: char = '\n';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_borrowed_unless_it_has_escapes() {
        let texts: [Text<'_>; 2] = serde_json::from_str(r#"["node-1", "node\u002d1"]"#).unwrap();
        assert!(matches!(texts[0].0, Cow::Borrowed("node-1")));
        assert!(matches!(&texts[1].0, Cow::Owned(text) if text == "node-1"));
        let error = serde_json::from_str::<Text<'_>>("7").unwrap_err().to_string();
        assert!(error.contains("invalid type: integer `7`, expected a string"), "{error}");
    }

    #[test]
    fn texts_and_lists_are_read_as_they_were_appended() {
        let mut texts = Texts::with_capacity(64);
        let (namespace, name) = (texts.add("default"), texts.add("web"));
        let path = texts.add_path(namespace, name);
        let none = Span::default();
        let list = ["a", "", "b\nc"].iter().fold(none, |list, name| texts.extend_list(list, name));
        let nobody = texts.extend_list(none, "");
        assert_eq!(
            [namespace, name, path].map(|it| texts.at(it)),
            ["default", "web", "default/web"]
        );
        assert_eq!(texts.list_at(list).collect::<Vec<_>>(), ["a", "", "b c"]);
        assert_eq!(texts.list_at(nobody).collect::<Vec<_>>(), [""]);
        assert_eq!(texts.list_at(none).count(), 0);
        assert!(!nobody.is_empty() && none.is_empty());
        assert_eq!(texts.at(none), "");
    }
}
