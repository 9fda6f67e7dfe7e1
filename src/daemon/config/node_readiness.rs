//! The settings of node readiness, checked.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::duration;

/// What is written to the Node object of this node; nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeReadiness {
    /// The condition `deltaproxy.io/ServiceProxyReady`.
    pub condition: bool,
    /// The taint of that name is removed at the first sync.
    pub startup_taint: bool,
    /// Time without a watch of Services or EndpointSlices after which the condition is false; zero
    /// is for ever.
    pub lost_after: Duration,
}

impl Default for NodeReadiness {
    fn default() -> Self {
        Self { condition: false, startup_taint: false, lost_after: Duration::from_mins(5) }
    }
}

const CONDITION: &str = "deltaproxy.nodeReadiness.condition";
const STARTUP_TAINT: &str = "deltaproxy.nodeReadiness.startupTaint";

/// Times after which the condition is false: a restart of an API server takes less.
const LOST_AFTER: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(24);

impl NodeReadiness {
    /// Returns whether anything is written.
    pub fn is_on(self) -> bool {
        self.first_on().is_some()
    }

    /// Returns the first field that needs an API server.
    pub(super) fn first_on(self) -> Option<&'static str> {
        match (self.condition, self.startup_taint) {
            (true, _) => Some(CONDITION),
            (false, true) => Some(STARTUP_TAINT),
            (false, false) => None,
        }
    }
}

/// Checks the time without a watch; zero is for ever.
pub(super) fn lost_after(time: Duration) -> Result<Duration, Vec<String>> {
    if time.is_zero() { Ok(time) } else { duration::within(time, LOST_AFTER) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_has_its_field() {
        let off = NodeReadiness::default();
        let taint = NodeReadiness { startup_taint: true, ..off };
        let both = NodeReadiness { condition: true, ..taint };
        assert_eq!([off, taint, both].map(NodeReadiness::is_on), [false, true, true]);
        let first = [off, taint, both].map(|settings| settings.first_on());
        assert_eq!(first, [None, Some(STARTUP_TAINT), Some(CONDITION)]);
    }

    #[test]
    fn the_time_without_a_watch_is_bounded_or_zero() {
        let hour = Duration::from_hours(1);
        assert_eq!(lost_after(Duration::ZERO), Ok(Duration::ZERO));
        assert_eq!(lost_after(hour), Ok(hour));
        let error = lost_after(Duration::from_secs(59)).unwrap_err();
        assert_eq!(error, ["is 59s; expected 1m0s to 24h0m0s"]);
    }
}
