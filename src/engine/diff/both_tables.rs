//! The installed elements of services in both tables, and their owners.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use ahash::{HashMap, HashSet};
use nft::family::Family;

use super::desired_state::DesiredState;
use super::ended_elements::EndedElements;
use super::frontends::{FrontendChange, FrontendState, Frontends};
use super::holdings::PackedHoldings;
use super::known_elements::KnownElements;
use super::lists::Lists;
use super::members::{Members, NodePortIps};
use super::packed_map::sorted;
use super::progress::{Progress, Updated};
use super::service_counts::{NoLocalPorts, ServiceCounts};
use super::services::Services;
use super::serving::Serving;
use super::unread::{AT_A_TIME, ReadLists};
use super::unused::{Epochs, Kept, Unused, UnusedElements};
use crate::desired::{DesiredService, SlotBudget, Timeouts};
use crate::model::{Cluster, Extent, ObjectName, PortBlock, Protocol, Scheduler, Target};
use crate::piece::{Full, Piece};
use crate::ruleset::number::{ListId, Route};
use crate::ruleset::{Frontend, Layouts, NamedList, SizeClasses, Subject};

/// The installed elements of services in both tables, and their owners.
#[derive(Debug)]
pub struct Diff {
    pub(super) frontends: Frontends,
    pub(super) lists: [Lists; 2],
    pub(super) members: Members,
    /// Addresses that accept traffic to node ports.
    pub node_port_ips: NodePortIps,
    pub(super) services: Services,
    pub(super) ended: EndedElements,
    /// Endpoints that serve UDP frontends.
    pub serving: Serving,
    /// Unused elements, with the epoch in which the last route to them was removed: packets may
    /// still look them up. `None` if no route leads to them.
    pub(super) unused: UnusedElements,
    pub(super) epochs: Epochs,
    /// Services left out until they change, because the kernel refused them.
    pub excluded: HashSet<ObjectName>,
    /// Postponed services: their frontends are claimed, but nothing of them was compared.
    pub(super) only_claimed: HashSet<ObjectName>,
    pub(super) counts: ServiceCounts,
}

/// The inputs of an update besides the service itself.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// All objects of the cluster.
    pub cluster: &'a Cluster,
    /// Affinity timeouts of the services.
    pub timeouts: &'a Timeouts,
    /// Slots that the services may use.
    pub slots: &'a SlotBudget,
    /// Source ranges that the services may have.
    pub ranges: &'a SlotBudget,
    /// Other services are not updated yet since [`Diff::replace_installed_elements`]. Until then, a
    /// service is postponed if it claims a frontend that was found with the label of another one.
    pub may_postpone: bool,
    /// What the service should have, if its last update was partial and nothing has touched it since.
    pub rendered: Option<&'a DesiredService>,
}

/// Maximum number of elements of a frontend without source ranges: a route, an internal route and a
/// refusal, each deleted and added, and the elements of `restricted-services` and `source-refusals`.
pub(super) const FRONTEND_ELEMENTS: usize = 8;

impl Default for Diff {
    fn default() -> Self {
        Self {
            frontends: Frontends::default(),
            lists: Family::ALL.map(Lists::new),
            members: Members::default(),
            node_port_ips: NodePortIps::default(),
            services: Services::default(),
            ended: EndedElements::default(),
            serving: Serving::default(),
            unused: UnusedElements::new(),
            epochs: Epochs::default(),
            excluded: HashSet::default(),
            only_claimed: HashSet::default(),
            counts: ServiceCounts::default(),
        }
    }
}

impl Diff {
    /// Adds the difference of one service to a piece, as far as it fits.
    pub fn update(
        &mut self,
        name: &ObjectName,
        extent: &Extent,
        context: Context<'_>,
        piece: &mut Piece,
    ) -> Updated {
        if let Extent::Endpoints(changes) = extent
            && let Some(progress) = self.patch(name, changes, context.cluster, piece)
        {
            return Updated { progress, ..Updated::default() };
        }
        self.update_whole(name, context, piece)
    }

    /// Returns whether flows to a frontend may go to `target`: of UDP to the endpoints that serve
    /// established flows, of other protocols to those of new ones. `None` without the frontend.
    pub fn allows(&self, frontend: &Frontend, target: &Target) -> Option<bool> {
        if frontend.protocol() == Protocol::Udp {
            return Some(self.serving.targets(frontend)?.binary_search(target).is_ok());
        }
        let state = self.frontends.get(frontend)?;
        let lists = &self.lists[frontend.family().index()];
        let mut routes = state.routes().filter_map(|route| lists.get(route.list()?)).peekable();
        let is_installed = routes.peek().is_some() || state.unserved().is_some();
        is_installed.then(|| routes.any(|list| list.position(target).is_some()))
    }

    /// Records the desired port ranges of a frontend of UDP: flows to others are stale.
    pub(super) fn note_ranges(&mut self, frontend: Frontend, blocks: &[PortBlock]) {
        let is_of_ranges = frontend.protocol() == Protocol::Udp && !blocks.is_empty();
        if is_of_ranges && self.frontends.get(&frontend).is_some_and(|it| it.blocks() != blocks) {
            self.serving.have_ranges_changed = true;
        }
    }

    /// Returns whether a port is in the installed port ranges of a frontend.
    pub fn has_port_in_range(&self, ranges: &Frontend, port: NonZeroU16) -> bool {
        let state = self.frontends.get(ranges);
        state.is_some_and(|it| it.blocks().iter().any(|block| block.contains(port)))
    }

    /// Returns whether a service waits for a frontend of another service.
    pub fn is_waiting(&self, frontend: &Frontend, service: &ObjectName) -> bool {
        self.frontends.is_waiting(frontend, service)
    }

    /// Records endpoints that ended, returned or were forgotten.
    pub fn note_ended(&mut self, changed: impl IntoIterator<Item = Target>) {
        self.ended.note(changed);
    }

    /// Replaces the installed ended endpoints by a read-back.
    pub fn adopt_ended(&mut self, found: impl Iterator<Item = Target>) {
        self.ended.adopt(found);
    }

    /// Adds to a piece the removal of endpoints that are not ended any more, which precedes the slots
    /// that lead to them. Returns false if not all fit.
    pub fn remove_ended(&mut self, cluster: &Cluster, piece: &mut Piece) -> bool {
        self.ended.is_settled() || self.ended.remove(cluster, piece)
    }

    /// Adds to a piece what belongs to no service's update: addresses for node ports, ended
    /// endpoints, the removal of orphans, and that of unused elements that no packet can look up any
    /// more.
    pub fn update_others(&mut self, cluster: &Cluster, piece: &mut Piece) {
        self.node_port_ips.install(piece);
        if self.remove_ended(cluster, piece)
            && let Some(ended) = cluster.ended()
        {
            self.ended.add(ended, piece);
        }
        while let Some((unused, since)) = self.unused.front().copied() {
            if !self.epochs.is_due(since, piece)
                || self.delete_unused_element(unused, piece).is_err()
            {
                break;
            }
            self.unused.pop_front();
        }
    }

    /// Returns whether no list is left that is to be read.
    pub fn has_read_lists(&self) -> bool {
        self.lists.iter().all(|lists| lists.unread.are_none())
    }

    /// Returns whether no list is in the kernel that is not known.
    pub fn knows_all_lists(&self) -> bool {
        self.lists.iter().all(|lists| lists.unread.have_told_all())
    }

    /// Returns the installed elements of a table that are known as they are in the kernel. All lists
    /// must be read.
    pub fn known_elements(&self, family: Family, layouts: Arc<Layouts>) -> KnownElements {
        KnownElements::new(&self.lists[family.index()], &self.members, layouts)
    }

    /// Returns the lists of one table to be requested next; `None` if all are requested.
    pub fn next_lists(&mut self) -> Option<(Family, Vec<NamedList>)> {
        // Services wait for some of them.
        let waits = |family: Family| self.lists[family.index()].unread.has_hurried();
        let mut families = Family::ALL;
        families.sort_by_key(|family| !waits(*family));
        families.into_iter().find_map(|family| {
            let next = self.lists[family.index()].unread.next(AT_A_TIME);
            (!next.is_empty()).then_some((family, next))
        })
    }

    /// Fills lists that were not read yet. Returns false if all are read now, but are not all
    /// elements of the map.
    pub fn read_lists(&mut self, read: ReadLists) -> bool {
        let lists = &mut self.lists[read.family.index()];
        lists.read(read);
        lists.unread.may_be_all()
    }

    /// Returns false if a map of endpoints has elements of other lists than routes name.
    pub fn may_have_all_lists(&self) -> bool {
        self.lists.iter().all(|lists| lists.unread.may_be_all())
    }

    /// Collects orphans for removal. All services must have been updated since
    /// [`Diff::replace_installed_elements`], and all lists read.
    pub fn begin_sweep(&mut self) {
        let frontends = sorted(self.frontends.unclaimed()).into_iter().map(Unused::Unclaimed);
        let members = sorted(self.members.unneeded()).into_iter().map(Unused::Member);
        frontends.chain(members).for_each(|it| self.unused.push_front((it, None)));
        let frontends = &self.frontends;
        self.serving.sweep(|frontend| frontends.holder(frontend).is_some());
        for family in Family::ALL {
            let unused = sorted(self.lists[family.index()].unused()).into_iter();
            let since = Some(self.epochs.present);
            self.unused.extend(unused.map(|list| (Unused::List(family, list), since)));
        }
    }

    /// Returns whether nothing is left to add to a piece. Disregards services waiting for an update
    /// and kept unused elements.
    pub fn is_settled(&self) -> bool {
        self.unused.front().is_none_or(|(_, since)| self.epochs.keeps(*since))
            && self.node_port_ips.are_settled()
            && self.ended.is_settled()
    }

    /// Returns whether elements are to be deleted, now or later.
    pub fn has_unused_elements(&self) -> bool {
        !self.unused.is_empty()
    }

    /// Keeps unused elements from now on until [`Diff::release`].
    pub fn keep_unused_elements(&mut self) {
        self.epochs.kept_from = Some(self.epochs.present);
    }

    /// Ends the present epoch and returns the unused elements that are kept up to it. The kernel
    /// must have applied all pieces.
    pub fn kept(&mut self) -> Option<Kept> {
        let (_, since) = self.unused.back()?;
        if !self.epochs.keeps(*since) {
            return None;
        }
        // Later unused elements belong to a later epoch, even without a commit in between.
        self.epochs.present += 1;
        Some(Kept(self.epochs.present))
    }

    /// Deletes unused elements with the next pieces.
    pub fn release(&mut self, Kept(before): Kept) {
        self.epochs.kept_from = Some(before);
    }

    /// Records that the kernel has applied the piece.
    pub fn committed(&mut self) {
        self.epochs.present += 1;
        self.lists.iter_mut().for_each(Lists::end_rest);
        if self.unused.is_empty() {
            self.unused.shrink_to(SMALL);
        }
    }

    /// Returns the service ports of `family` whose policy wants a local endpoint and that have
    /// none.
    pub fn no_local_endpoints(&self, family: Family) -> NoLocalPorts {
        self.counts.no_local(family)
    }

    /// Returns the number of services that hold or claim something, per scheduler in the order of
    /// [`Scheduler::ALL`].
    pub fn services_by_scheduler(&self) -> [usize; Scheduler::ALL.len()] {
        self.counts.by_scheduler(self.services.len())
    }

    /// Returns the size classes that rules must choose from.
    pub fn size_classes(&self, family: Family) -> SizeClasses {
        self.lists[family.index()].size_classes
    }

    /// Counts these size classes as used.
    pub fn use_size_classes(&mut self, family: Family, classes: SizeClasses) {
        let used = &mut self.lists[family.index()].size_classes;
        *used = used.union(classes);
    }

    /// Returns the services that hold or claim something, sorted.
    pub fn services(&self) -> impl Iterator<Item = &ObjectName> {
        self.services.names()
    }

    /// Returns the next `most` services after `last`, or the first ones, sorted.
    pub fn services_after(&self, last: Option<&ObjectName>, most: usize) -> Vec<ObjectName> {
        self.services.names_after(last).take(most).cloned().collect()
    }

    /// Returns how many slots each endpoint has in the installed list of a frontend.
    pub fn slots_at(&self, frontend: &Frontend) -> HashMap<Target, u32> {
        let mut slots = HashMap::default();
        let route = self.frontends.get(frontend).and_then(|state| state.route);
        let list = route.and_then(Route::list);
        let list = list.and_then(|id| self.lists[frontend.family().index()].get(id));
        for target in list.into_iter().flat_map(|list| list.iter().flatten()) {
            *slots.entry(target).or_default() += 1;
        }
        slots
    }

    /// Returns the service that an element belongs to.
    pub fn service_of(&self, family: Family, subject: Subject) -> Option<&ObjectName> {
        match subject {
            Subject::Frontend(frontend) => self.frontends.holder(&frontend),
            Subject::List(list) => self.service_with(family, list),
        }
    }

    /// Returns the services that elements belong to. Searches all services if one is in a list.
    pub fn services_of(&self, subjects: &HashSet<(Family, Subject)>) -> BTreeSet<&ObjectName> {
        let has_list = |holdings: &PackedHoldings| {
            let lists = holdings.unpack().lists;
            lists.iter().any(|it| subjects.contains(&(it.family, Subject::List(it.id))))
        };
        let mut services = BTreeSet::new();
        if subjects.iter().any(|(_, subject)| matches!(subject, Subject::List(_))) {
            services = self.services.with(has_list);
        }
        services.extend(subjects.iter().filter_map(|(_, subject)| match subject {
            Subject::Frontend(frontend) => self.frontends.holder(frontend),
            Subject::List(_) => None,
        }));
        services
    }

    /// Searches all services, so it is for rare cases only.
    pub(super) fn service_with(&self, family: Family, id: ListId) -> Option<&ObjectName> {
        let has_it = |holdings: &PackedHoldings| {
            holdings.unpack().lists.iter().any(|list| (list.family, list.id) == (family, id))
        };
        self.services.with(has_it).pop_first()
    }

    /// Installs `desired` for a frontend, as far as it fits into the piece.
    pub(super) fn install(
        &mut self,
        frontend: Frontend,
        desired: DesiredState<'_>,
        piece: &mut Piece,
    ) -> Result<Progress, Full> {
        self.change(frontend, piece, |change, state| change.install(state, desired))
    }

    /// Changes the installed elements of a frontend.
    pub(super) fn change<T>(
        &mut self,
        frontend: Frontend,
        piece: &mut Piece,
        make: impl FnOnce(&mut FrontendChange<'_>, &mut FrontendState) -> T,
    ) -> T {
        let (epochs, unused) = (self.epochs, &mut self.unused);
        let lists = &mut self.lists[frontend.family().index()];
        let mut change = FrontendChange { frontend, epochs, piece, lists, unused };
        self.frontends.change(frontend, |state| make(&mut change, state))
    }

    pub(super) fn disown(&mut self, family: Family, list: ListId) {
        if self.lists[family.index()].disown(list) {
            self.unused.push_back((Unused::List(family, list), Some(self.epochs.present)));
        }
    }

    pub(super) fn delete_unused_element(
        &mut self,
        unused: Unused,
        piece: &mut Piece,
    ) -> Result<(), Full> {
        match unused {
            Unused::Frontend(frontend) => {
                piece.fits_limit(FRONTEND_ELEMENTS)?;
                self.change(frontend, piece, |change, state| change.delete_unused_elements(state))
            }
            Unused::List(family, list) => self.lists[family.index()].delete(list, piece),
            Unused::Unclaimed(frontend) => {
                piece.fits_budget(FRONTEND_ELEMENTS)?;
                // A service may have claimed it meanwhile.
                if self.frontends.holder(&frontend).is_none() {
                    self.install(frontend, DesiredState::default(), piece)?;
                    self.serving.set_desired(frontend, None);
                }
                Ok(())
            }
            Unused::Member(member) => {
                piece.fits_budget(1)?;
                self.members.sweep(member, piece);
                Ok(())
            }
        }
    }
}

/// Capacity kept after a large change.
const SMALL: usize = 1_024;
