//! The settings of scheduler `lc`.

use std::time::Duration;

/// Settings of scheduler `lc`, which adjusts weights to live connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeastConnections {
    /// Time between two counts of the connections.
    pub interval: Duration,
    /// Limit of slots that change in a second, over all services.
    pub changes_per_second: u32,
}

impl LeastConnections {
    /// Default of [`LeastConnections::changes_per_second`]. The kernel takes some 8 ms for 1,000.
    pub const DEFAULT_CHANGES: u32 = 1_000;

    /// Returns the slots that may change after each count.
    pub fn changes(&self) -> u32 {
        let changes = self.interval.as_millis() * u128::from(self.changes_per_second) / 1_000;
        u32::try_from(changes).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_may_change_the_slots_of_its_interval() {
        let settings =
            LeastConnections { interval: Duration::from_secs(5), changes_per_second: 200 };
        assert_eq!(settings.changes(), 1_000);
    }
}
