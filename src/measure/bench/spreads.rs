//! Samples of every stage, by kind of change.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::change::{ChangeKind, Deed};
use super::pipeline::Stages;
use crate::figures::{Row, histogram, record};

/// The time of one stage.
type StageTime = fn(&Stages) -> Duration;

/// Measured times of a change, in the order of the rows.
const STAGES: [(&str, StageTime); 8] = [
    ("parsed", |stages| stages.parsed),
    ("modelled", |stages| stages.modelled),
    ("diffed", |stages| stages.diffed),
    ("encoded", |stages| stages.encoded),
    ("committed by the kernel", |stages| stages.committed),
    ("noted", |stages| stages.noted),
    ("all stages", |stages| stages.end_to_end),
    ("CPU in user space", |stages| stages.user),
];

/// One histogram for each stage of each title.
#[derive(Debug, Default)]
pub(super) struct Spreads(BTreeMap<String, Vec<Histogram<u64>>>);

/// Stages with rows of their own for each deed.
const KERNEL_AND_SUM: [&str; 2] = ["committed by the kernel", "all stages"];

/// Deeds with rows of their own.
const DEEDS: [(Deed, &str); 5] = [
    (Deed::AddEndpoint, "endpoint added"),
    (Deed::RemoveEndpoint, "endpoint removed"),
    (Deed::ReplaceEndpoint, "endpoint replaced"),
    (Deed::AddService, "service added"),
    (Deed::RemoveService, "service removed"),
];

impl Spreads {
    /// Adds the stages of a change under a title.
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

    /// Adds the stages of a change under its kind and its deed.
    pub(super) fn add_change(&mut self, deed: Deed, stages: &Stages) {
        self.add(deed.kind().name(), stages);
        if let Some((_, name)) = DEEDS.iter().find(|(known, _)| *known == deed) {
            self.add(name, stages);
        }
    }

    /// Returns the rows of all kinds of changes, then those of some deeds.
    pub(super) fn rows_of_changes(&self) -> Vec<Row> {
        let kinds = ChangeKind::ALL.iter().flat_map(|kind| self.rows(kind.name()));
        let deeds = DEEDS.iter().flat_map(|(_, name)| self.rows(name));
        let told = |row: &Row| {
            KERNEL_AND_SUM.iter().any(|stage| row.name.ends_with(&format!(": {stage}")))
        };
        kinds.chain(deeds.filter(told)).collect()
    }

    /// Returns the rows of one title.
    pub(super) fn rows(&self, title: &str) -> Vec<Row> {
        let histograms = self.0.get(title).into_iter().flatten();
        let named = STAGES.iter().zip(histograms);
        named
            .filter_map(|((stage, _), samples)| Row::spread(format!("{title}: {stage}"), samples))
            .collect()
    }
}
