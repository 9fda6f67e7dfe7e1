//! The settings of scheduler `lc`, checked.

use std::time::Duration;

use engine::routing::LeastConnections;

use super::duration;

/// Field of [`LeastConnections::interval`].
pub(super) const INTERVAL: &str = "deltaproxy.leastConnections.interval";

/// Field of [`LeastConnections::changes_per_second`].
pub(super) const CHANGES: &str = "deltaproxy.leastConnections.changesPerSecond";

/// Minimum time between two counts: each is a dump of conntrack.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the settings, which are `None` for an interval of zero; the error is the field, and its
/// value and expectation.
pub(super) fn settings(
    interval: Duration,
    changes_per_second: u32,
) -> Result<Option<LeastConnections>, (&'static str, String)> {
    if interval.is_zero() {
        return Ok(None);
    }
    if interval < LEAST_INTERVAL {
        return Err((INTERVAL, too_short(interval)));
    }
    if changes_per_second == 0 {
        return Err((CHANGES, "is 0; expected at least 1".to_owned()));
    }
    Ok(Some(LeastConnections { interval, changes_per_second }))
}

/// Parses the interval of a flag.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text).map_err(|error| error.to_string())?;
    match settings(interval, LeastConnections::DEFAULT_CHANGES) {
        Ok(_) => Ok(interval),
        Err((_, message)) => Err(message),
    }
}

fn too_short(interval: Duration) -> String {
    let (shown, least) = (duration::text(interval), duration::text(LEAST_INTERVAL));
    format!("is {shown}; expected at least {least}, or 0s for none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_zero_is_off_and_one_below_a_second_is_refused() {
        assert_eq!(settings(Duration::ZERO, 0), Ok(None));
        let error = settings(Duration::from_millis(999), 1).unwrap_err();
        assert_eq!(error.1, "is 999ms; expected at least 1s, or 0s for none");
        let error = settings(Duration::from_secs(1), 0).unwrap_err();
        assert_eq!(error, (CHANGES, "is 0; expected at least 1".to_owned()));
        assert_eq!(parse_interval("0"), Ok(Duration::ZERO));
        assert!(parse_interval("5").is_err() && parse_interval("1ms").is_err());
    }
}
