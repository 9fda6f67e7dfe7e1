//! Records of what a version promises: a file for each interface, with a line for each name.

use std::env;
use std::fs;
use std::path::Path;

/// Compares an interface with its record; with `UPDATE_DOCS=1` it writes the record.
///
/// # Panics
/// The record has other lines.
#[track_caller]
pub(crate) fn compare(name: &str, lines: &[String]) {
    let found = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let path = format!("tests/promises/{name}.txt");
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(&path);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &found).unwrap();
    }
    let record = fs::read_to_string(&file).unwrap_or_default();
    let gone = record.lines().filter(|line| !found.lines().any(|it| it == *line));
    let new = found.lines().filter(|line| !record.lines().any(|it| it == *line));
    let gone = gone.map(|line| format!("- {line}\n"));
    let changes: String = gone.chain(new.map(|line| format!("+ {line}\n"))).collect();
    assert!(
        record == found,
        "users rely on {path} (docs/releases.md), and the program differs:\n{changes}If that is \
         meant, write the file with UPDATE_DOCS=1 and add a line to CHANGELOG.md."
    );
}
