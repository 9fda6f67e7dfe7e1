//! Frontends: their holders and installed elements.

use ahash::HashMap;
use ipnet::IpNet;

use super::desired_state::DesiredState;
use super::finding::InstalledElement;
use super::lists::Lists;
use super::packed_map::PackedMap;
use super::progress::Progress;
use super::unused::{Epoch, Epochs, Unused, UnusedElements};
use super::waiting::Waiting;
use crate::desired::Label;
use crate::model::{ObjectName, PortBlock};
use crate::piece::{Full, Piece};
use crate::ruleset::number::{ListId, Route};
use crate::ruleset::{Frontend, TableElement, Unserved};

/// All frontends of both tables.
#[derive(Debug, Default)]
pub(super) struct Frontends {
    states: PackedMap<Frontend, FrontendState>,
    /// Services that claim a frontend of another service.
    pub(super) waiting: HashMap<Frontend, Waiting>,
}

/// The installed state of one frontend.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FrontendState {
    /// The service that has the frontend. `None` if it was found in the kernel or released: its
    /// elements stay until another service takes the frontend, or until they are deleted as unused
    /// elements.
    holder: Option<ObjectName>,
    /// Digest of the label of its elements; 0 without one.
    pub(super) label: u32,
    pub(super) route: Option<Route>,
    pub(super) rare: Option<Box<Rare>>,
}

/// State that most frontends do not have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rare {
    pub(super) internal: Option<Route>,
    pub(super) unserved: Option<Unserved>,
    /// The frontend is in `restricted-services`.
    pub(super) is_restricted: bool,
    pub(super) ranges: Vec<IpNet>,
    /// Ports of its port ranges.
    pub(super) blocks: Vec<PortBlock>,
    /// The frontend is in `source-refusals`.
    pub(super) counts_refusals: bool,
    /// Epoch in which the last range, or the mark that packets are checked by, was added.
    pub(super) ranges_added: Option<Epoch>,
    /// Epoch since which packets are not sent to `internal`.
    internal_unused: Option<Epoch>,
    /// Epoch since which `ranges` are not looked up.
    pub(super) ranges_unused: Option<Epoch>,
}

impl Frontends {
    pub(super) fn get(&self, frontend: &Frontend) -> Option<&FrontendState> {
        self.states.get(frontend)
    }

    /// Returns the service that has the frontend.
    pub(super) fn holder(&self, frontend: &Frontend) -> Option<&ObjectName> {
        self.states.get(frontend)?.holder.as_ref()
    }

    /// Sets the service that has the frontend; returns the former one.
    pub(super) fn set_holder(
        &mut self,
        frontend: Frontend,
        holder: Option<ObjectName>,
    ) -> Option<ObjectName> {
        if holder.is_none() && self.states.get(&frontend).is_none() {
            return None;
        }
        std::mem::replace(&mut self.states.get_or_default(frontend).holder, holder)
    }

    /// Replaces the installed state by a read-back. The holders stay.
    pub(super) fn adopt(&mut self, found: PackedMap<Frontend, FrontendState>) {
        let former = std::mem::replace(&mut self.states, found);
        for (frontend, state) in former.into_entries() {
            if let Some(holder) = state.holder {
                self.states.get_or_default(frontend).holder = Some(holder);
            }
        }
    }

    /// Returns every list that an installed route names, once for each route.
    pub(super) fn references(&self) -> impl Iterator<Item = (Frontend, ListId)> {
        self.states.iter().flat_map(|(frontend, state)| {
            state.routes().filter_map(Route::list).map(move |list| (frontend, list))
        })
    }

    /// Returns the frontends that no service has.
    pub(super) fn unclaimed(&self) -> impl Iterator<Item = Frontend> {
        self.states.iter().filter(|(_, state)| state.holder.is_none()).map(|(it, _)| it)
    }

    pub(super) fn change<T>(
        &mut self,
        frontend: Frontend,
        change: impl FnOnce(&mut FrontendState) -> T,
    ) -> T {
        let state = self.states.get_or_default(frontend);
        let result = change(state);
        if state.is_empty() {
            self.states.remove(&frontend);
        }
        result
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.states.len() == 0 && self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Frontend> {
        self.states.iter().map(|(frontend, _)| frontend)
    }
}

impl FrontendState {
    /// Returns the installed route.
    pub fn route(&self) -> Option<Route> {
        self.route
    }

    /// Returns the route for packets of pods and of the node, if it differs.
    pub fn internal(&self) -> Option<Route> {
        self.rare.as_ref()?.internal
    }

    /// Returns the treatment of packets without an endpoint.
    pub fn unserved(&self) -> Option<Unserved> {
        self.rare.as_ref()?.unserved
    }

    /// Returns the allowed sources; `None` if all are.
    pub fn source_ranges(&self) -> Option<&[IpNet]> {
        let rare = self.rare.as_deref().filter(|rare| rare.is_restricted)?;
        Some(&rare.ranges)
    }

    /// Returns the ports of its port ranges.
    pub fn blocks(&self) -> &[PortBlock] {
        self.rare.as_deref().map_or(&[], |rare| &rare.blocks)
    }

    /// Returns whether a source range is installed, whether or not packets look it up.
    pub(super) fn has_range(&self, range: &IpNet) -> bool {
        self.rare.as_deref().is_some_and(|rare| rare.ranges.binary_search(range).is_ok())
    }

    /// Returns the routes of the frontend.
    pub(super) fn routes(&self) -> impl Iterator<Item = Route> + use<> {
        self.route.into_iter().chain(self.internal())
    }

    /// Returns whether elements with another label were found, and the holder of the frontend, if
    /// any, satisfies `has_only_claimed`.
    pub(super) fn may_be_of_another(
        &self,
        label: &Label,
        has_only_claimed: impl Fn(&ObjectName) -> bool,
    ) -> bool {
        let is_free = self.holder.as_ref().is_none_or(has_only_claimed);
        is_free && self.label != 0 && !self.has_label(label)
    }

    /// Returns whether the state equals `desired`.
    pub(super) fn is_at(&self, desired: DesiredState<'_>) -> bool {
        let rare = self.rare.as_deref();
        let internal =
            rare.filter(|rare| rare.internal_unused.is_none()).and_then(|it| it.internal);
        (self.route, internal, self.source_ranges())
            == (desired.route, desired.internal, desired.ranges)
            && self.unserved() == desired.unserved
            && rare.is_some_and(|rare| rare.counts_refusals) == desired.ranges.is_some()
            && rare.map_or(&[][..], |rare| &rare.blocks) == desired.blocks
            && self.label == desired.label.map_or(0, Label::digest)
    }

    /// Calls `each` for every installed element.
    pub(super) fn each_installed_element(
        &self,
        frontend: Frontend,
        each: &mut dyn FnMut(InstalledElement),
    ) {
        let family = frontend.family();
        let mut give = |element, label| each(InstalledElement { family, element, label });
        if let Some(route) = self.route {
            give(TableElement::Route(frontend, route, None), self.label);
        }
        let Some(rare) = self.rare.as_deref() else { return };
        if let Some(unserved) = rare.unserved {
            give(TableElement::Unserved(frontend, unserved, None), self.label);
        }
        if let Some(internal) = rare.internal {
            give(TableElement::Internal(frontend, internal), 0);
        }
        if rare.is_restricted {
            give(TableElement::Restricted(frontend), 0);
        }
        for block in &rare.blocks {
            give(TableElement::PortBlock(frontend, *block), 0);
        }
        for range in &rare.ranges {
            give(TableElement::SourceRange(frontend, *range), 0);
        }
        if rare.counts_refusals {
            give(TableElement::SourceRefusals(frontend), 0);
        }
    }

    /// Records an element found in the kernel; `label` is the digest of its label. Returns false if
    /// it belongs to no frontend.
    pub(super) fn find(&mut self, element: &TableElement<'_>, label: u32) -> bool {
        match *element {
            TableElement::Route(_, route, _) => (self.route, self.label) = (Some(route), label),
            TableElement::Unserved(_, unserved, _) => {
                self.rare().unserved = Some(unserved);
                self.label = label;
            }
            TableElement::Internal(_, route) => self.rare().internal = Some(route),
            TableElement::Restricted(_) => self.rare().is_restricted = true,
            TableElement::SourceRange(_, range) => self.rare().ranges.push(range),
            TableElement::PortBlock(_, block) => self.rare().blocks.push(block),
            TableElement::SourceRefusals(_) => self.rare().counts_refusals = true,
            TableElement::Endpoint(..)
            | TableElement::Member(_)
            | TableElement::AffinitySlot(..)
            | TableElement::AffinityEndpoint(..)
            | TableElement::RangeEndpoint(..)
            | TableElement::AffinityList(..)
            | TableElement::Ended(..) => return false,
        }
        true
    }

    /// Replaces an installed element by the finding; `None` for no element. Returns false and
    /// changes nothing if that is impossible: the finding is of another set, or `installed` belongs
    /// to no frontend.
    pub(super) fn correct(
        &mut self,
        installed: TableElement<'_>,
        found: Option<InstalledElement>,
    ) -> bool {
        if found.is_some_and(|found| found.element.set() != installed.set()) {
            return false;
        }
        if let (TableElement::Route(..), Some(rare)) = (installed, self.rare.as_deref_mut()) {
            // The route in the kernel may need them again. The next update decides.
            (rare.internal_unused, rare.ranges_unused) = (None, None);
        }
        match installed {
            TableElement::Route(..) => self.route = None,
            TableElement::Unserved(..) => self.rare().unserved = None,
            TableElement::Internal(..) => self.rare().internal = None,
            TableElement::Restricted(_) => self.rare().is_restricted = false,
            TableElement::SourceRange(_, range) => self.rare().ranges.retain(|it| *it != range),
            TableElement::PortBlock(_, block) => self.rare().blocks.retain(|it| *it != block),
            TableElement::SourceRefusals(_) => self.rare().counts_refusals = false,
            TableElement::Endpoint(..)
            | TableElement::Member(_)
            | TableElement::AffinitySlot(..)
            | TableElement::AffinityEndpoint(..)
            | TableElement::RangeEndpoint(..)
            | TableElement::AffinityList(..)
            | TableElement::Ended(..) => return false,
        }
        if let Some(found) = found {
            self.find(&found.element, found.label);
        }
        if let Some(rare) = self.rare.as_deref_mut() {
            rare.ranges.sort_unstable();
            rare.blocks.sort_unstable();
            rare.internal_unused.take_if(|_| rare.internal.is_none());
        }
        self.rare.take_if(|rare| **rare == Rare::default());
        true
    }

    /// Returns whether its elements carry this label.
    pub(super) fn has_label(&self, label: &Label) -> bool {
        self.label == label.digest()
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn is_empty(&self) -> bool {
        self.holder.is_none() && self.route.is_none() && self.rare.is_none()
    }
}

/// A change of the installed elements of one frontend.
pub(super) struct FrontendChange<'a> {
    pub(super) frontend: Frontend,
    pub(super) epochs: Epochs,
    pub(super) piece: &'a mut Piece,
    pub(super) lists: &'a mut Lists,
    pub(super) unused: &'a mut UnusedElements,
}

impl FrontendChange<'_> {
    /// Installs `desired`, as far as it fits into the piece.
    pub(super) fn install(
        &mut self,
        state: &mut FrontendState,
        desired: DesiredState<'_>,
    ) -> Result<Progress, Full> {
        let has_ranges =
            |rare: &Rare| rare.is_restricted || rare.counts_refusals || !rare.ranges.is_empty();
        let mut progress = Progress::Complete;
        if desired.ranges.is_some() || state.rare.as_deref().is_some_and(has_ranges) {
            let is_new = state.route.is_none() && state.rare().unserved.is_none();
            progress = self.install_ranges(state.rare(), desired.ranges, is_new)?;
            if is_new && progress == Progress::AfterCommit {
                return Ok(progress);
            }
        }
        let digest = desired.label.map_or(0, Label::digest);
        let is_relabelled = digest != state.label;
        if desired.internal.is_some() || state.rare.is_some() {
            self.install_internal(state.rare(), desired.internal);
        }
        let unserved = state.rare.as_ref().and_then(|rare| rare.unserved);
        if unserved != desired.unserved || (is_relabelled && desired.unserved.is_some()) {
            let label = desired.label.map(Label::as_str);
            let element = |it| TableElement::Unserved(self.frontend, it, label);
            self.replace(unserved.map(element), desired.unserved.map(element));
            state.rare().unserved = desired.unserved;
        }
        if state.route != desired.route || (is_relabelled && desired.route.is_some()) {
            self.install_route(state, desired.route, desired.label);
        }
        if !desired.blocks.is_empty()
            || state.rare.as_deref().is_some_and(|it| !it.blocks.is_empty())
        {
            self.install_blocks(state.rare(), desired.blocks)?;
        }
        state.label = digest;
        state.rare.take_if(|rare| **rare == Rare::default());
        Ok(progress)
    }

    /// Adds ports to the port ranges and deletes others, as far as they fit into the piece.
    fn install_blocks(&mut self, rare: &mut Rare, desired: &[PortBlock]) -> Result<(), Full> {
        let known = rare.blocks.len();
        let mut result = desired.iter().try_for_each(|block| {
            if rare.blocks[..known].binary_search(block).is_err() {
                self.piece.fits_budget(1)?;
                self.replace(None, Some(TableElement::PortBlock(self.frontend, *block)));
                rare.blocks.push(*block);
            }
            Ok(())
        });
        rare.blocks.sort_unstable();
        rare.blocks.retain(|block| {
            if desired.binary_search(block).is_ok() || result.is_err() {
                return true;
            }
            result = self.piece.fits_budget(1);
            if result.is_ok() {
                self.replace(Some(TableElement::PortBlock(self.frontend, *block)), None);
            }
            result.is_err()
        });
        result
    }

    /// Sets the size class in the routes to a list.
    pub(super) fn resize(
        &mut self,
        state: &mut FrontendState,
        resized: impl Fn(Route) -> Route,
        label: &Label,
    ) {
        let route = state.route.map(&resized);
        if state.route != route {
            self.install_route(state, route, Some(label));
        }
        if let Some(rare) = state.rare.as_deref_mut().filter(|it| it.internal_unused.is_none())
            && let Some(internal) = rare.internal
        {
            self.install_internal(rare, Some(resized(internal)));
        }
    }

    fn install_route(
        &mut self,
        state: &mut FrontendState,
        desired: Option<Route>,
        label: Option<&Label>,
    ) {
        let label = label.map(Label::as_str);
        let element = |route| TableElement::Route(self.frontend, route, label);
        self.replace(state.route.map(element), desired.map(element));
        self.refer(state.route, desired);
        state.route = desired;
    }

    /// Keeps `internal` for a while after its removal, because packets that found the former route
    /// may still look it up.
    fn install_internal(&mut self, rare: &mut Rare, desired: Option<Route>) {
        if desired.is_none() {
            if rare.internal.is_some() && rare.internal_unused.is_none() {
                rare.internal_unused = Some(self.leave());
            }
            return;
        }
        rare.internal_unused = None;
        if rare.internal != desired {
            let element = |route| TableElement::Internal(self.frontend, route);
            self.replace(rare.internal.map(element), desired.map(element));
            self.refer(rare.internal, desired);
            rare.internal = desired;
        }
    }

    /// Deletes unused elements that no packet can look up any more.
    pub(super) fn delete_unused_elements(&mut self, state: &mut FrontendState) -> Result<(), Full> {
        let Some(rare) = state.rare.as_deref_mut() else { return Ok(()) };
        let due = |since: Epoch| self.epochs.is_due(Some(since), self.piece);
        let (internal, ranges) =
            (rare.internal_unused.is_some_and(due), rare.ranges_unused.is_some_and(due));
        if internal && let Some(route) = rare.internal.take() {
            self.replace(Some(TableElement::Internal(self.frontend, route)), None);
            self.refer(Some(route), None);
            rare.internal_unused = None;
        }
        if ranges {
            self.delete_ranges(rare, |_| false)?;
            rare.ranges_unused = None;
        }
        state.rare.take_if(|rare| **rare == Rare::default());
        Ok(())
    }

    pub(super) fn replace(&mut self, old: Option<TableElement<'_>>, new: Option<TableElement<'_>>) {
        self.piece.replace(self.frontend.family(), old, new);
    }

    /// Records an unused element of the frontend; returns the present epoch.
    pub(super) fn leave(&mut self) -> Epoch {
        self.unused.push_back((Unused::Frontend(self.frontend), Some(self.epochs.present)));
        self.epochs.present
    }

    /// Updates the reference counts of the lists that installed routes name.
    fn refer(&mut self, old: Option<Route>, new: Option<Route>) {
        let [old, new] = [old, new].map(|route| route.and_then(Route::list));
        if old == new {
            return;
        }
        if let Some(list) = new {
            self.lists.add_reference(list);
        }
        if let Some(list) = old.filter(|list| self.lists.remove_reference(*list)) {
            let unused = Unused::List(self.frontend.family(), list);
            self.unused.push_back((unused, Some(self.epochs.present)));
        }
    }
}
