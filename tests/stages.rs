//! `tests/stages`, which `make test` runs its tests with.
#![allow(clippy::unwrap_used)]

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
