//! `tests/stages` and `netlink-tests/side-by-side`, which `make test` runs its tests with.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The output of `cargo test --no-fail-fast`, shortened; the second program was killed.
const OUTPUT: &str = "
     Running unittests src/lib.rs (target/debug/deps/deltaproxy-0123)
test observe::tests::counts ... ok
test observe::tests::sums - should panic ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored
     Running tests/killed.rs (target/debug/deps/killed-4567)
test never_ends ... error: test failed, to rerun pass `--test killed`
     Running tests/good.rs (target/debug/deps/good-89ab)
test works ... ok
test result: ok. 1 passed; 0 failed; 0 ignored
   Doc-tests deltaproxy
test src/nft/mod.rs - nft (line 3) ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored
";

fn stages(arguments: &[&str]) -> Output {
    let script = concat!(concat!(env!("CARGO_MANIFEST_DIR"), "/.."), "/tests/stages");
    Command::new("sh").arg(script).args(arguments).output().unwrap()
}

/// Runs stages by their names and commands; returns their output, the summary, and whether that
/// succeeded.
fn summary(all: &[(&str, &str)]) -> (String, String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let mut shown = String::new();
    for (name, command) in all {
        let run = stages(&["run", folder, name, "sh", "-c", command]);
        assert!(run.status.success(), "{run:?}");
        shown += &String::from_utf8(run.stdout).unwrap();
    }
    let names = all.iter().map(|(name, _)| *name);
    let summary = stages(&[&["summary", folder][..], &names.collect::<Vec<_>>()].concat());
    (shown, String::from_utf8(summary.stdout).unwrap(), summary.status.success())
}

#[test]
fn later_stages_run_and_the_summary_names_each_failed_test() {
    let failing = format!("echo '{OUTPUT}'; exit 101");
    let all = [("unit", &*failing), ("kernel", "echo no namespaces >&2; exit 1"), ("last", "true")];
    let (shown, summary, success) = summary(&all);
    assert!(shown.contains("test works ... ok") && shown.contains("no namespaces"), "{shown}");
    let expected = "=== failed:
    unit: unittests src/lib.rs (deltaproxy): observe::tests::sums - should panic
    unit: tests/killed.rs (killed): ended without a result
    unit: documentation of deltaproxy: src/nft/mod.rs - nft (line 3)
    kernel: (exit status 1, no test named)
";
    assert_eq!((summary.as_str(), success), (expected, false));
}

#[test]
fn stages_that_pass_are_one_line() {
    let (_, summary, success) = summary(&[("unit", "echo '   Doc-tests a'"), ("kernel", "true")]);
    assert_eq!((summary.as_str(), success), ("=== no test failed\n", true));
}

#[test]
fn a_stage_that_did_not_run_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let summary = stages(&["summary", folder.path().to_str().unwrap(), "unit"]);
    let text = String::from_utf8(summary.stdout).unwrap();
    assert_eq!(text, "=== failed:\n    unit: (exit status none, no test named)\n");
    assert!(!summary.status.success());
}

/// Writes an executable shell script; returns its path.
fn script(folder: &Path, name: &str, commands: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs programs, at most two at once, in the namespace of this test.
fn side_by_side(folder: &Path, programs: &[String]) -> Output {
    let without = tempfile::tempdir().unwrap();
    script(without.path(), "unshare", "shift; exec \"$@\"");
    let path = format!("{}:{}", without.path().display(), std::env::var("PATH").unwrap());
    let runner = concat!(env!("CARGO_MANIFEST_DIR"), "/../netlink-tests/side-by-side");
    let mut command = Command::new("sh");
    command.args([runner, "2"]).args(programs).env("PATH", path).current_dir(folder);
    command.output().unwrap()
}

#[test]
fn programs_side_by_side_print_their_output_whole_and_failed_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Each waits until the other runs, and prints something before and after that.
    let meet = |own: &str, other: &str| {
        format!(
            "echo begin {own}; touch {own}; n=0
             until [ -e {other} ] || [ $n = 500 ]; do sleep 0.02; n=$((n + 1)); done
             [ $n = 500 ] || echo end {own}; echo 'test result: ok. 1 passed'"
        )
    };
    let names = ["passed-01", "passed-23", "passed-45", "last-67"];
    let passed = names.map(|name| script(folder, name, "sleep 0.1; echo 'test result: ok.'"));
    let programs = [
        script(folder, "one-01", &meet("one", "two")),
        script(folder, "two-23", &meet("two", "one")),
        script(folder, "failed-45", "echo 'test works ... FAILED'; echo 'test result: '; exit 255"),
        script(folder, "killed-67", "kill -9 $$"),
    ];
    let programs = [programs, passed].concat();
    let run = side_by_side(folder, &programs);
    let shown = String::from_utf8(run.stdout).unwrap();
    assert!(!run.status.success());
    for name in ["one", "two"] {
        assert!(shown.contains(&format!("begin {name}\nend {name}\n")), "{shown}");
    }
    assert!(shown.contains("     Running tests/last.rs ("), "{shown}");

    let (_, summary, _) = summary(&[("kernel", &format!("echo '{shown}'; exit 123"))]);
    let mut failed: Vec<_> = summary.lines().collect();
    failed.sort_unstable();
    let expected = [
        "    kernel: tests/failed.rs (failed): works",
        "    kernel: tests/killed.rs (killed): ended without a result",
        "=== failed:",
    ];
    assert_eq!(failed, expected);
    assert!(side_by_side(folder, &programs[..2]).status.success());
}

#[test]
fn side_by_side_without_programs_fails() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(side_by_side(folder.path(), &[]).status.code(), Some(2));
}
