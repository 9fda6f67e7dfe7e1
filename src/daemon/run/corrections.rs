//! Reports of corrections of the installed state. The usual update writes the differences.

use std::collections::BTreeMap;

use engine::doubt::{Corrections, Ended};
use engine::model::ObjectName;
use engine::printable::Printable;
use engine::ruleset::SetId;
use engine::{ElementId, Finding, InstalledElement};
use nft::family::Family;
use nft::kernel::Kernel;

use super::Run;
use crate::observe::Difference;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Logs and counts corrections.
    pub(super) fn report_corrections(&mut self, corrections: &Corrections) {
        self.report.observe.check().compared(corrections.checked);
        if corrections.ended == Some(Ended::Background) {
            self.report.observe.check().round_ended();
        }
        for service in &corrections.outdated {
            let name = Printable(service);
            tracing::warn!("Service {name} is not installed as desired; updating it");
            self.note_difference(Difference::Outdated, 1);
        }
        if let Some(family) = corrections.rules {
            tracing::warn!("rules of {} are not as written; writing them again", family.name());
            self.note_difference(Difference::Rules, 1);
        }
        for &(family, set, excess) in &corrections.sizes {
            self.report_size(family, set, excess);
        }
        let elements = &corrections.elements;
        if elements.count() > 0 {
            // Flows may have begun by these elements.
            self.flows.note_read();
        }
        let mut of_services = BTreeMap::<_, Vec<_>>::new();
        for (service, installed, finding) in &elements.of_services {
            of_services.entry(service).or_default().push((installed, finding));
        }
        for (service, elements) in of_services {
            self.report_service(service, &elements);
        }
        self.report_others(&elements.of_no_service);
    }

    fn report_service(&mut self, service: &ObjectName, elements: &[(&InstalledElement, &Finding)]) {
        let service = Printable(service);
        let first = elements.first().map(|(installed, _)| self.engine.command(installed));
        let first = first.unwrap_or_default();
        let missing = elements.iter().filter(|(_, finding)| **finding == Finding::Missing);
        missing.clone().for_each(|(it, _)| self.report.sizes.lost(it.family, it.element.set()));
        let missing = missing.count();
        let changed = elements.len() - missing;
        tracing::warn!(
            missing,
            changed,
            "Service {service}: the kernel does not hold what was written, such as: {first}; \
             writing it again"
        );
        self.note_difference(Difference::Missing, missing);
        self.note_difference(Difference::Changed, changed);
    }

    /// Reports elements that no service has, or that several share.
    fn report_others(&mut self, elements: &[(ElementId, Finding)]) {
        let Some((first, _)) = elements.first() else { return };
        let (set, of) = (first.set.name(), first.family.name());
        let mut missing = 0;
        for (place, finding) in elements {
            match finding {
                Finding::Missing => {
                    missing += 1;
                    self.report.sizes.lost(place.family, place.set);
                }
                Finding::Present(_) => self.report.sizes.gained(place.family, place.set),
            }
        }
        let found = elements.len() - missing;
        tracing::warn!(
            missing,
            found,
            "set {set} of {of} has other elements than were written; correcting it"
        );
        self.note_difference(Difference::Missing, missing);
        self.note_difference(Difference::Orphan, found);
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
            self.note_difference(Difference::Missing, missing);
        }
    }

    /// Counts differences that are being repaired.
    fn note_difference(&mut self, kind: Difference, count: usize) {
        self.report.observe.check().found(kind, count);
        self.reads.unrepaired += u64::try_from(count).unwrap_or(u64::MAX);
    }
}
