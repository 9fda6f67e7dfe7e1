//! `src/program/build.rs` names the commit and the date of a build.

#![allow(clippy::unwrap_used)] // A missing program is a failed test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use clap::CommandFactory;
use tempfile::TempDir;

/// The source of the build script.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/program/build.rs");

/// The compiled build script, in a folder that stays as long as the tests.
static SCRIPT: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-o"]).arg(&script).arg(SOURCE);
    assert!(rustc.status().unwrap().success());
    (folder, script)
});

/// The folder of a package.
struct Package {
    folder: TempDir,
}

const SHA1: &str = "0123456789abcdef0123456789abcdef01234567";

impl Package {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(SOURCE, folder.path().join("build.rs")).unwrap();
        Self { folder }
    }

    /// What the script prints for this profile and these variables.
    fn printed(&self, profile: &str, variables: &[(&str, &str)]) -> String {
        let mut script = Command::new(&SCRIPT.1);
        script.current_dir(self.folder.path()).env_remove("DELTAPROXY_COMMIT");
        script.env_remove("SOURCE_DATE_EPOCH").env("PROFILE", profile);
        script.env("CARGO_PKG_VERSION", "1.2.3").envs(variables.iter().copied());
        let output = script.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn version(&self, profile: &str, variables: &[(&str, &str)]) -> String {
        let printed = self.printed(profile, variables);
        let mut lines = printed.lines();
        lines.find_map(|it| it.strip_prefix("cargo::rustc-env=DELTAPROXY_VERSION=")).unwrap().into()
    }

    /// Writes the file of `cargo package`.
    fn write_packaged(&self) {
        let text = format!(
            "{{\n  \"git\": {{\n    \"sha1\": \"{SHA1}\"\n  }},\n  \"path_in_vcs\": \"\"\n}}"
        );
        fs::write(self.folder.path().join(".cargo_vcs_info.json"), text).unwrap();
    }

    fn git(&self, arguments: &str) {
        let mut git = Command::new("git");
        git.current_dir(self.folder.path()).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        git.args(arguments.split(' ')).env("GIT_COMMITTER_DATE", "2024-02-29T23:30:00-0500");
        assert!(git.output().unwrap().status.success(), "{arguments}");
    }
}

fn is_commit(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|it| it.is_ascii_hexdigit())
}

#[test]
fn without_git_the_version_is_alone() {
    let package = Package::new();
    for profile in ["debug", "release"] {
        assert_eq!(package.version(profile, &[]), "1.2.3");
        assert_eq!(package.version(profile, &[("DELTAPROXY_COMMIT", "")]), "1.2.3");
    }
}

#[test]
fn the_variables_of_a_release_build_come_first() {
    let package = Package::new();
    package.git("init --quiet");
    package.git("add build.rs");
    package.git("commit --quiet --message first");
    package.write_packaged();
    let commit = ("DELTAPROXY_COMMIT", "0a1b2c");
    assert_eq!(package.version("release", &[commit]), "1.2.3 (0a1b2c)");
    let days = [
        ("0", "1970-01-01"),
        ("951782400", "2000-02-29"),
        ("951868800", "2000-03-01"),
        ("1735689599", "2024-12-31"),
        ("1735689600", "2025-01-01"),
        ("4107542400", "2100-03-01"),
    ];
    for (seconds, day) in days {
        let version = package.version("debug", &[commit, ("SOURCE_DATE_EPOCH", seconds)]);
        assert_eq!(version, format!("1.2.3 (0a1b2c {day})"));
    }
}

#[test]
fn a_package_of_the_registry_has_the_commit_that_cargo_recorded() {
    let package = Package::new();
    package.write_packaged();
    assert_eq!(package.version("release", &[]), "1.2.3 (0123456789ab)");
    let version = package.version("release", &[("SOURCE_DATE_EPOCH", "0")]);
    assert_eq!(version, "1.2.3 (0123456789ab 1970-01-01)");
}

#[test]
fn a_release_build_has_the_commit_of_git_and_others_are_not_built_for_each() {
    let package = Package::new();
    package.git("init --quiet");
    fs::write(package.folder.path().join("other"), "").unwrap();
    package.git("add other");
    package.git("commit --quiet --message other");
    // A repository of something else.
    assert_eq!(package.version("release", &[]), "1.2.3");
    package.git("add build.rs");
    package.git("commit --quiet --message first");
    let version = package.version("release", &[]);
    let (commit, date) = version.strip_prefix("1.2.3 (").unwrap().split_once(' ').unwrap();
    // The day in UTC.
    assert!(is_commit(commit) && date == "2024-03-01)", "{version}");
    let version = package.version("release", &[("SOURCE_DATE_EPOCH", "0")]);
    assert_eq!(version, format!("1.2.3 ({commit} 1970-01-01)"));
    let printed = package.printed("release", &[]);
    assert!(printed.contains("cargo::rerun-if-changed=.git/logs/HEAD\n"), "{printed}");

    let script = package.folder.path().join("build.rs");
    fs::write(&script, "changed").unwrap();
    assert_eq!(package.version("release", &[]), format!("1.2.3 ({commit}-dirty {date}"));

    let of_debug = package.printed("debug", &[]);
    assert_eq!(package.version("debug", &[]), "1.2.3");
    assert!(!of_debug.contains(".git"), "{of_debug}");
}

#[test]
fn the_program_prints_the_version_of_its_build_script() {
    let shown = deltaproxy::Cli::command().render_version();
    assert!(shown.starts_with(concat!("deltaproxy ", env!("CARGO_PKG_VERSION"))), "{shown}");
}
