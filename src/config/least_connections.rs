//! The settings of scheduler `lc`.

use std::time::Duration;

use super::duration;

/// Settings of scheduler `lc`, which adjusts weights to live connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeastConnections {
    /// Time between two looks at the connections.
    pub interval: Duration,
    /// Limit of slots that change in a second, over all services.
    pub changes_per_second: u32,
}

/// Least time between two looks: each is a dump of conntrack.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

impl LeastConnections {
    /// Field of [`LeastConnections::interval`].
    pub(super) const INTERVAL: &str = "deltaproxy.leastConnections.interval";

    /// Field of [`LeastConnections::changes_per_second`].
    pub(super) const CHANGES: &str = "deltaproxy.leastConnections.changesPerSecond";

    /// Default of [`LeastConnections::changes_per_second`]. The kernel takes some 8 ms for so many.
    pub const DEFAULT_CHANGES: u32 = 1_000;

    /// Returns the settings, which are `None` for an interval of zero; the error is the field, and
    /// its value and expectation.
    pub(super) fn new(
        interval: Duration,
        changes_per_second: u32,
    ) -> Result<Option<Self>, (&'static str, String)> {
        if interval.is_zero() {
            return Ok(None);
        }
        if interval < LEAST_INTERVAL {
            return Err((Self::INTERVAL, too_short(interval)));
        }
        if changes_per_second == 0 {
            return Err((Self::CHANGES, "is 0; expected at least 1".to_owned()));
        }
        Ok(Some(Self { interval, changes_per_second }))
    }

    /// Parses the interval of a flag.
    pub(super) fn parse(text: &str) -> Result<Duration, String> {
        let interval = duration::parse(text).map_err(|error| error.to_string())?;
        match Self::new(interval, Self::DEFAULT_CHANGES) {
            Ok(_) => Ok(interval),
            Err((_, message)) => Err(message),
        }
    }

    /// Returns the slots that may change with each look.
    pub fn changes(&self) -> u32 {
        let changes = self.interval.as_millis() * u128::from(self.changes_per_second) / 1_000;
        u32::try_from(changes).unwrap_or(u32::MAX).max(1)
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
        assert_eq!(LeastConnections::new(Duration::ZERO, 0), Ok(None));
        let found = LeastConnections::new(Duration::from_secs(5), 200).unwrap().unwrap();
        assert_eq!(found.changes(), 1_000);
        let error = LeastConnections::new(Duration::from_millis(999), 1).unwrap_err();
        assert_eq!(error.1, "is 999ms; expected at least 1s, or 0s for none");
        let error = LeastConnections::new(Duration::from_secs(1), 0).unwrap_err();
        assert_eq!(error, (LeastConnections::CHANGES, "is 0; expected at least 1".to_owned()));
        assert_eq!(LeastConnections::parse("0"), Ok(Duration::ZERO));
        assert!(LeastConnections::parse("5").is_err() && LeastConnections::parse("1ms").is_err());
    }
}
