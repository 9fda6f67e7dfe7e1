//! Repairs of differences between the kernel and the installed state.
//!
//! The finding replaces the installed state, and the usual update writes the difference.

use std::collections::BTreeMap;

use engine::model::ObjectName;
use engine::printable::Printable;
use engine::ruleset::{self, SetId};
use engine::schedule::Input;
use engine::{ElementId, Finding, Installed};
use nft::family::Family;
use nft::kernel::Kernel;

use super::background_check::Suspect;
use super::{Run, now};
use crate::observe::Difference;
use crate::read_back::look_up_changed;
use crate::writer::WriterGone;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Repairs confirmed differences.
    pub(super) async fn repair(&mut self, confirmed: Vec<Suspect>) -> Result<(), WriterGone> {
        if confirmed.is_empty() {
            return Ok(());
        }
        let mut elements = Vec::new();
        let mut to_search = Vec::new();
        let mut must_read = false;
        for suspect in confirmed {
            match suspect {
                Suspect::Element(service, installed, finding) => {
                    elements.push((service, installed, finding));
                }
                Suspect::Many => must_read = true,
                Suspect::Outdated(service) => {
                    let name = Printable(&service);
                    tracing::warn!("Service {name} is not installed as desired; updating it");
                    self.note_difference(Difference::Outdated, 1);
                    self.engine.update_again(service);
                }
                Suspect::Size(family, set, excess) => {
                    self.reads.check.know_size(family, set, excess);
                    self.note_size(family, set, excess);
                    match excess {
                        ..0 => must_read = true,
                        _ => to_search.push((family, set)),
                    }
                }
                Suspect::Uncounted(family, set) => to_search.push((family, set)),
                Suspect::Rules(family) => must_read |= !self.repair_rules(family).await?,
            }
        }
        must_read |= !self.repair_elements(elements);
        if must_read {
            self.schedule.handle(Input::ReadNow, now());
            return Ok(());
        }
        self.note_change();
        self.search_orphans(to_search);
        Ok(())
    }

    /// Writes chains and rules again; returns false if the tables must be read for that.
    async fn repair_rules(&mut self, family: Family) -> Result<bool, WriterGone> {
        tracing::warn!("rules of {} are not as written; writing them again", family.name());
        self.note_difference(Difference::Rules, 1);
        self.read_rules(family).await
    }

    /// Replaces the installed chains and rules by those of the kernel. Returns false if the elements
    /// must be read as well.
    pub(super) async fn read_rules(&mut self, family: Family) -> Result<bool, WriterGone> {
        let table = ruleset::table(family);
        let read = self.writer.run(move |kernel| (kernel.read_table(&table), kernel.port()));
        let (contents, port) = read.await?;
        let Ok(contents) = contents else { return Ok(false) };
        Ok(self.engine.replace_installed_rules(family, contents.as_ref(), port))
    }

    /// Looks up elements that may have changed, writes again what differs, and deletes what is not
    /// installed. Returns false if that is not enough.
    pub(super) async fn repair_places(
        &mut self,
        places: Vec<ElementId>,
    ) -> Result<bool, WriterGone> {
        let changed = self.writer.run(move |kernel| look_up_changed(kernel, &places)).await?;
        let differences = changed.and_then(|changed| self.engine.element_differences(&changed));
        let Some(differences) = differences else { return Ok(false) };
        let of_services = differences.of_services.into_iter();
        let elements = of_services.map(|(service, it, finding)| (Some(service), it, finding));
        let mut is_enough = self.repair_elements(elements);
        is_enough &= self.adopt(&differences.of_none);
        self.note_change();
        Ok(is_enough)
    }

    /// Repairs differences of elements that no service has, or that several share.
    fn adopt(&mut self, differences: &[(ElementId, Finding)]) -> bool {
        let Some((first, _)) = differences.first() else { return true };
        let is_missing = |(_, finding): &&(ElementId, Finding)| *finding == Finding::Missing;
        let missing = differences.iter().filter(is_missing).count();
        let found = differences.len() - missing;
        tracing::warn!(
            missing,
            found,
            "set {} of {} has other elements than were written; correcting it",
            first.set.name(),
            first.family.name()
        );
        self.note_difference(Difference::Missing, missing);
        self.note_difference(Difference::Orphan, found);
        // Flows may have begun by these elements.
        self.flows.note_read();
        for (place, finding) in differences {
            match finding {
                Finding::Missing => self.report.sizes.lost(place.family, place.set),
                Finding::Present(_) => self.report.sizes.gained(place.family, place.set),
            }
        }
        let services = self.engine.adopt(differences);
        let is_enough = services.is_some();
        services.into_iter().flatten().for_each(|service| self.engine.update_again(service));
        is_enough
    }

    /// Writes elements again; returns false if the tables must be read for that.
    fn repair_elements(
        &mut self,
        elements: impl IntoIterator<Item = (Option<ObjectName>, Installed, Finding)>,
    ) -> bool {
        let mut of_services = BTreeMap::<_, Vec<_>>::new();
        for (service, installed, finding) in elements {
            of_services.entry(service).or_default().push((installed, finding));
        }
        let mut is_enough = true;
        for (service, elements) in of_services {
            is_enough &= self.repair_service(service, &elements);
        }
        is_enough
    }

    /// Writes elements of a service again; returns false if the tables must be read for that.
    fn repair_service(
        &mut self,
        service: Option<ObjectName>,
        elements: &[(Installed, Finding)],
    ) -> bool {
        let of = match &service {
            Some(service) => format!("Service {}", Printable(service)),
            None => "addresses for node ports".to_owned(),
        };
        let is_missing = |(_, finding): &&(_, Finding)| *finding == Finding::Missing;
        let missing = elements.iter().filter(is_missing).count();
        let changed = elements.len() - missing;
        let first = elements.first().map(|(installed, _)| self.engine.command(installed));
        let first = first.unwrap_or_default();
        tracing::warn!(
            missing,
            changed,
            "{of}: the kernel does not hold what was written, such as: {first}; writing it again"
        );
        self.note_difference(Difference::Missing, missing);
        self.note_difference(Difference::Changed, changed);
        // Flows may have begun by the elements that were found.
        self.flows.note_read();
        let mut is_enough = true;
        for (installed, finding) in elements {
            is_enough &= self.engine.correct(*installed, *finding);
            if *finding == Finding::Missing {
                self.report.sizes.lost(installed.family, installed.element.set());
            }
        }
        if let Some(service) = service {
            self.engine.update_again(service);
        }
        is_enough
    }

    fn note_size(&mut self, family: Family, set: SetId, excess: i64) {
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

    fn note_difference(&mut self, kind: Difference, count: usize) {
        self.report.observe.check_found(kind, count);
        self.reads.check.note_difference(count);
    }
}
