//! Results of one change, and rows over all changes.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::tries::{Counts, Seen};
use crate::figures::{Plotted, Row, histogram, record};

/// One change. Times are in microseconds from before its request was sent. `late` is the time from
/// when it was due until then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeTimes {
    /// Delay of the request after its due time.
    pub late: f64,
    /// Answer of the API server.
    pub answered: f64,
    /// Event of the probe's own watch.
    pub event: Option<f64>,
    /// Commit to nftables that names the new endpoint.
    pub committed: Option<f64>,
    /// First arrival at the new endpoint; `None` if beyond the limit.
    pub reached: Option<f64>,
    /// Last arrival at the old endpoint.
    pub last_old: Option<f64>,
    /// Tries by outcome.
    pub counts: Counts,
}

/// Times of a change, since the start of the run.
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) due: Duration,
    pub(super) sent: Duration,
    pub(super) answered: Duration,
    pub(super) event: Option<Duration>,
    pub(super) committed: Option<Duration>,
}

impl ChangeTimes {
    pub(super) fn new(times: &Times, seen: &Seen) -> Self {
        let since = |time: Duration| micros(time.saturating_sub(times.sent));
        // The kernel announces a commit a moment after its rules already apply to packets.
        let committed = match (times.committed, seen.reached) {
            (Some(committed), Some(reached)) => Some(committed.min(reached)),
            (committed, None) => committed,
            (None, Some(_)) => None,
        };
        Self {
            late: micros(times.sent.saturating_sub(times.due)),
            answered: since(times.answered),
            event: times.event.map(since),
            committed: committed.map(since),
            reached: seen.reached.map(since),
            last_old: seen.last_old.map(since),
            counts: seen.counts,
        }
    }
}

/// Accessor of a time of a change, in microseconds.
type TimeOf = fn(&ChangeTimes) -> Option<f64>;

/// Names of rows with a curve.
pub(super) const CURVES: Plotted = [
    "change: answer of the API server",
    "change: event of our watch",
    "change: commit to nftables",
    "change: first packet at the new endpoint",
    "change: first packet, from when it was due",
];

/// Rows of times.
const ROWS: [(&str, TimeOf); 8] = [
    (CURVES[0], |change| Some(change.answered)),
    (CURVES[1], |change| change.event),
    (CURVES[2], |change| change.committed),
    (CURVES[3], |change| change.reached),
    (CURVES[4], |change| Some(change.reached? + change.late)),
    ("change: last packet at the old endpoint", |change| change.last_old),
    ("after our watch: commit to nftables", |change| Some(change.committed? - change.event?)),
    ("after our watch: first packet", |change| Some(change.reached? - change.event?)),
];

/// Accessor of a number of tries.
type CountOf = fn(&Counts) -> u32;

/// Rows of the numbers of tries.
const COUNTS: [(&str, CountOf); 7] = [
    ("tries", |counts| counts.tries),
    ("tries: refused", |counts| counts.refused),
    ("tries: unreachable", |counts| counts.unreachable),
    ("tries: lost", |counts| counts.lost),
    ("tries: failed otherwise", |counts| counts.other),
    ("tries: at the old endpoint after the new one", |counts| counts.old_after_new),
    ("tries: left out, source ports in use", |counts| counts.left_out),
];

/// Returns the rows of a report.
pub(super) fn rows(changes: &[ChangeTimes]) -> Vec<Row> {
    let mut rows: Vec<Row> = ROWS
        .iter()
        .filter_map(|(name, time)| Row::spread(*name, &spread(changes, *time)))
        .collect();
    let missing = |time: TimeOf| changes.iter().filter(|change| time(change).is_none()).count();
    rows.push(Row::count("changes", changes.len()));
    rows.push(Row::count("changes: not in time", missing(|change| change.reached)));
    rows.push(Row::count("changes: without an event", missing(|change| change.event)));
    rows.push(Row::count("changes: without a commit", missing(|change| change.committed)));
    for (name, count) in COUNTS {
        let sum = changes.iter().map(|change| u64::from(count(&change.counts))).sum::<u64>();
        rows.push(Row::count(name, usize::try_from(sum).unwrap_or(usize::MAX)));
    }
    rows
}

fn spread(changes: &[ChangeTimes], time: TimeOf) -> Histogram<u64> {
    let mut samples = histogram();
    for time in changes.iter().filter_map(time) {
        // The proxy's watch may have received the event before ours.
        record(&mut samples, Duration::from_secs_f64((time / 1e6).max(0.0)));
    }
    samples
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::{Value, find};

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Returns a change with all times.
    pub(in crate::probe) fn change() -> ChangeTimes {
        let times = Times {
            due: ms(1_000),
            sent: ms(1_005),
            answered: ms(1_006),
            event: Some(ms(1_007)),
            committed: Some(ms(1_009)),
        };
        let counts = Counts { tries: 30, new: 11, old: 18, refused: 1, ..Counts::default() };
        let seen = Seen { reached: Some(ms(1_010)), last_old: Some(ms(1_008)), counts };
        ChangeTimes::new(&times, &seen)
    }

    fn median(rows: &[Row], name: &str) -> f64 {
        match &find(rows, name).unwrap_or_else(|| panic!("no {name}")).value {
            Value::Spread(spread) => spread.p50,
            Value::Single(value) => *value,
        }
    }

    #[test]
    fn stages_begin_with_the_request_or_when_it_was_due_or_with_the_event() {
        let rows = rows(&[change()]);
        for (name, milliseconds) in [
            ("change: answer of the API server", 1.0),
            ("change: event of our watch", 2.0),
            ("change: commit to nftables", 4.0),
            ("change: first packet at the new endpoint", 5.0),
            ("change: first packet, from when it was due", 10.0),
            ("change: last packet at the old endpoint", 3.0),
            ("after our watch: commit to nftables", 2.0),
            ("after our watch: first packet", 3.0),
        ] {
            let found = median(&rows, name) / 1e3;
            assert!((found - milliseconds).abs() < 0.02, "{name}: {found}");
        }
        assert!((median(&rows, "tries: refused") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_commit_whose_notification_follows_its_effect_counts_at_its_effect() {
        let times =
            Times { due: ms(0), sent: ms(0), answered: ms(1), event: None, committed: Some(ms(4)) };
        let seen = Seen { reached: Some(ms(3)), ..Seen::default() };
        assert_eq!(ChangeTimes::new(&times, &seen).committed, Some(3_000.0));
    }

    #[test]
    fn what_was_not_seen_is_counted() {
        let late = ChangeTimes { reached: None, committed: None, ..change() };
        let rows = rows(&[change(), late]);
        assert!((median(&rows, "changes: not in time") - 1.0).abs() < 1e-9);
        assert!((median(&rows, "changes: without a commit") - 1.0).abs() < 1e-9);
        assert!(median(&rows, "changes: without an event") < 0.5);
    }

    #[test]
    fn an_event_after_its_effect_leaves_zero() {
        let early = ChangeTimes { reached: Some(1.0), event: Some(5.0), ..change() };
        assert!(median(&rows(&[early]), "after our watch: first packet") < 0.01);
    }
}
