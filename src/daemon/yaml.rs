//! YAML and JSON text, parsed into JSON values with the line of each part.
//!
//! The meaning is that of Kubernetes' programs (`sigs.k8s.io/yaml` on go-yaml 2): YAML 1.1 words
//! are booleans, the last of duplicate keys counts, `<<` merges. Any text yields values or a
//! [`SyntaxError`]: depth, size and the bytes copied by aliases are limited.

mod scalar;

use std::collections::{BTreeMap, HashMap};

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput, StructureStyle};
use serde_json::Value;

pub(crate) use self::scalar::whole;
use self::scalar::{name_of, scalar};

/// Longest accepted text in bytes: a list of 100,000 services with a million endpoints is shorter.
pub const MAX_TEXT: usize = 512 << 20;

/// Deepest accepted nesting of sequences and mappings. API objects have fewer than 30 levels.
pub const MAX_DEPTH: usize = 100;

/// Maximum sum of values and bytes of strings that aliases may copy in one text.
const MAX_COPIED: usize = 8 << 20;

/// Most warnings of one document.
const MAX_WARNINGS: usize = 100;

/// One document of a text: a value, and the line of each part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Content of the document.
    pub value: Value,
    /// LineTree whose meaning their author may not expect, and what it is.
    pub warnings: Vec<(usize, String)>,
    lines: LineTree,
}

impl Document {
    /// Returns a document without content, on line 1.
    pub fn empty() -> Self {
        Self::of(Value::Null)
    }

    /// Returns a document that was not parsed from text: every part is on line 1.
    pub fn of(value: Value) -> Self {
        Self { value, warnings: Vec::new(), lines: LineTree::at(1) }
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

impl From<ScanError> for SyntaxError {
    fn from(error: ScanError) -> Self {
        at(error.marker(), error.info())
    }
}

/// Returns the documents of a YAML stream or JSON text, in their order. Leaves out documents that
/// are empty or `null`.
///
/// # Errors
/// The first place that is not valid YAML, or exceeds a limit.
pub fn parse(text: &str) -> Result<Vec<Document>, SyntaxError> {
    let mut documents = read(text, usize::MAX)?;
    documents.retain(|document| !document.value.is_null());
    Ok(documents)
}

/// Returns the first document of a YAML stream or JSON text, an empty one if there is none. Others
/// are not parsed; a warning names the second.
///
/// # Errors
/// The first place of this document that is not valid YAML, or exceeds a limit.
pub fn first(text: &str) -> Result<Document, SyntaxError> {
    Ok(read(text, 1)?.pop().unwrap_or_else(Document::empty))
}

fn read(text: &str, most: usize) -> Result<Vec<Document>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_TEXT {
        return Err(at(&Marker::new(0, 1, 0), format!("text is longer than {MAX_TEXT} bytes")));
    }
    let mut documents = Documents::new(text);
    documents.take(most).or_else(|error| {
        // go-yaml takes tabs as indentation in flow collections, the library does not.
        if documents.open.last().is_some_and(|open| open.is_flow) && text.contains("\n\t") {
            return Documents::new(&without_leading_tabs(text)).take(most);
        }
        // Strings of JSON may have control characters, those of YAML may not.
        let json = text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok());
        json.flatten().map(|value| vec![Document::of(value)]).ok_or(error)
    })
}

fn without_leading_tabs(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let rest = line.trim_start_matches('\t');
        " ".repeat(line.len() - rest.len()) + rest
    });
    lines.collect()
}

/// Line of a value and of its children: items in their order, entries in the order of keys.
#[derive(Debug, Clone, PartialEq)]
struct LineTree {
    line: u32,
    children: Box<[Self]>,
}

impl LineTree {
    fn at(line: u32) -> Self {
        Self { line, children: Box::default() }
    }
}

/// Returns the child of `value` that `path` begins with, its lines, and the remaining path.
fn step<'a>(
    value: &'a Value,
    lines: &'a LineTree,
    path: &'a str,
) -> Option<(&'a Value, &'a LineTree, &'a str)> {
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
struct Subtree {
    value: Value,
    lines: LineTree,
    weight: usize,
}

/// A sequence or mapping that has not ended yet.
struct OpenCollection {
    line: u32,
    anchor: usize,
    is_flow: bool,
    weight: usize,
    parts: CollectionParts,
}

enum CollectionParts {
    Items(Vec<Value>, Vec<LineTree>),
    Entries(Entries, Option<EntryKey>),
}

/// Entries of a mapping, and whether `<<` added them.
type Entries = BTreeMap<String, (Value, LineTree, bool)>;

/// A key without its value yet.
enum EntryKey {
    /// The key and its line.
    Text(String, u32),
    /// `<<`, of which the value's entries become those of the mapping.
    Merge,
}

/// The documents of a text.
struct Documents<'a> {
    parser: Parser<'a, StrInput<'a>>,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, Subtree>,
    copied: usize,
    warnings: Vec<(usize, String)>,
}

impl<'a> Documents<'a> {
    fn new(text: &'a str) -> Self {
        let options = granit_parser::options! { emit_comments: false };
        let parser = Parser::new_from_str_with_options(text, options);
        let (anchors, warnings) = (HashMap::new(), Vec::new());
        Self { parser, open: Vec::new(), anchors, copied: 0, warnings }
    }

    /// Parses at most `most` documents. The last has a warning about what follows.
    fn take(&mut self, most: usize) -> Result<Vec<Document>, SyntaxError> {
        let mut documents = Vec::new();
        while documents.len() < most
            && let Some(document) = self.next()?
        {
            documents.push(document);
        }
        let Some(last) = documents.last_mut() else { return Ok(documents) };
        let line = match self.next() {
            Ok(after) => after.filter(|it| !it.value.is_null()).map(|it| it.line_of("")),
            // Without the error, the scalar would be a key: `--- a: 1`.
            Err(error) if !last.value.is_object() => return Err(error),
            Err(error) => Some(error.line),
        };
        let message = || "what follows the first document is ignored".to_owned();
        last.warnings.extend(line.map(|line| (line, message())));
        Ok(documents)
    }

    /// Parses the next document.
    fn next(&mut self) -> Result<Option<Document>, SyntaxError> {
        while let Some(event) = self.parser.next_event() {
            let (event, span) = event?;
            if let Some(Subtree { value, lines, .. }) = self.add(event, &span.start)? {
                self.anchors.clear();
                let warnings = std::mem::take(&mut self.warnings);
                return Ok(Some(Document { value, warnings, lines }));
            }
        }
        Ok(None)
    }

    /// Adds the next event. Returns the root when the event completes it.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the events of the library may become more")]
    fn add(&mut self, event: Event<'_>, start: &Marker) -> Result<Option<Subtree>, SyntaxError> {
        match event {
            Event::Alias(anchor) => {
                let node = self.alias(anchor, start)?;
                self.value(node, start)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().map(name_of);
                let is_merge =
                    style == ScalarStyle::Plain && tag.is_none() || tag.as_deref() == Some("merge");
                if text == "<<"
                    && is_merge
                    && let Some(key) = self.missing_key()
                {
                    *key = Some(EntryKey::Merge);
                    return Ok(None);
                }
                let value = scalar(&text, style, tag.as_deref()).map_err(|it| at(start, it))?;
                let node =
                    Subtree { value, lines: LineTree::at(line(start)), weight: text.len() + 1 };
                self.remember(anchor, &node, start)?;
                self.value(node, start)
            }
            Event::SequenceStart(style, anchor, _) => {
                self.open(style, anchor, CollectionParts::Items(Vec::new(), Vec::new()), start)
            }
            Event::MappingStart(style, anchor, _) => {
                self.open(style, anchor, CollectionParts::Entries(BTreeMap::new(), None), start)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(start),
            _ => Ok(None),
        }
    }

    /// Returns the place of the open mapping's next key, if one is expected.
    fn missing_key(&mut self) -> Option<&mut Option<EntryKey>> {
        match &mut self.open.last_mut()?.parts {
            CollectionParts::Entries(_, key @ None) => Some(key),
            CollectionParts::Entries(..) | CollectionParts::Items(..) => None,
        }
    }

    fn open(
        &mut self,
        style: StructureStyle,
        anchor: usize,
        parts: CollectionParts,
        start: &Marker,
    ) -> Result<Option<Subtree>, SyntaxError> {
        if self.missing_key().is_some() {
            return Err(at(start, "a key must be a scalar".to_owned()));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(at(start, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let (line, is_flow) = (line(start), style == StructureStyle::Flow);
        self.open.push(OpenCollection { line, anchor, is_flow, weight: 1, parts });
        Ok(None)
    }

    fn close(&mut self, end: &Marker) -> Result<Option<Subtree>, SyntaxError> {
        let Some(OpenCollection { line, anchor, weight, parts, .. }) = self.open.pop() else {
            return Err(at(end, "end of a collection that was not begun".to_owned()));
        };
        let (value, children) = match parts {
            CollectionParts::Items(values, lines) => (Value::Array(values), lines),
            CollectionParts::Entries(entries, _) => {
                let mut children = Vec::with_capacity(entries.len());
                let entries = entries.into_iter().map(|(key, (value, lines, _))| {
                    children.push(lines);
                    (key, value)
                });
                (Value::Object(entries.collect()), children)
            }
        };
        let node = Subtree { value, lines: LineTree { line, children: children.into() }, weight };
        self.remember(anchor, &node, end)?;
        self.value(node, end)
    }

    /// Adds a finished value or key to the open collection; without one the value is the root.
    fn value(&mut self, node: Subtree, start: &Marker) -> Result<Option<Subtree>, SyntaxError> {
        let Some(open) = self.open.last_mut() else { return Ok(Some(node)) };
        open.weight += node.weight;
        match &mut open.parts {
            CollectionParts::Items(values, lines) => {
                values.push(node.value);
                lines.push(node.lines);
            }
            CollectionParts::Entries(entries, place) => match place.take() {
                None => *place = Some(key(node.value, start)?),
                Some(EntryKey::Text(key, line)) => {
                    let entry = (node.value, LineTree { line, ..node.lines }, false);
                    insert(entries, key, entry, &mut self.warnings);
                }
                Some(EntryKey::Merge) => {
                    merge(entries, node, &mut self.warnings).ok_or_else(|| {
                        at(start, "<< needs a mapping or a list of mappings".to_owned())
                    })?
                }
            },
        }
        Ok(None)
    }

    fn remember(&mut self, anchor: usize, node: &Subtree, at: &Marker) -> Result<(), SyntaxError> {
        if anchor != 0 {
            self.charge(node.weight, at)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, start: &Marker) -> Result<Subtree, SyntaxError> {
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

/// Returns the key that a finished value is.
fn key(value: Value, start: &Marker) -> Result<EntryKey, SyntaxError> {
    match value {
        Value::String(text) => Ok(EntryKey::Text(text, line(start))),
        Value::Bool(_) | Value::Number(_) => Ok(EntryKey::Text(value.to_string(), line(start))),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(at(start, "a key must be a scalar, and not null".to_owned()))
        }
    }
}

/// Sets an entry. What replaces the text's own value of the key is a warning.
fn insert(
    entries: &mut Entries,
    key: String,
    entry: (Value, LineTree, bool),
    warnings: &mut Vec<(usize, String)>,
) {
    if let Some((_, before, false)) = entries.get(&key)
        && warnings.len() < MAX_WARNINGS
    {
        let message = format!("key {key:?} replaces that on line {}", before.line);
        warnings.push((entry.1.line as usize, message));
    }
    entries.insert(key, entry);
}

/// Merges a mapping, or a list of mappings of which the first that has a key counts. As in go-yaml,
/// what comes later in the text replaces what is before it.
fn merge(entries: &mut Entries, node: Subtree, warnings: &mut Vec<(usize, String)>) -> Option<()> {
    let mappings = match node.value {
        Value::Array(items) => items.into_iter().zip(node.lines.children).rev().collect(),
        value @ Value::Object(_) => vec![(value, node.lines)],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    for (mapping, lines) in mappings {
        let Value::Object(fields) = mapping else { return None };
        for ((key, value), lines) in fields.into_iter().zip(lines.children) {
            insert(entries, key, (value, lines, true), warnings);
        }
    }
    Some(())
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
    fn numbers_have_the_meaning_of_go_yaml() {
        for (text, value) in [
            ("80", json!(80)),
            ("+80", json!(80)),
            ("-1", json!(-1)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            ("0x1F", json!(31)),
            ("-0x1f", json!(-31)),
            ("0b11", json!(3)),
            ("0o17", json!(15)),
            ("017", json!(15)),
            ("-017", json!(-15)),
            ("08", json!(8)),
            ("089", json!(89)),
            ("0o18", json!("0o18")),
            ("0", json!(0)),
            ("1_4", json!(14)),
            ("1_4.0", json!(14)),
            ("0x_1", json!(1)),
            ("_14", json!("_14")),
            ("1.5", json!(1.5)),
            ("14.0", json!(14)),
            ("14.", json!(14)),
            (".5", json!(0.5)),
            ("-.5", json!(-0.5)),
            ("1e1", json!(10)),
            ("1e-1", json!(0.1)),
            ("1e+20", json!(1e20)),
            ("1e400", json!("1e400")),
            ("0x1p4", json!("0x1p4")),
            ("1:30", json!("1:30")),
            ("--1", json!("--1")),
            ("1,000", json!("1,000")),
        ] {
            assert_eq!(one(&format!("a: {{}}\nb:\n  {text}\n")).value["b"], value, "{text}");
        }
    }

    #[test]
    fn words_and_tags_have_the_meaning_of_go_yaml() {
        for (text, value) in [
            ("y", json!(true)),
            ("Yes", json!(true)),
            ("ON", json!(true)),
            ("N", json!(false)),
            ("off", json!(false)),
            ("yEs", json!("yEs")),
            ("~", json!(null)),
            ("Null", json!(null)),
            ("nil", json!("nil")),
            ("1.2.3.4", json!("1.2.3.4")),
            ("10.0.0.0/8", json!("10.0.0.0/8")),
            ("fd00::1", json!("fd00::1")),
            ("1m30s", json!("1m30s")),
            ("2001-12-14", json!("2001-12-14")),
            ("2001-12-14t21:59:43Z", json!("2001-12-14t21:59:43Z")),
            ("inf", json!("inf")),
            ("-.nan", json!("-.nan")),
            (".", json!(".")),
            ("-", json!([null])),
            ("<<", json!("<<")),
            ("'80'", json!("80")),
            ("\"\"", json!("")),
            ("!!str 80", json!("80")),
            ("!!str", json!("")),
            ("! 80", json!("80")),
            ("!other 80", json!("80")),
            ("!!int '8_0'", json!(80)),
            ("!!float 1", json!(1)),
            ("!!bool yes", json!(true)),
            ("!!null ''", json!(null)),
            ("!!binary aGk=", json!("hi")),
            ("!!binary |\n    aGVs\n    bG8=", json!("hello")),
            ("!!timestamp 2001-01-01", json!("2001-01-01")),
            ("x\n  y", json!("x y")),
            ("|-\n    a\n     b", json!("a\n b")),
            (">\n    a\n    b", json!("a b\n")),
        ] {
            assert_eq!(one(&format!("a: {{}}\nb:\n  {text}\n")).value["b"], value, "{text}");
        }
        for (text, message) in [
            (".inf", ".inf is not a number that JSON has"),
            ("!!int 1.5", "\"1.5\" does not have the type !!int"),
            ("!!bool 1", "\"1\" does not have the type !!bool"),
            ("!!null x", "\"x\" does not have the type !!null"),
            ("!!binary '%'", "is not Base64"),
        ] {
            assert_eq!(refused(&format!("a: {text}")).message, message, "{text}");
        }
    }

    #[test]
    fn keys_are_the_texts_of_their_values() {
        let text = "1: a\n0x10: b\ny: c\n'n': d\n!!str 2: e\n1.5: f\n&k key: g\n";
        let expected = json!({
            "1": "a", "16": "b", "true": "c", "n": "d", "2": "e", "1.5": "f", "key": "g",
        });
        assert_eq!(one(text).value, expected);
        assert_eq!(one("a: &x b\n*x : c\n").value, json!({"a": "b", "b": "c"}));
        assert!(refused("~: 1").message.contains("not null"));
    }

    #[test]
    fn the_last_of_duplicate_keys_counts_with_a_warning() {
        let document = one("a: 1\nb:\n  c: 1\n  d: 2\n  c: {e: 3}\n'a': 2\n");
        assert_eq!(document.value, json!({"a": 2, "b": {"c": {"e": 3}, "d": 2}}));
        assert_eq!((document.line_of("b.c.e"), document.line_of("a")), (5, 6));
        let warnings: Vec<_> =
            document.warnings.iter().map(|(line, it)| format!("line {line}: {it}")).collect();
        let expected = [
            "line 5: key \"c\" replaces that on line 3",
            "line 6: key \"a\" replaces that on line 1",
        ];
        assert_eq!(warnings, expected);
        assert_eq!(one(r#"{"a": 1, "a": 2}"#).value, json!({"a": 2}));
        let many = one(&"a: 1\n".repeat(1_000));
        assert_eq!(many.warnings.len(), MAX_WARNINGS);
    }

    #[test]
    fn merge_keys_add_the_entries_of_other_mappings() {
        for (text, expected) in [
            ("m: {<<: {a: 1}}", json!({"a": 1})),
            ("m: {<<: {a: 1}, a: 2}", json!({"a": 2})),
            ("m: {<<: [{a: 1}, {a: 2, b: 3}]}", json!({"a": 1, "b": 3})),
            ("m: {<<: [], a: 1}", json!({"a": 1})),
            ("m: {!!merge <<: {a: 1}}", json!({"a": 1})),
            ("m: {'<<': {a: 1}}", json!({"<<": {"a": 1}})),
            ("x: &x {a: 1, b: {c: 1}}\nm:\n  <<: *x\n  b: {d: 1}", json!({"a": 1, "b": {"d": 1}})),
            ("x: &x {a: 1}\ny: &y {<<: *x, b: 2}\nm: {<<: *y}", json!({"a": 1, "b": 2})),
            ("x: &x {a: 1}\nm:\n  <<: [*x, {a: 2, b: 2}]", json!({"a": 1, "b": 2})),
        ] {
            let document = one(text);
            assert_eq!(document.value["m"], expected, "{text}");
            assert_eq!(document.warnings, [], "{text}");
        }
        // As in go-yaml, the order of the text decides.
        let after = one("a: 2\n<<: {a: 1}\n");
        assert_eq!((after.value, after.warnings.len()), (json!({"a": 1}), 1));
        let lines = one("x: &x\n  a: 1\nm:\n  <<: *x\n  b: 2\n");
        assert_eq!((lines.line_of("m.a"), lines.line_of("m.b")), (2, 5));
        for wrong in ["<<: 1", "<<:", "<<: [1]", "<<: [[{a: 1}]]"] {
            assert!(refused(wrong).message.starts_with("<< needs a mapping"), "{wrong}");
        }
    }

    #[test]
    fn merge_keys_that_multiply_are_refused() {
        let mut text = "l0: &l0 {a: [x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x]}\n".to_owned();
        for level in 1..40 {
            let below = format!("*l{}", level - 1);
            text += &format!("l{level}: &l{level} {{<<: {below}, b{level}: {below}}}\n");
        }
        assert_eq!(refused(&text).message, "anchors and aliases copy too much");
    }

    #[test]
    fn the_first_document_alone_is_read_and_others_are_named() {
        let of = |text: &str| {
            let document = first(text).unwrap();
            let warnings: Vec<_> =
                document.warnings.iter().map(|(line, it)| format!("line {line}: {it}")).collect();
            (document.value, warnings)
        };
        let ignored =
            |line| vec![format!("line {line}: what follows the first document is ignored")];
        for (text, warnings) in [
            ("a: 1\n", vec![]),
            ("---\na: 1\n---\n", vec![]),
            ("# c\n--- # c\na: 1\n...\n# c\n", vec![]),
            ("\u{feff}%YAML 1.1\n---\na: 1\n", vec![]),
            ("a: 1\r\n---\r\na: 2\r\n", ignored(3)),
            ("a: 1\n--- \nb: [\n", ignored(3)),
            ("  a: 1\nb: 2\n", ignored(2)),
        ] {
            assert_eq!(of(text), (json!({"a": 1}), warnings), "{text}");
        }
        assert_eq!(of(""), (json!(null), vec![]));
        assert_eq!(of("---\n---\na: 1\n"), (json!(null), ignored(3)));
        assert!(first("--- a: 1\n").is_err());
    }

    #[test]
    fn tabs_are_space_after_a_colon_and_in_flow_collections() {
        for text in [
            "a:\t1\nb: {c: 2}\n",
            "a: 1\t# c\nb:\t\n  c:\t2\t\n",
            "{\n\t\"a\": 1,\n\t\"b\": {\n\t\t\"c\": 2\n\t}\n}\n",
            "a: 1\nb: {\n\tc: 2\n}\n",
            "a: 1\nb: {c:\t2\t}\n",
        ] {
            assert_eq!(one(text).value, json!({"a": 1, "b": {"c": 2}}), "{text}");
            assert_eq!(first(text).unwrap().value, json!({"a": 1, "b": {"c": 2}}), "{text}");
        }
    }

    #[test]
    fn broken_yaml_is_an_error_with_its_line() {
        assert_eq!(refused("a: 1\nb: [1, 2\nc: 3\n").line, 3);
        assert!(refused("a:\n\t- b\n").line >= 1);
        assert!(refused("{a: 1").line >= 1);
        assert!(refused("a: *nobody").line == 1);
        assert!(refused("? [a]\n: b\n").message.contains("scalar"));
        assert!(refused("a: &x [*x]\n").message.contains("inside the value"));
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
