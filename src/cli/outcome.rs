//! Exit codes.

use super::{End, Explained, Failure, Planned};

/// The end of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code.
    pub code: u8,
    /// Why not all was done.
    pub failure: Option<Failure>,
    /// The program is to start again.
    pub restart: bool,
}

/// 0 if all was done, else 1.
impl From<Result<(), Failure>> for Outcome {
    fn from(result: Result<(), Failure>) -> Self {
        let failure = result.err();
        Self { code: u8::from(failure.is_some()), failure, restart: false }
    }
}

impl From<Result<End, Failure>> for Outcome {
    fn from(result: Result<End, Failure>) -> Self {
        let restart = matches!(result, Ok(End::ConfigChanged));
        Self { restart, ..result.map(|_| ()).into() }
    }
}

/// As [`PLAN_CODES`] says.
impl From<Result<Planned, Failure>> for Outcome {
    fn from(result: Result<Planned, Failure>) -> Self {
        match result {
            Ok(Planned::Nothing) => Self { code: 0, failure: None, restart: false },
            Ok(Planned::Changes) => Self { code: 1, failure: None, restart: false },
            Err(failure) => Self { code: 2, failure: Some(failure), restart: false },
        }
    }
}

/// As [`super::EXPLAIN_CODES`] says.
impl From<Result<Explained, Failure>> for Outcome {
    fn from(result: Result<Explained, Failure>) -> Self {
        match result {
            Ok(Explained::Agrees) => Self { code: 0, failure: None, restart: false },
            Ok(Explained::Differs) => Self { code: 1, failure: None, restart: false },
            Err(failure) => Self { code: 2, failure: Some(failure), restart: false },
        }
    }
}

/// The exit codes of `plan`, for `--help`.
pub const PLAN_CODES: &str = "\
Exit codes, as those of diff(1):
  0  nothing would change
  1  something would change
  2  trouble: an error, or something would be left out";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_diff_for_plan_and_0_or_1_for_others() {
        let failure = || Failure(vec!["why".to_owned()]);
        for (outcome, code, is_failure) in [
            (Outcome::from(Ok(Planned::Nothing)), 0, false),
            (Outcome::from(Ok(Planned::Changes)), 1, false),
            (Outcome::from(Err::<Planned, _>(failure())), 2, true),
            (Outcome::from(Ok(Explained::Agrees)), 0, false),
            (Outcome::from(Ok(Explained::Differs)), 1, false),
            (Outcome::from(Err::<Explained, _>(failure())), 2, true),
            (Outcome::from(Ok(())), 0, false),
            (Outcome::from(Err::<(), _>(failure())), 1, true),
        ] {
            assert_eq!((outcome.code, outcome.failure.is_some()), (code, is_failure));
        }
    }
}
