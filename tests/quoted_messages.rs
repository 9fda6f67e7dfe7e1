//! Messages that the documents quote are those of the program.
//!
//! A quoted message is matched by the format strings of the source: their literal parts letter by
//! letter. What stands for a placeholder is a single value, or again a message of the source. `…`
//! in a document stands for the text of a placeholder, or for the end of a message.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Quotations that no format string makes, with the reason.
const OTHERS: [(&str, &str); 6] = [
    ("Operation not supported", "a message of the kernel, in kube-proxy's log"),
    ("exec …: operation not permitted", "a message of the container runtime"),
    ("the cluster has no Node …", "the end of a message in src/measure/probe/measure.rs"),
    ("answered by another program", "a part of a message in src/measure/probe/tries.rs"),
    ("no IPv6 address for endpoints", "the beginning of a message in src/measure/probe/address.rs"),
    ("ip kube-proxy", "a table"),
];

/// How commands begin, which are no messages.
const COMMANDS: [&str; 12] = [
    "-",
    "deltaproxy ",
    "kube-proxy ",
    "make ",
    "nft ",
    "nice ",
    "chrt ",
    "taskset ",
    "ipvsadm ",
    "ipset ",
    "kubectl ",
    "conntrack ",
];

/// A part of a format string.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Letter(char),
    Placeholder,
}

/// The format strings of the source.
struct Formats {
    formats: Vec<Vec<Part>>,
    /// The names of fields of log lines.
    fields: Vec<String>,
    /// Whether a text is a message or a value.
    known: HashMap<String, bool>,
}

impl Formats {
    fn of(sources: &[String]) -> Self {
        let mut formats: Vec<_> =
            sources.iter().flat_map(|text| literals(text)).map(|it| parts(&it)).collect();
        formats.retain(|format| is_message(format));
        // An object and what is wrong with it; a message and its reason.
        formats.extend(["{}: {}"].map(parts));
        formats.sort_by_key(|it| format!("{it:?}"));
        formats.dedup();
        let fields = sources.iter().flat_map(|text| fields(text)).collect();
        Self { formats, fields, known: HashMap::new() }
    }

    /// Whether the program writes the line: a message, and fields.
    fn have(&mut self, line: &str) -> bool {
        let (message, fields) = without_fields(line);
        fields.iter().all(|field| self.fields.contains(field)) && self.is_message(message)
    }

    fn is_message(&mut self, text: &str) -> bool {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        // A message within itself would not end.
        self.known.insert(text.to_owned(), false);
        let letters: Vec<char> = text.chars().collect();
        let formats = self.formats.clone();
        let is_message = formats.iter().any(|format| self.matches(&letters, format));
        self.known.insert(text.to_owned(), is_message);
        is_message
    }

    fn matches(&mut self, text: &[char], format: &[Part]) -> bool {
        match (text.first(), format.first()) {
            (None, None) => true,
            // The end of the message is left out.
            (Some('…'), Some(_)) if text.len() == 1 => true,
            (Some(letter), Some(Part::Letter(wanted))) => {
                letter == wanted && self.matches(&text[1..], &format[1..])
            }
            (None, Some(Part::Placeholder)) => self.matches(text, &format[1..]),
            (None, Some(Part::Letter(_))) | (Some(_), None) => false,
            (Some(_), Some(Part::Placeholder)) => (0..=text.len())
                .any(|end| self.matches(&text[end..], &format[1..]) && self.fills(&text[..end])),
        }
    }

    /// Whether a placeholder may stand for this text.
    fn fills(&mut self, text: &[char]) -> bool {
        let text: String = text.iter().collect();
        is_value(&text) || (text.contains(' ') && self.is_message(&text))
    }
}

/// A word, words with commas between them, an elision, a table, or an object.
fn is_value(text: &str) -> bool {
    let words: Vec<_> = text.trim_end().split(' ').collect();
    match words[..] {
        [_] | ["ip" | "ip6", "kube-proxy"] => true,
        [kind, name] if kind.starts_with(char::is_uppercase) => name.contains('/'),
        [ref before @ .., _] => before.iter().all(|word| word.ends_with(',')),
        [] => false,
    }
}

/// Whether the literal parts have at least a word.
fn is_message(format: &[Part]) -> bool {
    let letters = format.split(|part| *part == Part::Placeholder);
    let mut words = letters.flat_map(|letters| {
        letters.split(|part| !matches!(part, Part::Letter(it) if it.is_alphabetic()))
    });
    words.any(|word| word.len() > 2)
}

/// The message of a log line, and the names of its fields.
fn without_fields(line: &str) -> (&str, Vec<String>) {
    let mut message = line;
    let mut fields = Vec::new();
    while let Some((rest, last)) = message.rsplit_once(' ') {
        let Some((name, _)) = last.split_once('=') else { break };
        fields.push(name.to_owned());
        message = rest;
    }
    (message, fields)
}

/// The names of fields in the calls that write the log.
fn fields(source: &str) -> Vec<String> {
    let calls = ["trace!(", "debug!(", "info!(", "warn!(", "error!("];
    let calls = calls.iter().flat_map(|call| source.split(call).skip(1));
    let before = calls.filter_map(|call| call.split_once('"')).map(|(before, _)| before);
    let names = before
        .flat_map(|before| before.split([',', '=']))
        .map(|name| name.trim().trim_start_matches(['%', '?']).to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The string literals of a source file before its tests.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, from) = rest.split_at(at);
        rest = if from.starts_with("//") {
            from.split_once('\n').map_or("", |(_, rest)| rest)
        } else if let Some(text) = from.strip_prefix('"') {
            let (literal, rest) = if before.ends_with("r#") {
                text.split_once("\"#").unwrap_or((text, ""))
            } else {
                literal(text)
            };
            found.push(unescaped(literal));
            rest
        } else {
            // A letter in quotes may be one of those that are searched.
            let is_letter = ["'\"'", "'/'", "'\\"].iter().any(|letter| from.starts_with(letter));
            &from[if is_letter { 3 } else { 1 }..]
        };
    }
    found
}

/// A literal up to its end, and the text after it.
fn literal(text: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = text.find(|letter| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    let end = end.unwrap_or(text.len());
    (&text[..end], text.get(end + 1..).unwrap_or(""))
}

fn unescaped(literal: &str) -> String {
    let mut text = String::new();
    let mut rest = literal;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let escaped = after.chars().next().unwrap_or('\\');
        rest = &after[escaped.len_utf8().min(after.len())..];
        match escaped {
            '\n' => rest = rest.trim_start(),
            'n' => text.push('\n'),
            other => text.push(other),
        }
    }
    text + rest
}

/// Letters and placeholders of a format string.
fn parts(format: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = format.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '{' | '}' if rest.peek() == Some(&letter) => {
                parts.extend(rest.next().map(Part::Letter))
            }
            '{' => {
                while rest.next().is_some_and(|it| it != '}') {}
                parts.push(Part::Placeholder);
            }
            _ => parts.push(Part::Letter(letter)),
        }
    }
    // More is written after it.
    let is_begun = parts.ends_with(&[Part::Letter(':'), Part::Letter(' ')]);
    parts.extend(is_begun.then_some(Part::Placeholder));
    parts
}

/// The texts of all source files below a folder.
fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.flat_map(|path| {
        if path.is_dir() {
            sources(&path)
        } else if path.ends_with("tests.rs") {
            Vec::new()
        } else {
            vec![fs::read_to_string(path).unwrap()]
        }
    });
    texts.collect()
}

/// The quotations in a page: messages in the first column of tables, and quotations in the text
/// that are longer than a command.
fn quotations(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_block = false;
    for line in page.lines() {
        is_block ^= line.trim_start().starts_with("```");
        if is_block {
            continue;
        }
        let is_row = line.starts_with('|');
        for (place, text) in line.split('`').enumerate().filter(|(place, _)| place % 2 == 1) {
            let is_message =
                if is_row { place == 1 } else { text.contains(": ") || text.contains("; ") };
            let is_command = COMMANDS.iter().any(|command| text.starts_with(command));
            if is_message && text.contains(' ') && !is_command {
                found.push(text);
            }
        }
    }
    found
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn quoted_messages_are_those_of_the_program() {
    let mut formats = Formats::of(&sources(&root().join("src")));
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages: String = pages
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .map(|page| fs::read_to_string(page).unwrap() + "\n")
        .collect();
    let quotations = quotations(&pages);
    assert!(quotations.len() > 40, "{quotations:#?}");
    let unknown: Vec<_> = quotations
        .iter()
        .filter(|it| !OTHERS.iter().any(|(other, _)| other == *it) && !formats.have(it))
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn a_message_is_compared_with_literal_parts_and_values() {
    let source = r#"
        // warn!("a comment");
        tracing::warn!(missing, changed = 1, "cannot read {name}: {error}; trying \
            again in {wait:?}");
        let c = '"'; f("the file \"{}\" is empty", x); g("{object}: {what}");
        #[cfg(test)]
        mod tests { h("only in tests") }"#;
    let mut formats = Formats::of(&[source.to_owned().replace("        ", "")]);
    for known in [
        "cannot read web: the file \"a\" is empty; trying again in 3ms",
        "cannot read web: …; trying again in 3ms missing=1 changed=0",
        "Service default/web: cannot read web: …",
    ] {
        assert!(formats.have(known), "{known}");
    }
    for unknown in [
        "cannot read web: a file is empty; trying again in 3ms",
        "cannot read web: the file \"a\" is empty; trying in 3ms",
        "cannot read …; trying again in 3ms other=1",
        "a comment",
        "only in tests",
    ] {
        assert!(!formats.have(unknown), "{unknown}");
    }
}
