//! Types of options: those of fields in the file, and of the texts of flags.

use serde_json::{Value, json};

use crate::config::{duration, gates};
use crate::yaml;

/// The type of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum OptionKind {
    /// Text.
    Text,
    /// true or false; as a flag, true without a value.
    Flag,
    /// A flag that is true, false or raw; true without a value.
    Version,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// Go's notation of a duration, or 0.
    Duration,
    /// A list of texts; as a flag, with commas between them.
    Texts,
    /// A feature gate: true or false; as a flag, all gates with their values.
    Gate,
    /// An object whose fields are options too.
    Object,
    /// An object whose fields are ignored.
    Opaque,
    /// Any value; as a flag, text.
    Any,
}

impl OptionKind {
    /// Returns the expected type if `value` has another one. Null has every type: it means the
    /// default.
    pub(in crate::config) fn mismatch(self, value: &Value) -> Option<&'static str> {
        let (right, expected) = match self {
            Self::Text => (value.is_string(), "text (in quotes if need be)"),
            Self::Flag | Self::Gate => (value.is_boolean(), BOOLEAN),
            Self::Whole => (value.is_i64() || value.is_u64(), WHOLE),
            Self::Number => (value.is_number(), NUMBER),
            Self::Duration => (is_duration(value), DURATION),
            Self::Texts => (is_list_of_texts(value), "a list of texts"),
            Self::Object | Self::Opaque => (value.is_object(), "an object"),
            Self::Version | Self::Any => (true, ""),
        };
        (!right && !value.is_null()).then_some(expected)
    }

    /// Parses the text of a flag; the error is the expectation.
    pub(in crate::config) fn read(self, text: &str) -> Result<Value, &'static str> {
        match self {
            Self::Version if text == "raw" => Ok(text.into()),
            Self::Version => gates::boolean(text).map(Value::Bool).ok_or("true, false or raw"),
            Self::Flag => gates::boolean(text).map(Value::Bool).ok_or(BOOLEAN),
            Self::Whole => yaml::whole(text).map(Value::Number).ok_or(WHOLE),
            Self::Number => {
                text.replace('_', "").parse::<f32>().map(Value::from).map_err(|_| NUMBER)
            }
            Self::Duration => duration::signed(text).map(|_| text.into()).ok_or(DURATION),
            Self::Texts => entries(text).map(Value::from).ok_or("a list with commas"),
            Self::Gate => gates::read(text).ok_or(gates::EXPECTED),
            Self::Object | Self::Opaque => Ok(json!({})),
            Self::Text | Self::Any => Ok(text.into()),
        }
    }

    /// Returns a default as `/flagz` and help show it: durations in Go's notation.
    pub(in crate::config) fn shown(self, default: &str) -> String {
        match (self, duration::parse(default)) {
            (Self::Duration, Ok(time)) => duration::text(time),
            _ => default.to_owned(),
        }
    }
}

fn is_duration(value: &Value) -> bool {
    value.as_u64() == Some(0)
        || value.as_str().is_some_and(|text| text.is_empty() || duration::signed(text).is_some())
}

/// Splits a list at its commas. As in pflag, an entry may be in quotes, and a line ends the list.
fn entries(text: &str) -> Option<Vec<String>> {
    let line = text.trim_matches(['\r', '\n']).lines().next().unwrap_or_default();
    let mut entries: Vec<String> = Vec::from_iter((!line.is_empty()).then(String::new));
    let (mut letters, mut is_quoted) = (line.chars().peekable(), false);
    while let Some(letter) = letters.next() {
        let entry = entries.last_mut()?;
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => entry.push('"'),
            '"' if is_quoted && letters.peek().is_none_or(|next| *next == ',') => is_quoted = false,
            '"' if !is_quoted && entry.is_empty() => is_quoted = true,
            '"' => return None,
            ',' if !is_quoted => entries.push(String::new()),
            letter => entry.push(letter),
        }
    }
    (!is_quoted).then_some(entries)
}

fn is_list_of_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

const BOOLEAN: &str = "true or false";
const WHOLE: &str = "a whole number";
const NUMBER: &str = "a number";
const DURATION: &str = "a duration such as 1s, 1m30s or 500ms, or 0";
