//! The settings of scheduler `lc`, checked.

use std::time::Duration;

use engine::routing::LeastConnections;

use super::duration;

/// Field of [`LeastConnections::interval`].
pub(super) const INTERVAL: &str = "deltaproxy.leastConnections.interval";

/// Minimum time between two counts: each is a dump of conntrack.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the settings with this interval, which are `None` for zero; the error is the value and
/// the expectation.
pub(super) fn every(interval: Duration) -> Result<Option<LeastConnections>, Vec<String>> {
    if interval.is_zero() {
        return Ok(None);
    }
    if interval < LEAST_INTERVAL {
        let [shown, least] = [interval, LEAST_INTERVAL].map(duration::text);
        return Err(vec![format!("is {shown}; expected at least {least}, or 0s for none")]);
    }
    let changes_per_second = LeastConnections::DEFAULT_CHANGES;
    Ok(Some(LeastConnections { interval, changes_per_second }))
}

/// Sets the limit of changes; of scheduler `lc` that is off, it is not checked.
pub(super) fn set_changes(
    settings: &mut Option<LeastConnections>,
    changes: u32,
) -> Result<(), Vec<String>> {
    let Some(settings) = settings else { return Ok(()) };
    if changes == 0 {
        return Err(vec!["is 0; expected at least 1".to_owned()]);
    }
    settings.changes_per_second = changes;
    Ok(())
}

/// Returns the interval; zero is off.
pub(super) fn interval(settings: Option<LeastConnections>) -> Duration {
    settings.map_or(Duration::ZERO, |settings| settings.interval)
}

/// Returns the limit of changes, or its default.
pub(super) fn changes(settings: Option<LeastConnections>) -> u32 {
    settings.map_or(LeastConnections::DEFAULT_CHANGES, |settings| settings.changes_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_zero_is_off_and_one_below_a_second_is_refused() {
        assert_eq!(every(Duration::ZERO), Ok(None));
        let error = every(Duration::from_millis(999)).unwrap_err();
        assert_eq!(error, ["is 999ms; expected at least 1s, or 0s for none"]);
        let mut settings = every(Duration::from_secs(1)).unwrap();
        let error = set_changes(&mut settings, 0).unwrap_err();
        assert_eq!(error, ["is 0; expected at least 1"]);
        assert_eq!(set_changes(&mut settings, 7), Ok(()));
        assert_eq!((interval(settings).as_secs(), changes(settings)), (1, 7));
        assert_eq!((set_changes(&mut None, 0), changes(None)), (Ok(()), 1_000));
    }
}
