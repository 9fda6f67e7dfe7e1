//! Exit codes.

use super::failure::Failure;
use super::output::printed;
use super::run::End;

/// The end of a command.
#[derive(Debug)]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// Failure, unless everything was done.
    pub failure: Option<Failure>,
    /// The program must restart.
    pub restart: bool,
}

/// Whether a command found what it looks for: differences, draining endpoints, problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It found nothing.
    Nothing,
    /// It found something.
    Something,
}

impl Found {
    /// Returns what was found.
    pub(super) fn if_any(is_any: bool) -> Self {
        if is_any { Self::Something } else { Self::Nothing }
    }
}

/// As in diff(1): 0 if nothing was found, 1 if something was, 2 on failure.
impl From<Result<Found, Failure>> for Exit {
    fn from(result: Result<Found, Failure>) -> Self {
        let found = result.and_then(printed);
        let code = found.as_ref().map_or(2, |found| u8::from(*found == Found::Something));
        Self { code, failure: found.err(), restart: false }
    }
}

/// 0 on success, else 1.
impl From<Result<(), Failure>> for Exit {
    fn from(result: Result<(), Failure>) -> Self {
        let failure = result.and_then(printed).err();
        Self { code: u8::from(failure.is_some()), failure, restart: false }
    }
}

impl From<Result<End, Failure>> for Exit {
    fn from(result: Result<End, Failure>) -> Self {
        let restart = matches!(result, Ok(End::ConfigChanged));
        Self { restart, ..result.map(|_| ()).into() }
    }
}

/// Exit codes of `apply`, for `--help`.
pub const APPLY_CODES: &str = "\
Exit codes:
  0  the tables match the manifests
  1  an error, or something was left out; everything else is applied then";

/// Exit codes of `cleanup`, for `--help`.
pub const CLEANUP_CODES: &str = "\
Exit codes:
  0  done, or there was nothing to remove
  1  an error: a running daemon owns a table (then nothing is removed), or something cannot be removed";

/// Exit codes of `config check`, for `--help`.
pub const CHECK_CODES: &str = "\
Exit codes:
  0  the file can be used
  1  it cannot be read or used, each error is printed with its line; or the Services cannot be listed";

/// Exit codes of `plan`, for `--help`.
pub const PLAN_CODES: &str = "\
Exit codes, as those of diff(1):
  0  nothing would change
  1  something would change
  2  an error, or something would be left out";

/// Exit codes of `verify`, for `--help`.
pub const VERIFY_CODES: &str = "\
Exit codes, as those of diff(1):
  0  the tables match the objects
  1  they differ
  2  an error: the tables or the objects cannot be read, or the settings are not known";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_diff_for_comparisons_and_0_or_1_for_others() {
        let failure = || Failure::new("why");
        for (outcome, code, is_failure) in [
            (Exit::from(Ok(Found::Nothing)), 0, false),
            (Exit::from(Ok(Found::Something)), 1, false),
            (Exit::from(Err::<Found, _>(failure())), 2, true),
            (Exit::from(Ok(())), 0, false),
            (Exit::from(Err::<(), _>(failure())), 1, true),
        ] {
            assert_eq!((outcome.code, outcome.failure.is_some()), (code, is_failure));
        }
    }
}
