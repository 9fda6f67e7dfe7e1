//! Samples of every stage, by kind of change.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::change::ChangeKind;
use super::pipeline::Stages;
use super::report::Row;

/// The time of one stage.
type TimeOf = fn(&Stages) -> Duration;

/// What is measured of a change, in the order of the rows.
const STAGES: [(&str, TimeOf); 8] = [
    ("parsed", |stages| stages.parsed),
    ("modelled", |stages| stages.modelled),
    ("diffed", |stages| stages.diffed),
    ("encoded", |stages| stages.encoded),
    ("committed by the kernel", |stages| stages.committed),
    ("noted", |stages| stages.noted),
    ("all stages", |stages| stages.end_to_end),
    ("CPU in user space", |stages| stages.user),
];

/// One histogram for each stage of each kind.
#[derive(Debug, Default)]
pub(super) struct Spreads(BTreeMap<String, Vec<Histogram<u64>>>);

impl Spreads {
    /// Adds the stages of a change to those of its title.
    pub(super) fn add(&mut self, title: &str, stages: &Stages) {
        if !self.0.contains_key(title) {
            let empty = STAGES.iter().map(|_| histogram()).collect();
            self.0.insert(title.to_owned(), empty);
        }
        let Some(histograms) = self.0.get_mut(title) else { return };
        for (histogram, (_, duration)) in histograms.iter_mut().zip(STAGES) {
            record(histogram, duration(stages));
        }
    }

    /// The rows of one title.
    pub(super) fn rows(&self, title: &str) -> Vec<Row> {
        let histograms = self.0.get(title).into_iter().flatten();
        let named = STAGES.iter().zip(histograms);
        named
            .filter_map(|((stage, _), samples)| Row::spread(format!("{title}: {stage}"), samples))
            .collect()
    }
}

/// What rows about a kind of change begin with.
pub(super) fn title(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Endpoint => "endpoint change",
        ChangeKind::Service => "service change",
        ChangeKind::Policy => "policy change",
    }
}

/// Three digits of nanoseconds up to 1,000 s, which is more than anything here takes.
pub(super) fn histogram() -> Histogram<u64> {
    // The bounds are constants that the crate allows; without bounds it would grow as needed.
    Histogram::new_with_bounds(1, 1_000_000_000_000, 3).unwrap_or_else(|_| unreachable!())
}

/// Adds a sample.
pub(super) fn record(samples: &mut Histogram<u64>, duration: Duration) {
    samples.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}
