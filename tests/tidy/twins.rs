//! Names that two things of a crate share: types, and files.
//!
//! One word stands for one thing, so a reader finds a thing by its name.

use std::collections::{BTreeMap, BTreeSet};

use super::{check, sources};

/// Names by crate. The lists may only shrink.
type Twins = &'static [(&'static str, &'static [&'static str])];

/// Types of one name. `Followed` of `program` is one type or the other, by a feature.
#[rustfmt::skip]
const TYPES: Twins = &[
    ("program", &[
        "Followed",
    ]),
];

/// Files of one name, whose folders say the rest: `direct/ruleset/sets.rs` has the sets of table
/// direct-return, `ruleset/sets.rs` those of kube-proxy's tables.
#[rustfmt::skip]
const FILES: Twins = &[
    ("daemon", &[
        "endpoint_slice", "error", "flags", "metadata", "node", "refusals",
        "service", "tables",
    ]),
    ("engine", &[
        "base", "chain", "element", "layout", "least_connections", "number",
        "service", "sets", "source_ranges",
    ]),
    ("measure", &[
        "error", "report", "settings",
    ]),
    ("nft", &[
        "element", "set", "whole",
    ]),
];

/// Returns the type that a line declares. Associated types are indented.
fn declared(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(rest) => {
            let visible = rest.strip_prefix('(').and_then(|rest| rest.split_once(") "));
            visible.map_or(rest, |(_, item)| item).trim_start()
        }
        None => item,
    };
    let keywords = ["struct ", "enum ", "union ", "trait "];
    let alias = item.strip_prefix("type ").filter(|_| !line.starts_with(' '));
    let named = keywords.iter().find_map(|keyword| item.strip_prefix(keyword)).or(alias)?;
    named.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

/// Fails for each name that several things of a crate have and that is not listed, and for each
/// listed one that they do not have.
#[track_caller]
fn check_names(all: Vec<(String, String)>, listed: Twins) {
    let mut counts = BTreeMap::<_, usize>::new();
    all.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let several = counts.into_iter().filter(|(_, count)| *count > 1);
    let found: BTreeSet<_> = several.map(|(name, _)| name).collect();
    let of_crate = |(package, names): &(&str, &[&str])| -> Vec<_> {
        names.iter().map(|name| ((*package).to_owned(), (*name).to_owned())).collect()
    };
    let known: BTreeSet<_> = listed.iter().flat_map(of_crate).collect();
    let new = found.difference(&known).map(|(package, name)| format!("{package}: two {name}"));
    let gone = known.difference(&found).map(|(package, name)| {
        format!("{package}: {name} is one thing now: take it out of the list")
    });
    check(&new.chain(gone).collect::<Vec<_>>());
}

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    let mut all = Vec::new();
    for source in sources(&["src"]) {
        let package = source.package().unwrap();
        let types = source.product().lines().filter_map(declared);
        all.extend(types.map(|name| (package.to_owned(), name.to_owned())));
    }
    check_names(all, TYPES);
    assert_eq!(declared("    pub(super) struct Name<T> {"), Some("Name"));
    assert_eq!(declared("pub(in crate::folder) enum Name {"), Some("Name"));
    assert_eq!(declared("pub type Name = u8;"), Some("Name"));
    assert_eq!(declared("    type Item = u8;"), None);
}

#[test]
fn no_two_files_of_a_crate_have_one_name() {
    let mut all = Vec::new();
    for source in sources(&["src"]) {
        let name = source.path.file_stem().unwrap().to_str().unwrap();
        let is_test = source.product().is_empty();
        if !is_test && !matches!(name, "mod" | "lib" | "main") {
            all.push((source.package().unwrap().to_owned(), name.to_owned()));
        }
    }
    check_names(all, FILES);
}
