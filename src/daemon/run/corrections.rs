//! Reports of corrections of the installed state. The usual update writes the differences.

use std::collections::BTreeMap;

use engine::doubt::{Corrections, EndedRound};
use engine::model::ObjectName;
use engine::printable::Printable;
use engine::ruleset::SetId;
use engine::{Difference, ElementId, Finding};
use nft::family::Family;
use nft::kernel::Kernel;

use super::Run;
use crate::observe::Difference as DifferenceKind;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Logs and counts corrections.
    pub(super) fn report_corrections(&mut self, corrections: &Corrections) {
        self.report.observe.metrics().check.services.add(corrections.checked);
        if corrections.ended == Some(EndedRound::Background) {
            self.report.observe.metrics().check.round_ended();
        }
        for service in &corrections.outdated {
            let name = Printable(service);
            tracing::warn!("Service {name} is not installed as desired; updating it");
            self.note_difference(DifferenceKind::Outdated, 1);
        }
        if let Some(family) = corrections.rules {
            tracing::warn!("rules of {} are not as written; writing them again", family.name());
            self.note_difference(DifferenceKind::Rules, 1);
        }
        if corrections.direct_return {
            tracing::warn!("elements of direct return are not as written; writing them again");
            self.note_difference(DifferenceKind::Changed, 1);
        }
        for &(family, set, excess) in &corrections.sizes {
            self.report_size(family, set, excess);
        }
        let mut of_services = BTreeMap::<_, Vec<_>>::new();
        for difference in &corrections.elements.differences {
            // Flows may have begun by this element.
            self.flows.note_read();
            let ElementId { family, set, .. } = difference.place;
            match (difference.installed, difference.finding) {
                (Some(_), Finding::Missing) => self.report.sizes.add(family, set.name(), -1),
                (None, Finding::Present(_)) => self.report.sizes.add(family, set.name(), 1),
                (Some(_), Finding::Present(_)) | (None, Finding::Missing) => {}
            }
            of_services.entry(&difference.service).or_default().push(difference);
        }
        for (service, differences) in of_services {
            self.report_differences(service.as_ref(), &differences);
        }
    }

    /// Reports the differences of a service, or those that belong to none or to several.
    fn report_differences(&mut self, service: Option<&ObjectName>, differences: &[&Difference]) {
        let missing = differences.iter().filter(|it| it.finding == Finding::Missing).count();
        let found = differences.len() - missing;
        let Some(first) = differences.first() else { return };
        let kind = if let (Some(service), Some(installed)) = (service, &first.installed) {
            let (service, first) = (Printable(service), self.engine.command(installed));
            tracing::warn!(
                missing,
                changed = found,
                "Service {service}: the kernel does not hold what was written, such as: {first}; \
                 writing it again"
            );
            DifferenceKind::Changed
        } else {
            let (set, of) = (first.place.set.name(), first.place.family.name());
            tracing::warn!(
                missing,
                found,
                "set {set} of {of} has other elements than were written; correcting it"
            );
            DifferenceKind::Orphan
        };
        self.note_difference(DifferenceKind::Missing, missing);
        self.note_difference(kind, found);
    }

    fn report_size(&mut self, family: Family, set: SetId, excess: i64) {
        let (of, set) = (family.name(), set.name());
        let reaction = if excess > 0 { "searching for them" } else { "reading the tables" };
        tracing::warn!(
            excess,
            "set {set} of {of} has another number of elements than were written; {reaction}"
        );
        if excess < 0 {
            let missing = usize::try_from(excess.unsigned_abs()).unwrap_or(usize::MAX);
            self.note_difference(DifferenceKind::Missing, missing);
        }
    }

    /// Counts differences that are being repaired.
    fn note_difference(&mut self, kind: DifferenceKind, count: usize) {
        self.report.observe.metrics().check.differences[kind as usize].add(count);
        self.reads.unrepaired += u64::try_from(count).unwrap_or(u64::MAX);
    }
}
