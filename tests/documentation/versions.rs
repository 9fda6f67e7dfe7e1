//! What the documents say of versions of other programs names what keeps it.

use std::collections::BTreeSet;
use std::fs;

use crate::{check, files, is_path, prose, quoted, read, root, table, wrong_keepers};

/// Programs whose versions the documents name.
const PROGRAMS: [&str; 9] = [
    "Linux",
    "nft",
    "Kubernetes",
    "Docker",
    "conntrackd",
    "iptables",
    "knftables",
    "firewalld",
    "version",
];

/// The documents in which each passage about a version has a keeper.
const PAGES: [&str; 5] = ["kernels", "limits", "neighbours", "flowtable", "direct-return"];

/// Returns whether a word is two or three numbers, such as `6.15` or `1.0.6,`.
fn is_version(word: &&str) -> bool {
    let parts: Vec<_> = word.trim_end_matches([',', ';', ':', '.']).split('.').collect();
    (2..=3).contains(&parts.len()) && parts.iter().all(|it| it.parse::<u16>().is_ok())
}

/// Returns whether a line names a version of another program, such as `Linux up to 6.15`.
fn names_a_version(line: &str) -> bool {
    let words: Vec<_> = line.split([' ', '(', ')', '|']).filter(|it| !it.is_empty()).collect();
    words
        .iter()
        .enumerate()
        .any(|(at, word)| PROGRAMS.contains(word) && words[at + 1..].iter().take(3).any(is_version))
}

/// Returns whether a text names a test, a target of make, a finding or another file, or a source.
fn names_a_keeper(text: &str, tests: &BTreeSet<String>) -> bool {
    let names_one = quoted(text).any(|name| {
        tests.contains(name)
            || name.starts_with("make ")
            || is_path(name) && root().join(name).exists()
    });
    names_one || text.contains("](../findings/") || text.contains("](https://")
}

/// The names of all tests of the project.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in files().iter().filter(|path| path.extension().is_some_and(|it| it == "rs")) {
        let text = fs::read_to_string(source).unwrap();
        let functions = text.split("#[test]").skip(1).filter_map(|rest| rest.split_once("fn "));
        let named = functions.filter_map(|(_, rest)| rest.split_once('('));
        names.extend(named.map(|(name, _)| name.to_owned()));
    }
    names
}

/// Returns whether a line is a row of a table.
fn is_row(line: &str) -> bool {
    line.starts_with("| ")
}

/// The items of lists, rows of tables and other paragraphs of a page, each with what else may name
/// its keeper: for a row the paragraphs around its table.
fn passages(page: &str) -> Vec<(String, String)> {
    let lines: Vec<_> = prose(page).collect();
    let blocks: Vec<_> = lines.split(|line| line.is_empty()).collect();
    let paragraph = |block: Option<&&[&str]>| {
        let lines = block.into_iter().flat_map(|it| it.iter().copied());
        lines.filter(|line| !is_row(line)).collect::<Vec<_>>().join("\n")
    };
    let mut found = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let around = || {
            let before = at.checked_sub(1).and_then(|it| blocks.get(it));
            [before, Some(block), blocks.get(at + 1)].map(paragraph).join("\n")
        };
        if block.iter().any(|it| is_row(it) || it.trim_start().starts_with("- ")) {
            let of_line = |line: &&str| {
                (line.to_string(), if is_row(line) { around() } else { String::new() })
            };
            found.extend(block.iter().map(of_line));
        } else {
            found.push((block.join("\n"), String::new()));
        }
    }
    found
}

#[test]
fn what_is_said_of_versions_of_others_names_its_keeper() {
    let tests = tests();
    let (mut broken, mut count) = (Vec::new(), 0);
    for name in PAGES {
        for (said, around) in passages(&read(&format!("docs/{name}.md"))) {
            if names_a_version(&said) && !said.starts_with('#') {
                count += 1;
                if !names_a_keeper(&format!("{said}\n{around}"), &tests) {
                    broken.push(format!("{name}: nothing keeps: {said}"));
                }
            }
        }
    }
    for row in table(&format!("\n{}", read("docs/kernels.md")), "# Kernels") {
        let wrong = wrong_keepers(row[3]).unwrap_or_else(|| vec!["no test keeps it".to_owned()]);
        broken.extend(wrong.into_iter().map(|it| format!("kernels: since {}: {it}", row[0])));
    }
    check(&broken);
    assert!(count > 20, "{count} passages");
}

#[test]
fn versions_without_a_keeper_are_found() {
    for (line, is_named) in [
        ("Before Linux 6.17, a lookup may miss", true),
        ("| 1.2 | nft 1.0.6 prints it |", true),
        ("with nft at 10.96.0.1", false),
        ("in 0.5 s", false),
    ] {
        assert_eq!(names_a_version(line), is_named, "{line}");
    }
    let tests = tests();
    assert!(names_a_keeper("as `versions_without_a_keeper_are_found` has it", &tests));
    assert!(!names_a_keeper("as `no_such_test` has it, [here](limits.md)", &tests));
    let found = passages("before\n\n| a |\n|---|\n| c |\n\nafter\n\n- one\n- two\n");
    assert!(found.contains(&("| c |".to_owned(), "before\n|---|\nafter".to_owned())), "{found:?}");
    assert!(found.contains(&("- two".to_owned(), String::new())), "{found:?}");
}
