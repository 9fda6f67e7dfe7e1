//! The settings of ended connections, checked.

use std::ops::RangeInclusive;
use std::time::Duration;

use engine::model::EndedSettings;

use super::duration;

/// Words of the field `mode`, each with whether services without an annotation let connections end.
const MODES: [(&str, Option<bool>); 3] =
    [(KEEP, None), ("annotated", Some(false)), ("reset", Some(true))];

const KEEP: &str = "keep";

/// Retransmissions of TCP end after so long, by the defaults of Linux.
const REMEMBER: Duration = Duration::from_mins(15);

/// Times for which an ended endpoint can be remembered: each takes memory until then.
const TIMES: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(24);

/// Returns the settings of a mode, which are `None` for `keep`; the error is the value and the
/// expectation.
pub(super) fn of_mode(word: &str) -> Result<Option<EndedSettings>, Vec<String>> {
    let known = MODES.iter().find(|(name, _)| *name == word);
    let [keep, annotated, reset] = MODES.map(|(word, _)| word);
    let expected = || vec![format!("is {word:?}; expected {keep}, {annotated} or {reset}")];
    let (_, by_default) = known.ok_or_else(expected)?;
    Ok(by_default.map(|by_default| EndedSettings { by_default, remember: REMEMBER }))
}

/// Returns the word of the mode.
pub(super) fn mode(settings: Option<EndedSettings>) -> &'static str {
    let by_default = settings.map(|settings| settings.by_default);
    MODES.iter().find(|(_, known)| *known == by_default).map_or(KEEP, |(word, _)| word)
}

/// Checks the time for which an ended endpoint is remembered.
pub(super) fn remember(time: Duration) -> Result<Duration, Vec<String>> {
    duration::within(time, TIMES)
}

/// Returns that time, or its default.
pub(super) fn remembered(settings: Option<EndedSettings>) -> Duration {
    settings.map_or(REMEMBER, |settings| settings.remember)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_word() {
        for (word, by_default) in MODES {
            let settings = of_mode(word).unwrap();
            assert_eq!(settings.map(|it| it.by_default), by_default);
            assert_eq!((mode(settings), remembered(settings)), (word, REMEMBER));
        }
        let error = of_mode("off").unwrap_err();
        assert_eq!(error, [r#"is "off"; expected keep, annotated or reset"#]);
    }
}
