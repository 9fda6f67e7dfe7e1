//! CONTRIBUTING.md describes the targets of `Makefile` and what `.ci/run` does.

use std::collections::BTreeSet;
use std::fs;

use daemon::yaml;

use super::{check, quoted, read, root};

/// Targets with their help, by the groups that `make help` prints.
fn groups(makefile: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let mut groups: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    for line in makefile.lines() {
        if let Some(title) = line.strip_prefix("##@ ") {
            groups.push((title, Vec::new()));
        } else if let Some((rule, help)) = line.split_once(" ## ")
            && let Some((target, _)) = rule.split_once(':')
        {
            groups.last_mut().unwrap().1.push((target, help));
        }
    }
    groups
}

/// The first words after `make` in the quoted commands of a text.
fn targets(text: &str) -> BTreeSet<&str> {
    let commands = text.lines().flat_map(quoted).filter_map(|it| it.strip_prefix("make "));
    commands.filter_map(|it| it.split(' ').next()).filter(|it| !it.contains('=')).collect()
}

/// The text between two others, which are there.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end:?}")).0
}

#[test]
fn make_help_has_groups_of_targets() {
    let makefile = read("Makefile");
    let groups = groups(&makefile);
    assert!(
        groups.len() > 5 && groups.iter().all(|(_, targets)| !targets.is_empty()),
        "{groups:?}"
    );
}

/// Each target that tests something has a row, so that it is found.
#[test]
fn every_target_of_tests_is_described() {
    let (makefile, page) = (read("Makefile"), read("CONTRIBUTING.md"));
    let described = targets(&page);
    let all = groups(&makefile).into_iter().flat_map(|(_, targets)| targets);
    let tests = all.filter(|(target, _)| target.starts_with("test") || target.ends_with("-check"));
    let missing = tests.filter(|(target, _)| !described.contains(target));
    check(
        &missing.map(|(target, _)| format!("make {target} is not described")).collect::<Vec<_>>(),
    );
}

/// Variables in capitals belong to a target, a script or a test.
#[test]
fn variables_of_described_commands_exist() {
    let mut sources = read("Makefile");
    for script in ["in-kernel", "nft-corpus", "nft-versions", "kubernetes/go"] {
        sources += &read(&format!("netlink-tests/{script}"));
    }
    for test in ["corpus.rs", "races.rs", "storm.rs"] {
        sources += &read(&format!("netlink-tests/tests/{test}"));
    }
    sources += &read("tests/promises/record.rs");
    sources += &read("netlink-tests/src/apiserver/mod.rs");
    let page = read("CONTRIBUTING.md");
    let words = page.lines().flat_map(quoted).flat_map(str::split_whitespace);
    let names = words.filter_map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let is_name = name.len() > 3
            && name.chars().all(|it| it.is_ascii_uppercase() || it == '_')
            && (name.contains('_') || !value.is_empty());
        is_name.then_some(name)
    });
    let names: BTreeSet<_> = names.collect();
    assert!(names.len() > 10, "{names:?}");
    let unknown = names.iter().filter(|name| !sources.contains(**name));
    check(&unknown.map(|name| format!("nothing reads {name}")).collect::<Vec<_>>());
}

#[test]
fn the_targets_of_ci_are_those_that_it_calls() {
    let (page, run) = (read("CONTRIBUTING.md"), read(".ci/run"));
    let described = targets(between(&page, "`.ci/run` must pass. It calls ", "\n"));
    let lines = run.lines().filter(|line| line.trim_start().starts_with("stage \""));
    let called = lines.filter_map(|line| line.split(" make ").nth(1)?.split(' ').next());
    let called: BTreeSet<_> = called.collect();
    assert_eq!(described, called);
}

#[test]
fn the_packages_that_ci_installs_are_named() {
    let (page, run) = (read("CONTRIBUTING.md"), read(".ci/run"));
    let described = between(&page, "it installs missing Debian packages (", ")");
    let described: BTreeSet<_> = described.split(", ").collect();
    let map = between(&run, "local -A package=(", ")");
    let installed: BTreeSet<_> =
        map.split_whitespace().filter_map(|it| it.split_once("]=")).map(|(_, name)| name).collect();
    assert_eq!(described, installed);
}

/// The fields of the forms are those that GitHub documents.
#[test]
fn issue_forms_are_valid_and_ask_for_versions_and_the_service() {
    for entry in fs::read_dir(root().join(".github/ISSUE_TEMPLATE")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "config.yml" {
            continue;
        }
        let text = read(&format!(".github/ISSUE_TEMPLATE/{name}"));
        let form = yaml::parse(&text).unwrap().remove(0).value;
        assert!(form["name"].is_string() && form["description"].is_string(), "{name}");
        let mut ids = BTreeSet::new();
        for element in form["body"].as_array().unwrap() {
            match element["type"].as_str().unwrap() {
                "markdown" => assert!(element["attributes"]["value"].is_string(), "{name}"),
                "textarea" => {
                    assert!(element["attributes"]["label"].is_string(), "{name}: {element}");
                    assert!(ids.insert(element["id"].as_str().unwrap().to_owned()), "{element}");
                }
                other => panic!("{name}: {other}"),
            }
        }
        assert!(ids.contains("versions"), "{name}");
        assert!(text.contains("`deltaproxy --version`"), "{name}");
    }
    for file in [".github/ISSUE_TEMPLATE/bug.yml", ".github/pull_request_template.md"] {
        assert!(read(file).contains("`deltaproxy show SERVICE --output json`"), "{file}");
    }
}
