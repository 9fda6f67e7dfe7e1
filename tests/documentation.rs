//! Links, anchors, paths, tests and crates that the documents name exist.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

#[path = "documentation/contributing.rs"]
mod contributing;
#[path = "documentation/versions.rs"]
mod versions;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with the files of the project. Others, such as `target`, are made.
const FOLDERS: [&str; 13] = [
    ".ci",
    ".github",
    "benches",
    "deploy",
    "docs",
    "examples",
    "fake-kernel",
    "findings",
    "fuzz",
    "manual",
    "netlink-tests",
    "src",
    "tests",
];

/// Paths in documents that are no files of the project, with the reason.
const OTHER_PATHS: [(&str, &str); 2] =
    [("fuzz/artifacts", "made by `make fuzz`"), ("fuzz/corpus", "made by `make fuzz`")];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files of the project's folders and root.
fn files() -> Vec<PathBuf> {
    let mut left: Vec<_> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            found.push(path);
        }
    }
    let of_root = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    found.extend(of_root.filter(|path| path.is_file()));
    found
}

/// The documents: their paths and texts.
fn pages() -> Vec<(PathBuf, String)> {
    let of_docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let of_docs = of_docs.filter(|path| path.extension().is_some_and(|it| it == "md"));
    let others =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "src/nft/README.md"];
    let paths = of_docs.chain(others.map(|name| root().join(name)));
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Panics with one line for each broken rule.
#[track_caller]
fn check(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Later versions are named on one page, so that no other one grows old.
#[test]
fn every_page_names_the_same_version_of_kube_proxy() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if ["kubernetes-versions.md", "CHANGELOG.md"].contains(&&*name) {
            continue;
        }
        for (start, _) in text.match_indices("1.") {
            let before = text[..start].trim_end_matches("v");
            let minor: String =
                text[start + 2..].chars().take_while(char::is_ascii_digit).collect();
            let minor = minor.parse().unwrap_or(0);
            let is_wrong = (before.ends_with("kube-proxy ") && minor != 36)
                || (before.ends_with("Kubernetes ") && minor > 36);
            if is_wrong {
                broken
                    .push(format!("{name}: 1.{minor} instead of 1.36, see kubernetes-versions.md"));
            }
        }
    }
    check(&broken);
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The texts in backticks of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The targets of links in Markdown: path and anchor. Without those to other sites.
fn links(text: &str) -> Vec<(&str, &str)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target).filter(|target| !target.contains("://"));
    targets.map(|target| target.split_once('#').unwrap_or((target, ""))).collect()
}

/// The anchors of a page: its headings in small letters, with `-` for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|line| {
        line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
    });
    let anchor = |heading: &str| -> String {
        let letters = heading.chars().filter(|it| it.is_alphanumeric() || "-_ ".contains(*it));
        letters.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        for (path, anchor) in links(&text) {
            let target = if path.is_empty() { page.clone() } else { page.with_file_name(path) };
            let is_there = if anchor.is_empty() {
                target.exists()
            } else {
                fs::read_to_string(&target).is_ok_and(|it| anchors(&it).contains(anchor))
            };
            if !is_there {
                broken.push(format!("{}: {path}#{anchor} is missing", page.display()));
            }
        }
    }
    check(&broken);
}

#[test]
fn links_and_headings_are_found() {
    let text = "[a](b.md) and [c](../d#e), [f](https://g) [h](#i)\n## A `b`, c-d\n```\n# no\n```\n";
    assert_eq!(links(text), [("b.md", ""), ("../d", "e"), ("", "i")]);
    assert_eq!(anchors(text), ["a-b-c-d".to_owned()].into());
}

/// The paths that a text in backticks stands for: `a/{b,c}.rs` are two, and `NAME` is any name.
fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((names, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    names.split(',').map(|name| format!("{before}{name}{after}")).collect()
}

/// Whether a text in backticks is the path of a file of the project.
fn is_path(text: &str) -> bool {
    let first = text.split('/').next().unwrap();
    let is_below = text.contains('/') && FOLDERS.contains(&first);
    let is_file = [".rs", ".md", ".toml"].iter().any(|end| text.ends_with(end));
    (is_below || is_file) && !text.contains([' ', '*', ':'])
}

#[test]
fn paths_in_documents_exist() {
    let files = files();
    let mut broken = Vec::new();
    let mut others: BTreeSet<&(&str, &str)> = BTreeSet::new();
    let mut count = 0;
    for (page, text) in pages() {
        for path in prose(&text).flat_map(quoted).filter(|it| is_path(it)).flat_map(expanded) {
            count += 1;
            let is_there = if path.contains('/') {
                let path = path.replace("/NAME.", "/show.");
                // From the root, or from the folder of the page.
                root().join(&path).exists() || page.with_file_name(&path).exists()
            } else {
                // A file beside one that the sentence names.
                files.iter().any(|file| file.ends_with(&path))
            };
            let other = OTHER_PATHS.iter().find(|(other, _)| *other == path);
            others.extend(other);
            if !is_there && other.is_none() {
                broken.push(format!("{}: {path} does not exist", page.display()));
            }
        }
    }
    check(&broken);
    assert!(count > 80, "{count} paths");
    assert_eq!(others.len(), OTHER_PATHS.len(), "an exception is not used any more");
}

/// The rows of the first table below a heading: their cells.
fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, below) =
        page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let lines = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// What is wrong with the cell of a table that names tests, each after its file: `None` without a test.
fn wrong_keepers(cell: &str) -> Option<Vec<String>> {
    let mut wrong = Vec::new();
    let mut file = String::new();
    let mut tests = 0;
    for keeper in quoted(cell) {
        if keeper.contains('/') {
            file = read(keeper);
        } else if keeper.chars().all(|it| it.is_ascii_alphanumeric() || it == '_') {
            tests += 1;
            // A function of its own, or one that a macro makes a test of.
            if !file.contains(&format!("fn {keeper}(")) {
                wrong.push(format!("no test {keeper} there"));
            }
        }
    }
    (tests > 0).then_some(wrong)
}

/// Each invariant names its keepers: a file, and the functions of it that fail without the
/// invariant.
#[test]
fn every_invariant_names_its_keepers_and_they_exist() {
    let page = read("docs/architecture.md");
    let rows = table(&page, "## What always holds");
    assert!(rows.len() >= 10, "{rows:#?}");
    let mut broken = Vec::new();
    for row in rows {
        let [invariant, keepers] = row[..] else { panic!("{row:?}") };
        let wrong = wrong_keepers(keepers);
        let wrong = wrong.unwrap_or_else(|| vec!["no test keeps it".to_owned()]);
        broken.extend(wrong.into_iter().map(|it| format!("{invariant}: {it}")));
    }
    check(&broken);
}

#[test]
fn the_map_of_observe_has_each_of_its_modules() {
    let page = read("docs/architecture.md");
    let rows = table(&page, "## Map of `observe`");
    let mapped: BTreeSet<String> =
        rows.iter().flat_map(|row| quoted(row[0])).map(str::to_owned).collect();
    let folder = fs::read_dir(root().join("src/daemon/observe")).unwrap();
    let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let modules = folder.map(|entry| name(entry.unwrap().path())).filter(|it| it != "mod");
    assert_eq!(mapped, modules.collect());
}

/// A line that begins with "Cannot" names a test; one with "Can" names a test, or a page that
/// describes it.
#[test]
fn every_claim_about_trust_names_its_keepers_and_they_exist() {
    let page = read("docs/trust.md");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains(" | "));
    let mut broken = Vec::new();
    let mut claims = 0;
    for row in rows {
        let (claim, keepers) = row.trim_matches(['|', ' ']).rsplit_once(" | ").unwrap();
        if keepers == "kept by" {
            continue;
        }
        claims += 1;
        let is_elsewhere = keepers.starts_with('[') || keepers.contains("`make ");
        let is_weakness = keepers == "by design" && !claim.starts_with("Cannot");
        match wrong_keepers(keepers) {
            Some(wrong) => broken.extend(wrong.into_iter().map(|it| format!("{claim}: {it}"))),
            None if is_elsewhere || is_weakness => {}
            None => broken.push(format!("{claim}: no test keeps it")),
        }
    }
    check(&broken);
    assert!(claims > 30, "{claims} claims");
}

/// What happens to connections with direct return, each with the tests that keep it.
#[test]
fn every_promise_of_direct_return_names_its_keepers_and_they_exist() {
    let page = read("docs/direct-return.md");
    let rows = table(&page, "## Connections while things change");
    assert!(rows.len() >= 10, "{rows:#?}");
    let mut broken = Vec::new();
    for row in rows {
        let [change, _, keepers] = row[..] else { panic!("{row:?}") };
        let wrong = wrong_keepers(keepers).unwrap_or_else(|| vec!["no test keeps it".to_owned()]);
        broken.extend(wrong.into_iter().map(|it| format!("{change}: {it}")));
    }
    check(&broken);
}

/// What is written to a Node, with the tests that keep it.
#[test]
fn every_promise_of_node_readiness_names_its_keepers_and_they_exist() {
    let page = read("docs/node-readiness.md");
    let rows = table(&page, "## What keeps it");
    assert!(rows.len() >= 5, "{rows:#?}");
    let broken: Vec<_> = rows
        .iter()
        .flat_map(|row| wrong_keepers(row[1]).unwrap_or_else(|| vec!["no test".to_owned()]))
        .collect();
    check(&broken);
}

/// The promises about tables of other layouts, with the file of the tests in the head of the table.
#[test]
fn every_promise_about_layouts_names_a_test() {
    let page = read("docs/releases.md");
    let file = "`netlink-tests/tests/layouts.rs`";
    assert!(page.contains(&format!(" | test in {file} |\n")));
    let rows = table(&page, "## Tables of another version");
    assert_eq!(rows.len(), 4, "{rows:#?}");
    let mut broken = Vec::new();
    for row in rows.iter().filter(|row| !row[2].is_empty()) {
        let wrong = wrong_keepers(&format!("{file} {}", row[2]));
        broken.extend(wrong.unwrap_or_else(|| vec![format!("{}: no test", row[0])]));
    }
    check(&broken);
    let this = format!("This version has layout {}.", engine::ruleset::LAYOUT);
    assert!(page.contains(&this), "{this}");
}

#[test]
fn keepers_that_are_missing_are_found() {
    let own = "`tests/documentation.rs`: `keepers_that_are_missing_are_found`";
    assert_eq!(wrong_keepers(own), Some(vec![]));
    let wrong = wrong_keepers(&format!("{own}, `no_such_test`"));
    assert_eq!(wrong, Some(vec!["no test no_such_test there".to_owned()]));
    assert_eq!(wrong_keepers("`tests/documentation.rs`"), None);
}

/// The site has each page, so `make links` checks each.
#[test]
fn the_summary_of_the_site_lists_each_page() {
    let summary = read("docs/SUMMARY.md");
    let listed: BTreeSet<_> = links(&summary).into_iter().map(|(path, _)| path).collect();
    let missing = fs::read_dir(root().join("docs")).unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_page = name.ends_with(".md") && name != "SUMMARY.md";
        (is_page && !listed.contains(&*name)).then_some(name)
    });
    check(&missing.collect::<Vec<_>>());
}

#[test]
fn the_readme_is_short_and_begins_with_the_way_to_try_it() {
    let readme = read("README.md");
    assert!(readme.lines().count() < 120, "{} lines", readme.lines().count());
    let first = readme.lines().find(|line| line.starts_with("## "));
    assert_eq!(first, Some("## Quick start"));
}

/// The names of the crates in a section of a manifest that come from outside.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let manifest = read(manifest);
    let Some((_, section)) = manifest.split_once(&format!("\n[{section}]\n")) else {
        return BTreeSet::new();
    };
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.contains("path = ") && !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split_once([' ', '.', '=']));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The crates of the second column of a table.
fn named(page: &str, heading: &str) -> BTreeSet<String> {
    let rows = table(page, heading).into_iter();
    rows.flat_map(|row| row[1].split(", ").map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The crates of this workspace, by the names that the others use.
fn own_crates() -> BTreeSet<String> {
    let manifest = read("Cargo.toml");
    let lines = manifest.lines().filter(|line| line.contains("path = "));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned()).collect()
}

/// The names of the crates from outside in these sections of all manifests.
fn all_dependencies(manifests: &[String], sections: &[&str]) -> BTreeSet<String> {
    let own = own_crates();
    let of =
        |manifest: &String| sections.iter().flat_map(|it| dependencies(manifest, it)).collect();
    let all = manifests.iter().flat_map(|manifest| -> BTreeSet<String> { of(manifest) });
    all.filter(|name| !own.contains(name)).collect()
}

#[test]
fn every_dependency_has_its_row() {
    let page = read("docs/dependencies.md");
    let crates = fs::read_dir(root().join("src")).unwrap();
    let names = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates: Vec<_> = names.map(|name| format!("src/{name}/Cargo.toml")).collect();
    let of_program = all_dependencies(&crates, &["dependencies"]);
    assert!(of_program.len() > 30, "{of_program:?}");
    assert_eq!(named(&page, "## Of the program"), of_program);
    let tools = ["fake-kernel", "manual", "netlink-tests", "tests"];
    let tools: Vec<_> = tools.iter().map(|name| format!("{name}/Cargo.toml")).collect();
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut others = all_dependencies(&tools, &sections);
    others.extend(all_dependencies(&crates, &sections[1..]));
    let others: BTreeSet<_> = others.difference(&of_program).cloned().collect();
    assert_eq!(named(&page, "## Of tests and tools"), others);
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let separates = |letter: char| letter.is_whitespace() || "\"\\`;:,()|".contains(letter);
    text.split(separates).filter(|word| !word.is_empty())
}

/// Files that name the scheduler `rr` for users.
const NAMING_RR: [&str; 7] = [
    "src/daemon/config/options/table.rs",
    "src/program/show.rs",
    "examples/kube-proxy-config.yaml",
    "docs/schedulers.md",
    "docs/ipvs.md",
    "docs/options.md",
    "docs/show.md",
];

#[test]
fn rr_is_random_in_the_same_words_everywhere() {
    for path in NAMING_RR {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let words: Vec<_> = words(&text).filter(|word| !["///", "#"].contains(word)).collect();
        let text = words.join(" ");
        assert!(text.contains("rr is random even over time not in turn"), "{path}");
    }
}
