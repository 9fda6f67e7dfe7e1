//! Frontends: which service has each, and what the tables hold for it.

use ahash::HashMap;
use smallvec::SmallVec;

use super::Epoch;
use crate::desired::Label;
use crate::model::ObjectName;
use crate::plan::Piece;
use crate::ruleset::number::{ListId, Route};
use crate::ruleset::{Frontend, Range, SetId, TableElement, Unserved};

/// All frontends of both tables.
#[derive(Debug, Default)]
pub(super) struct Frontends {
    states: HashMap<Frontend, FrontendState>,
    /// Services that claim a frontend that another one has.
    pub(super) waiting: HashMap<Frontend, Vec<ObjectName>>,
}

/// One frontend, as installed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FrontendState {
    /// The service that has it. While `None`, it is found in the kernel or given back, and what is
    /// installed stays until a service is updated or it is swept.
    holder: Option<ObjectName>,
    /// Digest of the label of its elements, 0 without.
    label: u32,
    route: Option<Route>,
    rare: Option<Box<Rare>>,
}

/// What most frontends do not have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rare {
    internal: Option<Route>,
    unserved: Option<Unserved>,
    is_guarded: bool,
    ranges: Box<[Range]>,
    /// When the last range was added.
    ranges_added: Option<Epoch>,
    /// Since when packets are not sent to `internal` any more.
    internal_unused: Option<Epoch>,
    /// Since when `ranges` are not looked up any more.
    ranges_unused: Option<Epoch>,
}

/// What is to be installed for a frontend.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Goal<'a> {
    pub(super) route: Option<Route>,
    pub(super) internal: Option<Route>,
    pub(super) unserved: Option<Unserved>,
    /// Sources that may use it, ascending and disjoint; `None` if all may.
    pub(super) ranges: Option<&'a [Range]>,
    /// The comment of its elements.
    pub(super) label: Option<&'a Label>,
}

/// What follows from a change of a frontend.
#[derive(Debug, Default)]
pub(super) struct Consequences {
    /// Lists that an installed route names now.
    pub(super) referenced: SmallVec<[ListId; 2]>,
    /// Lists that one route fewer names.
    pub(super) unreferenced: SmallVec<[ListId; 2]>,
    /// Something of the frontend is to be deleted later.
    pub(super) has_leftovers: bool,
    /// Not everything fitted into the piece.
    pub(super) is_partial: bool,
    /// The rest is to be installed after the next commit.
    pub(super) must_wait: bool,
}

impl Frontends {
    pub(super) fn get(&self, frontend: &Frontend) -> Option<&FrontendState> {
        self.states.get(frontend)
    }

    /// The service that has the frontend.
    pub(super) fn holder(&self, frontend: &Frontend) -> Option<&ObjectName> {
        self.states.get(frontend)?.holder.as_ref()
    }

    /// Gives the frontend to a service; returns the one that had it.
    pub(super) fn set_holder(
        &mut self,
        frontend: Frontend,
        holder: Option<ObjectName>,
    ) -> Option<ObjectName> {
        if holder.is_none() && !self.states.contains_key(&frontend) {
            return None;
        }
        std::mem::replace(&mut self.states.entry(frontend).or_default().holder, holder)
    }

    /// Starts over from what the kernel was found to hold. Who has what stays.
    pub(super) fn observe(&mut self, found: HashMap<Frontend, FrontendState>) {
        let former = std::mem::replace(&mut self.states, found);
        for (frontend, state) in former {
            if let Some(holder) = state.holder {
                self.states.entry(frontend).or_default().holder = Some(holder);
            }
        }
    }

    /// Every list that an installed route names, once for each route.
    pub(super) fn references(&self) -> impl Iterator<Item = (Frontend, ListId)> {
        self.states.iter().flat_map(|(frontend, state)| {
            let routes = [state.route, state.internal()].into_iter().flatten();
            routes.filter_map(Route::list).map(|list| (*frontend, list))
        })
    }

    /// Frontends that no service has.
    pub(super) fn unclaimed(&self) -> impl Iterator<Item = Frontend> {
        self.states.iter().filter(|(_, state)| state.holder.is_none()).map(|(it, _)| *it)
    }

    /// Installs `goal` for a frontend, as far as that fits into the piece.
    pub(super) fn install(
        &mut self,
        frontend: Frontend,
        goal: Goal<'_>,
        epoch: Epoch,
        piece: &mut Piece,
    ) -> Consequences {
        let state = self.states.entry(frontend).or_default();
        let mut update = Update { frontend, epoch, piece, consequences: Consequences::default() };
        update.install(state, goal);
        let consequences = update.consequences;
        if state.is_empty() {
            self.states.remove(&frontend);
        }
        consequences
    }

    /// Gives the routes of a frontend another size class.
    pub(super) fn resize(
        &mut self,
        frontend: Frontend,
        resized: impl Fn(Route) -> Route,
        label: &Label,
        piece: &mut Piece,
    ) {
        let Some(state) = self.states.get_mut(&frontend) else { return };
        let (old, new) = (state.route, state.route.map(&resized));
        if old != new {
            let label = Some(label.as_str());
            let element = |route| TableElement::Route(frontend, route, label);
            piece.replace(frontend.family(), old.map(element), new.map(element));
            state.route = new;
        }
        let Some(rare) = state.rare.as_deref_mut().filter(|it| it.internal_unused.is_none()) else {
            return;
        };
        let (old, new) = (rare.internal, rare.internal.map(resized));
        if old != new {
            let element = |route| TableElement::Internal(frontend, route);
            piece.replace(frontend.family(), old.map(element), new.map(element));
            rare.internal = new;
        }
    }

    /// Deletes what packets stopped to use before this epoch.
    pub(super) fn delete_leftovers(
        &mut self,
        frontend: Frontend,
        epoch: Epoch,
        piece: &mut Piece,
    ) -> Consequences {
        let Some(state) = self.states.get_mut(&frontend) else { return Consequences::default() };
        let mut update = Update { frontend, epoch, piece, consequences: Consequences::default() };
        update.delete_leftovers(state);
        let consequences = update.consequences;
        if state.is_empty() {
            self.states.remove(&frontend);
        }
        consequences
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty() && self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Frontend> {
        self.states.keys()
    }
}

impl FrontendState {
    /// Where packets to it are sent.
    pub fn route(&self) -> Option<Route> {
        self.route
    }

    /// Where packets of pods and of the node are sent, if elsewhere.
    pub fn internal(&self) -> Option<Route> {
        self.rare.as_ref()?.internal
    }

    /// Whether elements of another label were found, and no service has the frontend yet.
    pub(super) fn may_be_of_another(&self, label: &Label) -> bool {
        self.holder.is_none() && self.label != 0 && !self.has_label(label)
    }

    /// Whether its elements carry this label.
    pub(super) fn has_label(&self, label: &Label) -> bool {
        self.label == label.digest()
    }

    /// Adds an element that was read back.
    pub(super) fn observe(&mut self, element: &TableElement<'_>) {
        let digest =
            |label: &Option<&str>| label.map_or(0, |label| Label::digest_of(label.as_bytes()));
        match element {
            TableElement::Route(_, route, label) => {
                (self.route, self.label) = (Some(*route), digest(label));
            }
            TableElement::Internal(_, route) => self.rare().internal = Some(*route),
            TableElement::NoEndpoint(_, unserved, label) => {
                self.rare().unserved = Some(*unserved);
                if self.route.is_none() {
                    self.label = digest(label);
                }
            }
            TableElement::Firewall(_) => self.rare().is_guarded = true,
            TableElement::Endpoint(..)
            | TableElement::SourceRange(..)
            | TableElement::Member(_)
            | TableElement::AffinitySlot(..)
            | TableElement::AffinityEndpoint(..)
            | TableElement::AffinityList(..) => {}
        }
    }

    /// Sets the source ranges that were read back.
    pub(super) fn observe_ranges(&mut self, ranges: Box<[Range]>) {
        self.rare().ranges = ranges;
    }

    /// Forgets the elements of one set.
    pub(super) fn forget(&mut self, set: SetId) {
        if matches!(set, SetId::Services | SetId::NodePorts) {
            self.route = None;
        }
        let Some(rare) = self.rare.as_deref_mut() else { return };
        if matches!(set, SetId::InternalServices | SetId::InternalNodePorts) {
            rare.internal = None;
        } else if matches!(set, SetId::NoEndpointServices | SetId::NoEndpointNodePorts) {
            rare.unserved = None;
        } else if set == SetId::FirewallIps {
            rare.is_guarded = false;
        }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn is_empty(&self) -> bool {
        self.holder.is_none() && self.route.is_none() && self.rare.is_none()
    }
}

/// A change of one frontend.
struct Update<'a> {
    frontend: Frontend,
    epoch: Epoch,
    piece: &'a mut Piece,
    consequences: Consequences,
}

impl Update<'_> {
    fn install(&mut self, state: &mut FrontendState, goal: Goal<'_>) {
        let (frontend, family) = (self.frontend, self.frontend.family());
        let has_ranges = |rare: &Rare| rare.is_guarded || !rare.ranges.is_empty();
        if goal.ranges.is_some() || state.rare.as_deref().is_some_and(has_ranges) {
            let is_new = state.route.is_none() && state.rare().unserved.is_none();
            self.install_ranges(state.rare(), goal.ranges);
            if self.consequences.is_partial || (is_new && self.consequences.must_wait) {
                return;
            }
        }
        let digest = goal.label.map_or(0, Label::digest);
        let is_relabelled = digest != state.label;
        if goal.internal.is_some() || state.rare.is_some() {
            self.install_internal(state.rare(), goal.internal);
        }
        let unserved = state.rare.as_ref().and_then(|rare| rare.unserved);
        if unserved != goal.unserved || (is_relabelled && goal.unserved.is_some()) {
            let label = goal.label.map(Label::as_str);
            let element = |unserved| TableElement::NoEndpoint(frontend, unserved, label);
            self.piece.replace(family, unserved.map(element), goal.unserved.map(element));
            state.rare().unserved = goal.unserved;
        }
        if state.route != goal.route || (is_relabelled && goal.route.is_some()) {
            let label = goal.label.map(Label::as_str);
            let element = |route| TableElement::Route(frontend, route, label);
            self.piece.replace(family, state.route.map(element), goal.route.map(element));
            self.refer([state.route, goal.route]);
            state.route = goal.route;
        }
        state.label = digest;
        state.rare.take_if(|rare| **rare == Rare::default());
    }

    /// Packets that found the former route may still look `internal` up, so it stays a while.
    fn install_internal(&mut self, rare: &mut Rare, goal: Option<Route>) {
        if goal.is_none() {
            if rare.internal.is_some() && rare.internal_unused.is_none() {
                rare.internal_unused = Some(self.epoch);
                self.consequences.has_leftovers = true;
            }
            return;
        }
        rare.internal_unused = None;
        if rare.internal != goal {
            let element = |route| TableElement::Internal(self.frontend, route);
            let (old, new) = (rare.internal.map(element), goal.map(element));
            self.piece.replace(self.frontend.family(), old, new);
            self.refer([rare.internal, goal]);
            rare.internal = goal;
        }
    }

    /// Ranges are complete before packets look them up, and stay a while after the last does. The
    /// kernel shows a change of an interval set later than all else of its commit
    /// (`nft_set_commit_update`), so the mark comes with the next one.
    fn install_ranges(&mut self, rare: &mut Rare, goal: Option<&[Range]>) {
        let (frontend, family) = (self.frontend, self.frontend.family());
        let Some(goal) = goal else {
            if std::mem::take(&mut rare.is_guarded) {
                self.piece.delete(family, &TableElement::Firewall(frontend));
            }
            rare.ranges_added = None;
            if !rare.ranges.is_empty() && rare.ranges_unused.is_none() {
                rare.ranges_unused = Some(self.epoch);
                self.consequences.has_leftovers = true;
            }
            return;
        };
        rare.ranges_unused = None;
        if *rare.ranges != *goal {
            // Ranges that go come first: those that come could overlap them.
            self.delete_ranges(rare, |range| goal.binary_search(range).is_ok());
            self.add_ranges(rare, goal);
        }
        if self.consequences.is_partial || rare.is_guarded {
            return;
        }
        // The first commit may make the whole table, or replace it.
        if self.epoch > 0 && rare.ranges_added == Some(self.epoch) {
            self.consequences.must_wait = true;
            return;
        }
        self.piece.add(family, &TableElement::Firewall(frontend));
        rare.is_guarded = true;
        rare.ranges_added = None;
    }

    fn add_ranges(&mut self, rare: &mut Rare, goal: &[Range]) {
        let mut ranges = std::mem::take(&mut rare.ranges).into_vec();
        let missing: Vec<_> =
            goal.iter().filter(|range| ranges.binary_search(range).is_err()).collect();
        for range in missing {
            if self.consequences.is_partial || !self.piece.admits(1) {
                self.consequences.is_partial = true;
                break;
            }
            let element = TableElement::SourceRange(self.frontend, *range);
            self.piece.add(self.frontend.family(), &element);
            rare.ranges_added = Some(self.epoch);
            ranges.push(*range);
        }
        ranges.sort_unstable();
        rare.ranges = ranges.into();
    }

    fn delete_ranges(&mut self, rare: &mut Rare, is_kept: impl Fn(&Range) -> bool) {
        let mut ranges = std::mem::take(&mut rare.ranges).into_vec();
        ranges.retain(|range| {
            if self.consequences.is_partial || is_kept(range) {
                return true;
            }
            if !self.piece.admits(1) {
                self.consequences.is_partial = true;
                return true;
            }
            let element = TableElement::SourceRange(self.frontend, *range);
            self.piece.delete(self.frontend.family(), &element);
            false
        });
        rare.ranges = ranges.into();
    }

    fn delete_leftovers(&mut self, state: &mut FrontendState) {
        let Some(rare) = state.rare.as_deref_mut() else { return };
        let is_due = |since: Epoch| since < self.epoch || self.piece.is_empty();
        let (internal, ranges) =
            (rare.internal_unused.is_some_and(is_due), rare.ranges_unused.is_some_and(is_due));
        if internal && let Some(route) = rare.internal.take() {
            let element = TableElement::Internal(self.frontend, route);
            self.piece.delete(self.frontend.family(), &element);
            self.refer([Some(route), None]);
            rare.internal_unused = None;
        }
        if ranges {
            self.delete_ranges(rare, |_| false);
            if !self.consequences.is_partial {
                rare.ranges_unused = None;
            }
        }
        state.rare.take_if(|rare| **rare == Rare::default());
    }

    fn refer(&mut self, [old, new]: [Option<Route>; 2]) {
        self.consequences.referenced.extend(new.and_then(Route::list));
        self.consequences.unreferenced.extend(old.and_then(Route::list));
    }
}
