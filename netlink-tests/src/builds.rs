//! What the environment says of a bench: numbers, and the builds that it measures in turns.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the number in a variable of the environment, or the default if it is not set or empty.
///
/// # Panics
/// The variable has another value.
#[must_use]
pub fn number(name: &str, default: u32) -> u32 {
    set(name).map_or(default, |number| number.parse().unwrap())
}

/// Returns the full path of a file. Cargo starts a bench in the folder of its package, `make` counts
/// from the one above.
///
/// # Panics
/// There is no such file.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join(path).canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names and binaries of the builds to be measured: that of the variable `BEFORE`, if it
/// is set, and that of `AFTER`, or else the release build.
///
/// # Panics
/// There is no such binary.
#[must_use]
pub fn builds() -> Vec<(&'static str, PathBuf)> {
    let after = set("AFTER").unwrap_or_else(|| "target/release/deltaproxy".into());
    let builds = set("BEFORE").map(|path| ("before", path)).into_iter().chain([("after", after)]);
    builds.map(|(name, path)| (name, absolute(Path::new(&path)))).collect()
}

/// Returns the same builds; `None` unless `BEFORE` is set.
///
/// # Panics
/// There is no such binary.
#[must_use]
pub fn builds_in_turns() -> Option<Vec<(&'static str, PathBuf)>> {
    set("BEFORE").is_some().then(builds)
}

fn set(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}
