//! Names the commit and the date of the build, for `--version` and the log.
//!
//! The commit is that of the first source that exists: the variable `DELTAPROXY_COMMIT`, the file of
//! `cargo package`, git. git only for release builds: others would compile the program again after
//! each commit. The date is that of `SOURCE_DATE_EPOCH`, or of the commit. Without a source there is
//! the version alone.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// File that `cargo package` adds.
const PACKAGED: &str = ".cargo_vcs_info.json";

/// Digits of a commit that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DELTAPROXY_COMMIT");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let (commit, seconds) = of_variable().or_else(of_package).or_else(of_git).unwrap_or_default();
    let fixed = env::var("SOURCE_DATE_EPOCH").ok().and_then(|it| it.parse().ok());
    let date = fixed.or(seconds).and_then(date);
    let build = format!("{commit} {}", date.unwrap_or_default());
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match build.trim() {
        "" => version,
        build => format!("{version} ({build})"),
    };
    println!("cargo::rustc-env=DELTAPROXY_COMMIT={commit}");
    println!("cargo::rustc-env=DELTAPROXY_VERSION={version}");
}

/// A commit, and its time in seconds since 1970.
type Commit = (String, Option<i64>);

fn of_variable() -> Option<Commit> {
    Some((env::var("DELTAPROXY_COMMIT").ok()?, None))
}

fn of_package() -> Option<Commit> {
    let text = fs::read_to_string(PACKAGED).ok()?;
    println!("cargo::rerun-if-changed={PACKAGED}");
    let (_, after) = text.split_once("\"sha1\"")?;
    let commit = after.split('"').nth(1)?;
    Some((commit.get(..DIGITS)?.to_owned(), None))
}

fn of_git() -> Option<Commit> {
    if env::var("PROFILE").as_deref() != Ok("release") {
        return None;
    }
    // Another repository may contain the sources: then its commit says nothing.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // Changed by each commit and checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    let digits = format!("--abbrev={DIGITS}");
    let commit = git(&["describe", "--always", "--dirty", "--exclude=*", &digits])?;
    let seconds = git(&["log", "-1", "--format=%ct"])?;
    Some((commit, seconds.parse().ok()))
}

/// Runs git in the package's folder.
fn git(arguments: &[&str]) -> Option<String> {
    output("git", arguments)
}

/// The day in UTC as YYYY-MM-DD.
fn date(seconds: i64) -> Option<String> {
    output("date", &["-u", "-d", &format!("@{seconds}"), "+%F"])
}

/// What a program prints if it succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
