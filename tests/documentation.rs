//! Links of the pages point to files, and quoted messages are those of the program.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

use std::fs;
use std::path::{Path, PathBuf};

/// Length of the word sequences that are searched; a third of a message's must be in the source.
const ROW: usize = 3;

/// Messages of other programs in docs/troubleshooting.md.
const OF_OTHERS: [&str; 1] = ["exec …: operation not permitted"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder with this extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut left = vec![root().join(folder)];
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found
}

/// The targets of links in Markdown, without anchors and addresses of other sites.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let paths = targets.filter_map(|(target, _)| target.split('#').next());
    paths.filter(|path| !path.is_empty() && !path.contains("://")).collect()
}

#[test]
fn links_lead_to_files() {
    let mut broken = Vec::new();
    let others = ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    for page in files("docs", "md").into_iter().chain(others) {
        let text = fs::read_to_string(&page).unwrap();
        let missing = links(&text).into_iter().filter(|link| !page.with_file_name(link).exists());
        broken.extend(missing.map(|link| format!("{}: {link} is missing", page.display())));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn links_are_found() {
    let text = "[a](b.md) and [c](../d#e), [f](https://g) [h](#i)";
    assert_eq!(links(text), ["b.md", "../d"]);
}

/// All words of the source; a string over several lines is one sequence of words.
fn source_words() -> String {
    let texts: Vec<_> =
        files("src", "rs").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let words: Vec<_> = texts.iter().flat_map(|text| words(text)).collect();
    format!(" {} ", words.join(" "))
}

fn words(text: &str) -> Vec<&str> {
    let separates = |letter: char| letter.is_whitespace() || "\"\\`;:,()|".contains(letter);
    text.split(separates).filter(|word| !word.is_empty()).collect()
}

/// Messages in the first column of the tables with lines of the log.
fn messages(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let messages = rows.map(|(message, _)| message);
    messages.filter(|message| !OF_OTHERS.contains(message)).collect()
}

#[test]
fn quoted_messages_are_those_of_the_program() {
    let source = source_words();
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let messages = messages(&page);
    assert!(messages.len() > 20, "{messages:?}");
    // Values of the example are not in the source.
    let is_in_source = |message: &&&str| {
        let words = words(message);
        let rows: Vec<_> = words.windows(ROW.min(words.len())).collect();
        let found = rows.iter().filter(|row| source.contains(&format!(" {} ", row.join(" "))));
        found.count() * 3 >= rows.len()
    };
    let unknown: Vec<_> = messages.iter().filter(|message| !is_in_source(message)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Files that name the scheduler `rr` for users.
const NAMING_RR: [&str; 8] = [
    "src/config/flags.rs",
    "src/config/kube_proxy/flags.rs",
    "src/cli/show.rs",
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
        let words: Vec<_> =
            words(&text).into_iter().filter(|word| !["///", "#"].contains(word)).collect();
        let text = words.join(" ");
        assert!(text.contains("rr is random even over time not in turn"), "{path}");
    }
}
