//! Sizes of types: how many fields a type has, and how many files have its methods.
//!
//! A type with many fields has several invariants, and each file with its methods can use all
//! fields. Such a type becomes parts.

use std::collections::{BTreeMap, BTreeSet};

use super::{check, names, sources};

/// Fields that a type may have: a type with more has several invariants.
const FIELD_LIMIT: usize = 12;

/// Types with more fields, and the reason: all of them are data without an invariant.
const MANY_FIELDS: [(&str, &str, &str); 7] = [
    (
        "src/daemon/config/mod.rs",
        "Config",
        "a field for each setting, or for several about one thing",
    ),
    (
        "src/daemon/observe/kube_proxy_metrics.rs",
        "KubeProxy",
        "a field for each metric of kube-proxy",
    ),
    ("src/engine/model/service.rs", "Service", "a field for each one of core/v1 Service in use"),
    (
        "src/engine/routing/mod.rs",
        "Routing",
        "a field for each setting, or for several about one thing",
    ),
    ("src/inspect/explain/packet.rs", "Packet", "a field for each key that rules read"),
    (
        "src/inspect/show/format/document.rs",
        "FrontendItem",
        "a field for each member of the document",
    ),
    ("src/nft/any/set.rs", "AnySet", "a field for each attribute of a set"),
];

/// Files that may have methods of one type: all of them can use all of its fields.
const IMPL_LIMIT: usize = 4;

/// Types of a crate with methods in more files, and the reason.
const MANY_IMPLS: [(&str, &str, &str); 2] = [
    ("nft", "Nftables", "the socket alone is the state, and each file is a kind of request"),
    ("nft", "Printer", "the text alone is the state, and each file is a kind of expression"),
];

/// The structs at the start of a line or of `metrics!`, each with the number of its named fields.
fn structs(code: &str) -> Vec<(&str, usize)> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    let (mut is_inside, mut indentation) = (false, "");
    for line in code.lines() {
        match line {
            "metrics! {" => indentation = "    ",
            "}" => indentation = "",
            _ => {}
        }
        let line = line.strip_prefix(indentation).unwrap_or(line);
        let item = line.split_once("struct ").filter(|(before, _)| {
            before.is_empty() || before.starts_with("pub") && before.ends_with(' ')
        });
        if let Some((_, item)) = item.filter(|_| line.ends_with('{')) {
            found.push((names(item).next().unwrap(), 0));
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        } else if is_inside && is_field(line) {
            found.last_mut().unwrap().1 += 1;
        }
    }
    found
}

/// Returns whether a line of a struct begins a field.
fn is_field(line: &str) -> bool {
    let Some(text) = line.strip_prefix("    ") else { return false };
    let (before, after) = text.split_once(": ").unwrap_or((text.trim_end_matches(':'), ""));
    let name = before.rsplit(' ').next().unwrap_or_default();
    let is_plain = before.len() == name.len() || before.starts_with("pub");
    is_plain && !name.is_empty() && (!after.is_empty() || text.ends_with(':')) && is_name(name)
}

fn is_name(text: &str) -> bool {
    text.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// The types that have methods of their own in a file, outside of traits.
fn types_with_methods(code: &str) -> BTreeSet<&str> {
    let headers = code.lines().filter(|line| line.starts_with("impl") && !line.contains(" for "));
    let types = headers.filter_map(|line| without_generics(&line["impl".len()..]));
    types.collect()
}

/// The last name of a path after the generics of an `impl`.
fn without_generics(header: &str) -> Option<&str> {
    let mut depth = 0;
    let end = header.char_indices().position(|(at, letter)| {
        let is_arrow = header[..at].ends_with('-');
        depth += i32::from(letter == '<') - i32::from(letter == '>' && !is_arrow);
        depth == 0
    })?;
    let path = header[end..].trim_start_matches('>').trim_start();
    let end = path.find(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
    path[..end.unwrap_or(path.len())].rsplit("::").next()
}

#[test]
fn types_have_few_fields() {
    let (mut broken, mut used) = (Vec::new(), BTreeSet::new());
    for source in sources(&["src", "fake-kernel/src", "netlink-tests/src"]) {
        let (code, path) = (source.code(), source.path.display().to_string());
        for (name, fields) in structs(&code).into_iter().filter(|(_, it)| *it > FIELD_LIMIT) {
            if let Some(exception) = MANY_FIELDS.iter().find(|it| it.0 == path && it.1 == name) {
                used.insert(exception);
            } else {
                broken.push(format!("{path}: {name} has {fields} fields, of {FIELD_LIMIT}"));
            }
        }
    }
    check(&broken);
    assert_eq!(used.len(), MANY_FIELDS.len(), "an exception is no longer needed");
}

#[test]
fn types_have_their_methods_in_few_files() {
    let mut files = BTreeMap::<_, BTreeSet<_>>::new();
    for source in sources(&["src"]) {
        let package = source.package().unwrap_or_default().to_owned();
        for name in types_with_methods(&source.code()) {
            let key = (package.clone(), name.to_owned());
            files.entry(key).or_default().insert(source.path.display().to_string());
        }
    }
    files.retain(|_, files| files.len() > IMPL_LIMIT);
    let mut used = 0;
    let mut broken = Vec::new();
    for ((package, name), files) in files {
        if MANY_IMPLS.iter().any(|it| (it.0, it.1) == (&*package, &*name)) {
            used += 1;
        } else {
            broken.push(format!("{name} of {package} has methods in {files:?}"));
        }
    }
    check(&broken);
    assert_eq!(used, MANY_IMPLS.len(), "an exception is no longer needed");
}

#[test]
fn fields_and_methods_are_counted_by_type() {
    let text = "
pub(super) struct Few<K> {
    one: u8,
    pub(super) two:
        Vec<u8>,
    pub three: Box<dyn Fn(u8) -> u8>,
}
struct Unit;
struct Tuple(u8);
impl Few<u8> {
    fn a() { let other: u8 = 1; }
}
impl<K: Fn(u8) -> u8, T> super::Other<K, T> {
impl Display for Shown {
impl<K> Debug for Shown<K> {";
    assert_eq!(structs(text), [("Few", 3)]);
    assert_eq!(types_with_methods(text), BTreeSet::from(["Few", "Other"]));
}
