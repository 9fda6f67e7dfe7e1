//! YAML and JSON text, parsed into JSON values with the line of each part.
//!
//! Any text yields values or a [`SyntaxError`]: depth, size and the bytes copied by aliases are
//! limited, and a duplicate key is an error. The exception is JSON that the YAML library refuses,
//! such as surrogate pairs: of equal keys the last one counts, values may be nested up to 127
//! levels, and every part is on line 1. Plain scalars have the same meaning as in kubectl
//! (YAML 1.1 `yes`, `no`, `on` and `off` are booleans).

use std::collections::{BTreeMap, HashMap};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Number, Value};

/// Longest accepted text in bytes: a list of 100,000 services with a million endpoints is shorter.
pub const MAX_TEXT: usize = 512 << 20;

/// Deepest accepted nesting of sequences and mappings. API objects have fewer than 30 levels.
pub const MAX_DEPTH: usize = 100;

/// Maximum sum of values and bytes of strings that aliases may copy in one text.
const MAX_COPIED: usize = 8 << 20;

/// One document of a text: a value, and the line of each part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Content of the document.
    pub value: Value,
    lines: Lines,
}

impl Document {
    /// Returns a document without content, on line 1.
    pub fn empty() -> Self {
        Self::of(Value::Null)
    }

    /// Returns a document that was not parsed from text: every part is on line 1.
    pub fn of(value: Value) -> Self {
        Self { value, lines: Lines { line: 1, children: Box::default() } }
    }

    /// Returns the line of the text (the first is 1) on which the part at `path` is.
    ///
    /// A path consists of keys and positions, as in `spec.ports[0].port`; keys may contain dots. A
    /// missing part has the line of its nearest existing parent; the empty path and `.` mean the
    /// document itself.
    pub fn line_of(&self, path: &str) -> usize {
        let (mut value, mut lines, mut rest) = (&self.value, &self.lines, path);
        while let Some((inner, inner_lines, after)) = step(value, lines, rest) {
            (value, lines, rest) = (inner, inner_lines, after);
        }
        lines.line as usize
    }
}

/// Why a text is not accepted as YAML or JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

/// Returns the documents of a YAML stream or JSON text, in their order. Leaves out documents that
/// are empty or `null`.
///
/// # Errors
/// The first place that is not valid YAML, exceeds a limit, or repeats a key.
pub fn parse(text: &str) -> Result<Vec<Document>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_TEXT {
        return Err(at(&Marker::new(0, 1, 0), format!("text is longer than {MAX_TEXT} bytes")));
    }
    let mut parser = Parser::new_from_str(text);
    match documents(&mut parser) {
        Ok(documents) => Ok(documents),
        // JSON that the YAML library refuses, such as surrogate pairs: parsed without lines.
        Err(Failure::Scan(error)) => json(text).ok_or_else(|| error.into()),
        Err(Failure::Refused(error)) => Err(error),
    }
}

/// Where parsing stopped: in the YAML library, or at one of our own limits.
enum Failure {
    Scan(ScanError),
    Refused(SyntaxError),
}

impl From<SyntaxError> for Failure {
    fn from(error: SyntaxError) -> Self {
        Self::Refused(error)
    }
}

impl From<ScanError> for SyntaxError {
    fn from(error: ScanError) -> Self {
        at(error.marker(), error.info().to_owned())
    }
}

fn documents(parser: &mut Parser<'_, StrInput<'_>>) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    let mut builder = Builder::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(Failure::Scan)?;
        if let Some(root) = builder.add(event, &span)?
            && !root.value.is_null()
        {
            documents.push(Document { value: root.value, lines: root.lines });
        }
    }
    Ok(documents)
}

/// Parses `text` as one JSON document without lines, by the rules of `serde_json`.
fn json(text: &str) -> Option<Vec<Document>> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let value = serde_json::from_str(text).ok()?;
    Some(vec![Document { value, lines: Lines { line: 1, children: Box::default() } }])
}

/// Line of a value and of its children: items in their order, entries in the order of keys.
#[derive(Debug, Clone, PartialEq)]
struct Lines {
    line: u32,
    children: Box<[Self]>,
}

/// Returns the child of `value` that `path` begins with, its lines, and the remaining path.
fn step<'a>(
    value: &'a Value,
    lines: &'a Lines,
    path: &'a str,
) -> Option<(&'a Value, &'a Lines, &'a str)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if let Some(items) = value.as_array() {
        let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
        let index: usize = index.parse().ok()?;
        return Some((items.get(index)?, lines.children.get(index)?, rest));
    }
    let map = value.as_object()?;
    // The longest key wins: `a.b` is the entry "a.b" if it exists, else "b" inside "a".
    let key = map.keys().filter(|key| begins_with(path, key)).max_by_key(|key| key.len())?;
    let rank = map.keys().filter(|other| *other < key).count();
    Some((map.get(key)?, lines.children.get(rank)?, path.get(key.len()..)?))
}

fn begins_with(path: &str, key: &str) -> bool {
    !key.is_empty()
        && path
            .strip_prefix(key)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('['))
}

/// A finished value with its lines, and its cost per copy.
#[derive(Debug, Clone)]
struct Node {
    value: Value,
    lines: Lines,
    weight: usize,
}

/// A sequence or mapping that has not ended yet.
enum Open {
    Sequence {
        line: u32,
        anchor: usize,
        items: Vec<Node>,
    },
    Mapping {
        line: u32,
        anchor: usize,
        entries: BTreeMap<String, Node>,
        /// Key without its value yet, and the key's line.
        key: Option<(String, u32)>,
    },
}

/// Builds values from parser events.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    copied: usize,
}

impl Builder {
    /// Adds the next event. Returns the root when the event completes it.
    fn add(&mut self, event: Event<'_>, span: &Span) -> Result<Option<Node>, SyntaxError> {
        let start = &span.start;
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(None),
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(None)
            }
            Event::Alias(anchor) => {
                let node = self.alias(anchor, start)?;
                self.value(node, start)
            }
            Event::Scalar(text, style, anchor, tag) => {
                if self.expects_key() {
                    return self.key(&text, style, start).map(|()| None);
                }
                let node = scalar(&text, style, tag.as_deref(), start)?;
                self.remember(anchor, &node, start)?;
                self.value(node, start)
            }
            Event::SequenceStart(anchor, _) => {
                self.open(Open::Sequence { line: line(start), anchor, items: Vec::new() }, start)
            }
            Event::MappingStart(anchor, _) => {
                let entries = BTreeMap::new();
                let mapping = Open::Mapping { line: line(start), anchor, entries, key: None };
                self.open(mapping, start)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(start),
        }
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Mapping { key: None, .. }))
    }

    fn open(&mut self, open: Open, start: &Marker) -> Result<Option<Node>, SyntaxError> {
        if self.expects_key() {
            return Err(at(start, "a key must be a scalar".to_owned()));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(at(start, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.open.push(open);
        Ok(None)
    }

    fn close(&mut self, end: &Marker) -> Result<Option<Node>, SyntaxError> {
        let (anchor, node) = match self.open.pop() {
            Some(Open::Sequence { line, anchor, items }) => (anchor, sequence(line, items)),
            Some(Open::Mapping { line, anchor, entries, .. }) => (anchor, mapping(line, entries)),
            None => return Err(at(end, "end of a collection that was not begun".to_owned())),
        };
        self.remember(anchor, &node, end)?;
        self.value(node, end)
    }

    fn key(&mut self, text: &str, style: ScalarStyle, start: &Marker) -> Result<(), SyntaxError> {
        let Some(Open::Mapping { entries, key, .. }) = self.open.last_mut() else { return Ok(()) };
        if text == "<<" && style == ScalarStyle::Plain {
            return Err(at(start, "merge keys (<<) are not supported".to_owned()));
        }
        if let Some(first) = entries.get(text) {
            let first = first.lines.line;
            return Err(at(start, format!("key {text:?} is already on line {first}")));
        }
        *key = Some((text.to_owned(), line(start)));
        Ok(())
    }

    /// Adds a finished value to the open collection; without one the value is the root.
    fn value(&mut self, mut node: Node, start: &Marker) -> Result<Option<Node>, SyntaxError> {
        match self.open.last_mut() {
            None => return Ok(Some(node)),
            Some(Open::Sequence { items, .. }) => items.push(node),
            Some(Open::Mapping { entries, key, .. }) => {
                let Some((key, line)) = key.take() else {
                    return Err(at(start, "a key must be a scalar, not an alias".to_owned()));
                };
                node.lines.line = line;
                entries.insert(key, node);
            }
        }
        Ok(None)
    }

    fn remember(&mut self, anchor: usize, node: &Node, at: &Marker) -> Result<(), SyntaxError> {
        if anchor != 0 {
            self.charge(node.weight, at)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, start: &Marker) -> Result<Node, SyntaxError> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(at(start, "alias inside the value that it names".to_owned()));
        };
        let mut node = node.clone();
        node.lines.line = line(start);
        self.charge(node.weight, start)?;
        Ok(node)
    }

    /// Counts copied values, so that a short text of aliases cannot grow without limit.
    fn charge(&mut self, weight: usize, marker: &Marker) -> Result<(), SyntaxError> {
        self.copied = self.copied.saturating_add(weight);
        if self.copied > MAX_COPIED {
            return Err(at(marker, "anchors and aliases copy too much".to_owned()));
        }
        Ok(())
    }
}

fn sequence(line: u32, items: Vec<Node>) -> Node {
    let weight = items.iter().map(|item| item.weight).sum::<usize>() + 1;
    let (values, children): (Vec<_>, Vec<_>) =
        items.into_iter().map(|item| (item.value, item.lines)).unzip();
    Node { value: Value::Array(values), lines: Lines { line, children: children.into() }, weight }
}

fn mapping(line: u32, entries: BTreeMap<String, Node>) -> Node {
    let weight = entries.iter().map(|(key, node)| key.len() + node.weight).sum::<usize>() + 1;
    let mut map = Map::new();
    let mut children = Vec::with_capacity(entries.len());
    for (key, node) in entries {
        map.insert(key, node.value);
        children.push(node.lines);
    }
    Node { value: Value::Object(map), lines: Lines { line, children: children.into() }, weight }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    start: &Marker,
) -> Result<Node, SyntaxError> {
    let value = match (tag.filter(|tag| tag.is_yaml_core_schema()), style) {
        (Some(tag), _) if tag.suffix == "str" => Some(Value::String(text.to_owned())),
        (Some(_), _) | (None, ScalarStyle::Plain) => plain(text),
        (None, _) => Some(Value::String(text.to_owned())),
    };
    let Some(value) = value else {
        return Err(at(start, format!("{text} is not a number that JSON has")));
    };
    let weight = text.len() + 1;
    Ok(Node { value, lines: Lines { line: line(start), children: Box::default() }, weight })
}

/// Returns the value of an unquoted scalar; `None` for infinity and not-a-number, which JSON lacks.
fn plain(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ => match number(text.strip_prefix('+').unwrap_or(text)) {
            Some(number) => Value::Number(number),
            None if is_infinite(text) => return None,
            None => Value::String(text.to_owned()),
        },
    })
}

fn is_infinite(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
}

fn number(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if text == unsigned
        && let Some((digits, radix)) = radix(text)
    {
        let digits_only = digits.chars().all(|c| c.is_digit(radix));
        return digits_only
            .then(|| u64::from_str_radix(digits, radix).ok())
            .flatten()
            .map(Into::into);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    let float = unsigned.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    float.then(|| text.parse().ok().and_then(Number::from_f64)).flatten()
}

/// Splits `0x1f`, `0b1`, `0o17`, and YAML 1.1's octal `017` into digits and base.
fn radix(text: &str) -> Option<(&str, u32)> {
    let rest = text.strip_prefix('0').filter(|rest| !rest.is_empty())?;
    match rest.as_bytes().first()? {
        b'x' => Some((rest.get(1..)?, 16)),
        b'o' => Some((rest.get(1..)?, 8)),
        b'b' => Some((rest.get(1..)?, 2)),
        _ if rest.bytes().all(|b| b.is_ascii_digit()) => Some((rest, 8)),
        _ => None,
    }
}

/// Returns the line of a marker. A text has fewer lines than `u32::MAX` (see [`MAX_TEXT`]).
fn line(marker: &Marker) -> u32 {
    u32::try_from(marker.line()).unwrap_or(u32::MAX)
}

fn at(marker: &Marker, message: String) -> SyntaxError {
    SyntaxError { line: marker.line(), column: marker.col() + 1, message }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn one(text: &str) -> Document {
        let mut documents = parse(text).unwrap();
        assert_eq!(documents.len(), 1, "{documents:?}");
        documents.remove(0)
    }

    #[track_caller]
    fn refused(text: &str) -> SyntaxError {
        parse(text).unwrap_err()
    }

    #[test]
    fn a_service_has_the_values_that_json_would_have() {
        let text = "apiVersion: v1\nmetadata: {name: web, labels: {a: \"1\"}}\nspec:\n  ports:\n  \
                    - port: 80\n    name: http\n";
        let expected = json!({
            "apiVersion": "v1",
            "metadata": {"name": "web", "labels": {"a": "1"}},
            "spec": {"ports": [{"port": 80, "name": "http"}]},
        });
        assert_eq!(one(text).value, expected);
    }

    #[test]
    fn a_path_has_its_line_and_a_missing_part_that_of_its_parent() {
        let text = "# comment\nkind: Service\nmetadata:\n  annotations:\n    a.b/c: x\n    a: y\n\
                    spec:\n  ports:\n  - name: a\n    port: 80\n  -\n    port: 81\n";
        let document = one(text);
        for (path, line) in [
            ("", 2),
            (".", 2),
            ("kind", 2),
            ("nothing", 2),
            ("metadata.annotations.a.b/c", 5),
            ("metadata.annotations.a", 6),
            ("spec.ports", 8),
            ("spec.ports[0]", 9),
            ("spec.ports[0].port", 10),
            ("spec.ports[0].nodePort", 9),
            ("spec.ports[1].port", 12),
            ("spec.ports[7].port", 8),
            ("spec.ports[x", 8),
        ] {
            assert_eq!(document.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn a_stream_yields_its_documents_without_empty_ones() {
        let documents =
            parse("---\n# nothing\n---\na: 1\n---\n---\nnull\n---\nb: 2\n...\n").unwrap();
        let values: Vec<_> = documents.iter().map(|document| &document.value).collect();
        assert_eq!(values, [&json!({"a": 1}), &json!({"b": 2})]);
        assert_eq!(documents[1].line_of("b"), 9);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn json_is_read_with_lines_tabs_and_surrogate_pairs() {
        let document = one("{\n\t\"a\": [\n\t\t1,\n\t\t{\"b\": null}\n\t]\n}\n");
        assert_eq!(document.value, json!({"a": [1, {"b": null}]}));
        assert_eq!(document.line_of("a[1].b"), 4);
        assert_eq!(one(r#"{"a": "\ud83d\ude00"}"#).value, json!({"a": "\u{1f600}"}));
    }

    #[test]
    fn plain_scalars_have_the_same_meaning_as_in_kubectl() {
        for (text, value) in [
            ("80", json!(80)),
            ("+80", json!(80)),
            ("-1", json!(-1)),
            ("18446744073709551615", json!(u64::MAX)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("017", json!(15)),
            ("0", json!(0)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("yes", json!(true)),
            ("off", json!(false)),
            ("y", json!("y")),
            ("1.2.3.4", json!("1.2.3.4")),
            ("10.0.0.0/8", json!("10.0.0.0/8")),
            ("1m30s", json!("1m30s")),
            ("089", json!("089")),
            ("-", json!([null])),
            ("'80'", json!("80")),
            ("!!str 80", json!("80")),
            ("fd00::1", json!("fd00::1")),
            ("2001-12-14", json!("2001-12-14")),
            (".", json!(".")),
        ] {
            assert_eq!(one(&format!("a: {{}}\nb:\n  {text}\n")).value["b"], value, "{text}");
        }
        assert_eq!(refused("a: .inf").message, ".inf is not a number that JSON has");
    }

    #[test]
    fn a_duplicate_key_is_an_error_with_both_lines() {
        let error = refused("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n");
        assert_eq!(error.to_string(), "line 5, column 3: key \"c\" is already on line 3");
        assert_eq!(refused(r#"{"a": 1, "a": 2}"#).line, 1);
    }

    #[test]
    fn broken_yaml_is_an_error_with_its_line() {
        assert_eq!(refused("a: 1\nb: [1, 2\nc: 3\n").line, 3);
        assert!(refused("a:\n\t- b\n").line >= 1);
        assert!(refused("{a: 1").line >= 1);
        assert!(refused("a: *nobody").line == 1);
        assert!(refused("? [a]\n: b\n").message.contains("scalar"));
    }

    #[test]
    fn an_alias_is_replaced_by_its_value() {
        let document = one("a: &x {b: 1}\nc: *x\n");
        assert_eq!(document.value, json!({"a": {"b": 1}, "c": {"b": 1}}));
        assert_eq!(document.line_of("c"), 2);
    }

    #[test]
    fn multiplying_aliases_are_refused() {
        let mut text = "l0: &l0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = vec![format!("*l{}", level - 1); 9].join(", ");
            text.push_str(&format!("l{level}: &l{level} [{below}]\n"));
        }
        assert_eq!(refused(&text).message, "anchors and aliases copy too much");
    }

    #[test]
    fn too_deep_nesting_is_refused() {
        for text in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000)] {
            refused(&text);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[-a-c0-9 \n\t:,?&*!|>'\"\\[\\]{}#%@<.~é]{0,60}") {
            if let Ok(documents) = parse(&text) {
                for document in documents {
                    document.line_of("a.b[0]");
                }
            }
        }

        #[test]
        fn json_values_are_read_back(text in ".{0,20}", number: i64, flag: bool) {
            let value = json!({"a": [text, number, flag, null], "b": {"c": text}});
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert_eq!(&one(&json).value, &value);
            }
        }
    }
}
