//! Metrics of the background check.

use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::names::{Floating, Label, Names, metrics};
use super::times::seconds_since_1970;

/// A kind of difference between the kernel and the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// An element is missing.
    Missing,
    /// An element has another value.
    Changed,
    /// An element is an orphan.
    Orphan,
    /// The elements written for a service no longer match its objects.
    Outdated,
    /// Chains, rules or sets of a table differ from those written.
    Rules,
}

impl Difference {
    const ALL: [Self; 5] =
        [Self::Missing, Self::Changed, Self::Orphan, Self::Outdated, Self::Rules];

    fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Orphan => "orphan",
            Self::Outdated => "outdated",
            Self::Rules => "rules",
        }
    }
}

metrics! {
    /// Metrics of the background check.
    pub struct CheckMetrics(names: &mut Names<'_>) {
        services: Counter = names.add("check_services",
            "Services that the background check compared");
        differences: [Counter; Difference::ALL.len()] = {
            let help = "Differences that the background check found, by kind";
            let all: Family<Label<&'static str>, Counter> = names.add("check_differences", help);
            Difference::ALL.map(|kind| all.get_or_create_owned(&[("kind", kind.name())]))
        };
        repairs: Counter = names.add("check_repairs",
            "Differences of the background check whose repair was committed");
        last_round: Floating = names.add("check_last_round_timestamp_seconds",
            "When the background check had last compared everything");
    }
}

impl CheckMetrics {
    /// Counts compared services.
    pub fn compared(&self, services: usize) {
        self.services.inc_by(u64::try_from(services).unwrap_or(u64::MAX));
    }

    /// Counts differences of a kind that were found.
    pub fn found(&self, kind: Difference, count: usize) {
        self.differences[kind as usize].inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Counts differences that were repaired.
    pub fn repaired(&self, count: u64) {
        self.repairs.inc_by(count);
    }

    /// Counts a completed round: every service was compared once.
    pub fn round_ended(&self) {
        self.last_round.set(seconds_since_1970(SystemTime::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn differences_are_counted_by_kind_and_are_zero_before_the_first() {
        let observe = Observe::new();
        observe.check().compared(7);
        observe.check().found(Difference::Orphan, 2);
        observe.check().repaired(2);
        has(
            &observe,
            &[
                "deltaproxy_check_services_total 7",
                "deltaproxy_check_differences_total{kind=\"orphan\"} 2",
                "deltaproxy_check_differences_total{kind=\"missing\"} 0",
                "deltaproxy_check_repairs_total 2",
                "deltaproxy_check_last_round_timestamp_seconds 0.0",
            ],
        );
        observe.check().round_ended();
        let text = observe.metrics_text();
        assert!(text.contains("deltaproxy_check_last_round_timestamp_seconds 1"), "{text}");
    }
}
