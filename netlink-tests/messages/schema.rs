//! The messages of `kubernetes.proto`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Fields of each message, in the order of their numbers.
pub(super) static SCHEMA: LazyLock<BTreeMap<String, Vec<Field>>> =
    LazyLock::new(|| parse(include_str!("kubernetes.proto")));

#[derive(Clone)]
pub(super) struct Field {
    pub(super) label: Label,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) number: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Label {
    /// Written even if it is empty.
    Required,
    Optional,
    Repeated,
    /// From strings.
    Map,
}

fn parse(text: &str) -> BTreeMap<String, Vec<Field>> {
    let lines = text.lines().filter(|line| !line.starts_with("//"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let messages = text.split('}').filter(|message| !message.trim().is_empty());
    let messages = messages.map(|message| {
        let (head, fields) = message.split_once('{').expect("a message has a brace");
        let name = head.trim().strip_prefix("message ").expect("all are messages");
        let fields = fields.split(';').filter(|field| field.contains('=')).map(parse_field);
        (name.trim().to_owned(), fields.collect())
    });
    messages.collect()
}

fn parse_field(text: &str) -> Field {
    let (before, number) = text.split_once('=').expect("a field has a number");
    let (kind, name) = before.trim().rsplit_once(' ').expect("a field has a name");
    let (label, kind) = match kind.split_once(' ') {
        Some(("required", kind)) => (Label::Required, kind),
        Some(("optional", kind)) => (Label::Optional, kind),
        Some(("repeated", kind)) => (Label::Repeated, kind),
        Some(("map<string,", kind)) => (Label::Map, kind.trim_end_matches('>')),
        _ => panic!("{text} is no field"),
    };
    let number = number.trim().parse().expect("a number");
    Field { label, kind: kind.to_owned(), name: name.to_owned(), number }
}
