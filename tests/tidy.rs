//! The rules of the source tree that the compiler does not check.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules that each module may use besides itself, from the bottom to the top.
const LAYERS: &[(&str, &[&str])] = &[
    ("counters", &[]),
    ("family", &[]),
    ("figures", &[]),
    ("flowtable", &[]),
    ("open_files", &[]),
    ("printable", &[]),
    ("yaml", &[]),
    ("netlink", &[]),
    ("schedule", &[]),
    ("model", &["family", "printable"]),
    ("observe", &["family", "open_files"]),
    ("nft", &["family", "netlink"]),
    ("source", &["family", "printable", "yaml", "model"]),
    ("config", &["counters", "family", "flowtable", "model", "yaml"]),
    ("node", &["config"]),
    ("ruleset", &["counters", "family", "flowtable", "model", "nft"]),
    ("desired", &["family", "model", "ruleset"]),
    ("piece", &["family", "nft", "ruleset"]),
    ("diff", &["desired", "family", "model", "nft", "piece", "ruleset"]),
    ("kernel", &["netlink", "nft"]),
    ("conntrack", &["family", "netlink", "model"]),
    ("other_modes", &["family", "kernel", "netlink", "nft"]),
    (
        "engine",
        &[
            "config",
            "conntrack",
            "counters",
            "desired",
            "diff",
            "family",
            "flowtable",
            "kernel",
            "model",
            "nft",
            "piece",
            "ruleset",
        ],
    ),
    (
        "bench",
        &[
            "config",
            "conntrack",
            "engine",
            "figures",
            "kernel",
            "model",
            "netlink",
            "nft",
            "observe",
            "ruleset",
            "run",
            "source",
        ],
    ),
    ("probe", &["family", "figures", "kernel", "nft", "source"]),
    ("inspect", &["conntrack", "family", "kernel", "model", "nft", "printable", "ruleset"]),
];

/// Modules that may use every other one.
const TOP: &[&str] = &["run", "cli"];

/// Lines that a file may have before its tests.
const LINE_LIMIT: usize = 500;

/// A source file, by its path from the root of the repository.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The code before the file's tests; empty for a file that is a test.
    fn product(&self) -> &str {
        let is_test = self.path.iter().any(|part| part == "tests" || part == "tests.rs");
        if is_test { "" } else { self.text.split("#[cfg(test)]\nmod ").next().unwrap() }
    }

    /// The module of the crate that the file belongs to, `None` for the crate's roots.
    fn module(&self) -> Option<&str> {
        let first = self.path.strip_prefix("src").ok()?.iter().next()?.to_str()?;
        let module = first.strip_suffix(".rs").unwrap_or(first);
        (!matches!(module, "lib" | "main")).then_some(module)
    }
}

/// All Rust files under the folders, of which some may be absent.
fn sources(folders: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push(Source { path: path.strip_prefix(root).unwrap().to_owned(), text });
        }
    }
    found
}

/// Panics with one line for each broken rule.
#[track_caller]
fn check(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// The modules named by paths that start at the crate, outside of comments.
fn used_modules(text: &str) -> Vec<String> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code: Vec<_> = text.lines().filter(is_code).collect();
    let code = code.join("\n");
    let after = code.split("crate::").skip(1);
    after.flat_map(first_names).filter(|name| name.starts_with(char::is_lowercase)).collect()
}

/// The first name of a path, or those of a group of paths in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| -> String {
        let is_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        path.trim_start().chars().take_while(is_name).collect()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 0;
    let mut ends_item = |letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        (letter == ',' && depth == 0) || depth < 0
    };
    let mut names = Vec::new();
    let mut rest = group;
    while let Some(end) = rest.find(&mut ends_item) {
        names.push(name(&rest[..end]));
        if rest[end..].starts_with('}') {
            break;
        }
        rest = &rest[end + 1..];
    }
    names
}

#[test]
fn modules_use_only_lower_layers() {
    let mut broken = Vec::new();
    for source in sources(&["src"]) {
        let Some(module) = source.module().filter(|module| !TOP.contains(module)) else { continue };
        let path = source.path.display();
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            broken.push(format!("{path}: {module} is not in the table of layers"));
            continue;
        };
        let used = used_modules(source.product());
        let upward = used.iter().filter(|used| *used != module && !allowed.contains(&&***used));
        broken.extend(upward.map(|used| format!("{path}: {module} may not use {used}")));
    }
    check(&broken);
}

#[test]
fn every_file_starts_with_a_description() {
    let folders = ["src", "tests", "benches", "manual", "netlink-tests", "fuzz/fuzz_targets"];
    let silent = sources(&folders).into_iter().filter(|source| !source.text.starts_with("//! "));
    let broken: Vec<_> =
        silent.map(|source| format!("{}: no `//!` at its start", source.path.display())).collect();
    check(&broken);
}

#[test]
fn no_file_is_too_long_to_be_read() {
    let mut broken = Vec::new();
    for source in sources(&["src", "manual/src", "netlink-tests/src"]) {
        let lines = source.product().lines().count();
        if lines > LINE_LIMIT {
            let path = source.path.display();
            broken.push(format!("{path}: {lines} lines before its tests, of {LINE_LIMIT}"));
        }
    }
    check(&broken);
}

#[test]
fn the_tree_is_found_where_it_is_looked_for() {
    assert!(sources(&["src"]).iter().any(|source| source.module() == Some("nft")));
    assert!(sources(&["fuzz/fuzz_targets"]).len() > 1);
}

#[test]
fn all_ways_to_name_a_module_are_seen() {
    let text = "
        //! See crate::comment.
        use crate::one::Type;
        pub(crate) use crate::{two, three::{self, deep}, four as other};
        fn f() -> crate::five::Type {}
        use crate::Type;";
    assert_eq!(used_modules(text), ["one", "two", "three", "four", "five"]);
}

/// `make test` names the tests to run, some of them in network namespaces: one name must not
/// stand for a test of either kind.
#[test]
fn no_two_tests_have_one_name() {
    let names = |folder: &str| -> Vec<_> {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        files.filter(|name| name.to_string_lossy().ends_with(".rs")).collect()
    };
    let others = names("netlink-tests/tests");
    assert!(others.len() > 10);
    let twice: Vec<_> = names("tests").into_iter().filter(|name| others.contains(name)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
