//! Values of scalars, by the rules of go-yaml 2.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use granit_parser::{ScalarStyle, Tag};
use serde_json::{Number, Value};

/// Returns the name of a tag of YAML; others have none.
pub(super) fn name_of(tag: &Tag) -> Cow<'_, str> {
    tag.suffix_in_namespace("tag:yaml.org,2002:").unwrap_or_default()
}

/// Returns the value of a scalar; the error is why it has none.
pub(super) fn scalar(text: &str, style: ScalarStyle, tag: Option<&str>) -> Result<Value, String> {
    let value = match tag {
        None if style == ScalarStyle::Plain => return plain(text),
        Some("int" | "float" | "bool" | "null") => plain(text)?,
        Some("binary") => {
            let digits: String = text.split(['\r', '\n']).collect();
            let bytes = BASE64_STANDARD.decode(digits).map_err(|_| "is not Base64".to_owned())?;
            return Ok(String::from_utf8_lossy(&bytes).into());
        }
        None | Some(_) => return Ok(text.into()),
    };
    match (tag.unwrap_or_default(), &value) {
        // A float without decimals is a whole number in JSON, but not in the text.
        ("int", Value::Number(_)) if whole(text).is_some() => Ok(value),
        ("float", Value::Number(_)) | ("bool", Value::Bool(_)) | ("null", Value::Null) => Ok(value),
        (tag, _) => Err(format!("{text:?} does not have the type !!{tag}")),
    }
}

/// Returns the value of an unquoted scalar; JSON has no infinity and no not-a-number.
fn plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF"
        | ".nan" | ".NaN" | ".NAN" => return Err(format!("{text} is not a number that JSON has")),
        _ => number(text).map_or_else(|| text.into(), Value::Number),
    })
}

/// Returns the number that a text is, as Go's `strconv` does; `_` may stand between digits.
fn number(text: &str) -> Option<Number> {
    match text.as_bytes().first()? {
        b'.' => decimal(text),
        b'+' | b'-' | b'0'..=b'9' => whole(text).or_else(|| decimal(&text.replace('_', ""))),
        _ => None,
    }
}

/// Reads a whole number with the base of its prefix: `0x1f`, `0b1`, `0o17`, and `017`.
pub(crate) fn whole(text: &str) -> Option<Number> {
    let text = text.replace('_', "");
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let (start, radix) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (2, 16),
        [b'0', b'o' | b'O', ..] => (2, 8),
        [b'0', b'b' | b'B', ..] => (2, 2),
        [b'0', _, ..] => (1, 8),
        _ => (0, 10),
    };
    // The parser would take a second sign.
    let digits = unsigned.get(start..).filter(|it| it.chars().all(|c| c.is_digit(radix)))?;
    let size = u64::from_str_radix(digits, radix).ok()?;
    if !text.starts_with('-') {
        return Some(size.into());
    }
    0_i64.checked_sub_unsigned(size).map(Into::into)
}

/// Reads a number with decimals or an exponent. Without a fraction it is a whole number in JSON.
fn decimal(text: &str) -> Option<Number> {
    let is_form = text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    let number: f64 = Some(text).filter(|_| is_form)?.parse().ok()?;
    let whole = (number.fract() == 0.0).then(|| format!("{number:.0}").parse::<i64>().ok());
    whole.flatten().map(Number::from).or_else(|| Number::from_f64(number))
}
