//! The update of one service.
//!
//! Everything is compared with the installed elements, so an update interrupted by a full piece
//! continues where it stopped. The order leaves a working table after each piece: endpoints are
//! added before the routes to them, and deleted after these.

use nft::family::Family;
use smallvec::SmallVec;

use super::assignment::Patch;
use super::both_tables::{Context, Diff, FRONTEND_ELEMENTS};
use super::claims;
use super::desired_state::{DesiredState, route};
use super::holdings::{Holdings, ServiceList, purpose_of};
use super::lists_by_purpose::ListsByPurpose;
use super::progress::{Progress, Updated};
use crate::desired::{
    self, DesiredFrontend, DesiredPort, DesiredService, Label, PORT_RANGES, Scope, SmallSet,
};
use crate::model::{Cluster, EndpointChanges, ObjectName, Problem, Protocol};
use crate::piece::{Full, Piece};
use crate::ruleset::number::{Flags, ListId, Route, SizeClass};
use crate::ruleset::{Frontend, ListUse};

/// A service during its update.
struct ServiceUpdate<'a> {
    diff: &'a mut Diff,
    name: &'a ObjectName,
    cluster: &'a Cluster,
    desired: &'a DesiredService,
    /// The current holdings and claims.
    holdings: Holdings,
    /// The lists that the service has already.
    former_lists: ListsByPurpose,
    /// The lists that the service needs.
    lists: ListsByPurpose,
    updated: Updated,
}

impl Diff {
    /// Updates a service as a whole.
    pub(super) fn update_whole(
        &mut self,
        name: &ObjectName,
        context: Context<'_>,
        piece: &mut Piece,
    ) -> Updated {
        let cluster = context.cluster;
        let left_out = self.excluded.contains(name);
        let fresh = match context.rendered {
            Some(_) if !left_out => None,
            Some(_) | None => Some(self.desired_service(name, context)),
        };
        // One of both is there.
        let Some(desired) = fresh.as_ref().or(context.rendered) else { return Updated::default() };
        self.counts.note(name, desired);
        let is_postponed =
            context.may_postpone && desired.ports.iter().any(|port| self.may_be_of_others(port));
        let ports = desired.ports.iter();
        let compared = ports.map(|it| it.endpoints(Scope::Cluster).len() + it.ranges.len()).sum();
        let holdings = self.services.get(name).map(|it| it.unpack()).unwrap_or_default();
        let mut update = ServiceUpdate {
            diff: self,
            name,
            cluster,
            desired,
            former_lists: holdings.lists.iter().copied().collect(),
            holdings,
            lists: ListsByPurpose::default(),
            updated: Updated::default(),
        };
        let progress = if update.waits_for_lists() {
            Progress::Unread
        } else if is_postponed {
            // A frontend was found with the label of another port. Only the claims are recorded
            // now: once all claims are known, the frontend changes its holder once.
            update.diff.only_claimed.insert(name.clone());
            update.claim();
            Progress::Postponed
        } else {
            update.diff.only_claimed.remove(name);
            update.run(piece).unwrap_or(Progress::Partial)
        };
        let ServiceUpdate { holdings, mut updated, .. } = update;
        match progress {
            Progress::Complete => updated.problems.extend(desired.problems.iter().cloned()),
            Progress::Partial => updated.rendered = fresh,
            Progress::AfterCommit | Progress::Postponed | Progress::Unread => {}
        }
        if holdings.is_empty() {
            self.services.remove(name);
        } else {
            self.services.insert(name, holdings.pack());
        }
        Updated { progress, compared, ..updated }
    }

    /// Returns what a service should have; nothing if it is gone or left out.
    pub(super) fn desired_service(
        &self,
        name: &ObjectName,
        context: Context<'_>,
    ) -> DesiredService {
        let Context { cluster, timeouts, slots, ranges, .. } = context;
        let view = cluster.service(name).filter(|_| !self.excluded.contains(name));
        let grants = slots.of(name).with_ranges(ranges, name);
        let render = |view| desired::render(&view, timeouts.of(name), grants);
        view.map(render).unwrap_or_default()
    }

    /// Returns whether a frontend of the port was found with the label of another port.
    fn may_be_of_others(&self, port: &DesiredPort) -> bool {
        let mut states = port.frontends.iter().filter_map(|it| self.frontends.get(&it.frontend));
        let has_only_claimed = |name: &ObjectName| self.only_claimed.contains(name);
        states.any(|state| state.may_be_of_another(&port.label, has_only_claimed))
    }

    /// Updates a few endpoints of a service, if nothing else of it depends on them. Returns `None`
    /// if the service must be updated as a whole.
    pub(super) fn patch(
        &mut self,
        name: &ObjectName,
        changes: &EndpointChanges,
        cluster: &Cluster,
        piece: &mut Piece,
    ) -> Option<Progress> {
        let ports = cluster.ports_served_by_all_endpoints(name)?;
        let holdings = self.services.get(name)?.unpack();
        let is_served =
            Family::ALL.map(|family| holdings.frontends.iter().any(|it| it.family() == family));
        let lists: ListsByPurpose = holdings.lists.iter().copied().collect();
        let mut patches = SmallVec::<[(ServiceList, Label, Patch); 2]>::new();
        for port in ports {
            // UDP needs a whole update: established flows depend on all serving endpoints.
            if port.protocol == Protocol::Udp {
                return None;
            }
            for family in Family::ALL {
                let endpoints = || {
                    let endpoints = changes.of_port(port)?;
                    Some(endpoints.filter(move |(it, _)| Family::of(it.address) == family))
                };
                if !is_served[family.index()] || endpoints()?.next().is_none() {
                    continue;
                }
                let purpose = (family, ListUse::Port(port.protocol), port.port, Scope::Cluster);
                let list = lists.find(purpose, false).or_else(|| lists.find(purpose, true))?;
                let patch = Patch::new(self.lists[family.index()].get(list.id)?, endpoints()?)?;
                if !patch.is_nothing() {
                    patches.push((list, Label::new(name, port), patch));
                }
            }
        }
        let elements: usize = patches.iter().map(|(_, _, patch)| patch.elements()).sum();
        if piece.fits_limit(elements + 4 * holdings.frontends.len()).is_err() {
            return Some(Progress::Partial);
        }
        self.serving.have_others_changed |= !patches.is_empty();
        let mut resized = Resized::new();
        for (ServiceList { family, id, .. }, label, patch) in patches {
            let mut list = self.lists[family.index()].open(id)?;
            let former = list.len();
            list.edit(patch.slots, patch.length, piece);
            let size = SizeClass::of(patch.length);
            if SizeClass::of(former) != size {
                self.lists[family.index()].size_classes.insert(size);
                resized.push(((family, id), (size, label)));
            }
        }
        if !resized.is_empty() {
            resized.sort_unstable_by_key(|(list, _)| *list);
            self.resize_routes(name, &holdings.frontends, &resized, piece);
        }
        Some(Progress::Complete)
    }
}

/// Lists with a new size class, with the label of their port; sorted.
type Resized = SmallVec<[((Family, ListId), (SizeClass, Label)); 1]>;

impl Diff {
    /// Sets the size classes in the routes to resized lists.
    fn resize_routes(
        &mut self,
        name: &ObjectName,
        frontends: &[Frontend],
        resized: &Resized,
        piece: &mut Piece,
    ) {
        for frontend in frontends {
            if self.frontends.holder(frontend) != Some(name) {
                continue;
            }
            let list = |route: Route| {
                let key = (frontend.family(), route.list()?);
                let index = resized.binary_search_by_key(&key, |(list, _)| *list).ok()?;
                Some(&resized[index].1)
            };
            let state = self.frontends.get(frontend);
            let Some((_, label)) = state.and_then(|it| it.routes().find_map(list)) else {
                continue;
            };
            let resize = |route: Route| match (list(route), route.list()) {
                (Some((size, _)), Some(id)) => Route::new(id, None, *size, route.flags()),
                (None, _) | (_, None) => route,
            };
            self.change(*frontend, piece, |change, state| change.resize(state, resize, label));
        }
    }
}

impl ServiceUpdate<'_> {
    fn run(&mut self, piece: &mut Piece) -> Result<Progress, Full> {
        let desired = self.desired;
        let won = self.claim();
        for port in &desired.ports {
            self.fill_lists(port, &|frontend| won.contains(frontend), piece)?;
        }
        let mut progress = Progress::Complete;
        for port in &desired.ports {
            for it in port.frontends.iter().filter(|it| won.contains(&it.frontend)) {
                piece.fits_limit(FRONTEND_ELEMENTS)?;
                let state = DesiredState::of(&self.lists, port, it);
                self.diff.note_ranges(it.frontend, state.blocks);
                if self.diff.install(it.frontend, state, piece)? == Progress::AfterCommit {
                    progress = Progress::AfterCommit;
                }
            }
        }
        self.install_members(piece)?;
        self.release_frontends(piece)?;
        self.cut_lists(piece)?;
        self.disown_lists();
        self.holdings.frontends = desired.frontends().map(|it| it.frontend).collect();
        self.holdings.members.clone_from(&desired.members);
        self.holdings.lists = std::mem::take(&mut self.lists).into_lists();
        for port in &desired.ports {
            let Some(serving) = &port.serving else {
                self.diff.serving.have_others_changed = true;
                continue;
            };
            for it in port.frontends.iter().filter(|it| won.contains(&it.frontend)) {
                self.diff.serving.set_desired(it.frontend, Some(serving.clone()));
            }
        }
        Ok(progress)
    }

    /// Claims all frontends; returns those that the service wins.
    fn claim(&mut self) -> SmallSet<Frontend> {
        let mut won = SmallSet::default();
        let former: SmallSet<_> = self.holdings.frontends.iter().copied().collect();
        for DesiredFrontend { frontend, .. } in self.desired.frontends() {
            let claimed = &mut self.diff.frontends;
            let precedence = |name: &ObjectName| claims::precedence(self.cluster, name, frontend);
            if claimed.claim(*frontend, self.name, precedence, &mut self.updated) {
                won.insert(*frontend);
            }
            if !former.contains(frontend) {
                self.holdings.frontends.push(*frontend);
            }
        }
        won
    }

    /// Puts the endpoints of a port into lists with slots for all of them.
    fn fill_lists(
        &mut self,
        port: &DesiredPort,
        is_won: &impl Fn(&Frontend) -> bool,
        piece: &mut Piece,
    ) -> Result<(), Full> {
        for scope in Scope::ALL {
            let mut won = port.frontends.iter().filter(|it| is_won(&it.frontend));
            let is_used = won.any(|it| it.traffic.uses(scope));
            if !is_used || port.endpoints(scope).is_empty() {
                continue;
            }
            let Some(id) = self.list(port, scope) else { continue };
            let (family, of) = (port.family, port.list_use());
            let list = ServiceList { family, of, port: port.port, scope, id };
            // The port ranges of all protocols have one.
            if !self.lists.contains(&list) {
                self.lists.push(list);
            }
            if !self.former_lists.contains(&list) {
                self.former_lists.push(list);
                self.holdings.lists.push(list);
            }
            self.diff.lists[family.index()].size_classes.insert(port.size(scope));
            let route = route(&self.lists, port, scope, Flags::default());
            let Some(mut list) = self.diff.lists[family.index()].open(id) else { continue };
            list.list.is_owned = true;
            list.fill(port.endpoints(scope), port.slots(scope), piece)?;
            list.set_route(route, piece);
        }
        Ok(())
    }

    /// Returns the list of a scope: a plain one if no number is free for one with affinity.
    fn list(&mut self, port: &DesiredPort, scope: Scope) -> Option<ListId> {
        if port.timeout.is_some() {
            if let Some(list) = self.list_of_kind(port, scope, true) {
                return Some(list);
            }
            if port.list_use() == ListUse::Ranges {
                self.add_problem(port, PORT_RANGES, "no number is free for its endpoint list");
                return None;
            }
            let message = "no list number with affinity is free; it works without affinity";
            self.add_problem(port, "spec.sessionAffinity", message);
        }
        let list = self.list_of_kind(port, scope, false);
        if list.is_none() {
            self.add_problem(port, "spec.ports", "no number is free for its endpoint list");
        }
        list
    }

    /// Returns the list of the service, or one found with its frontends, or a new one.
    fn list_of_kind(
        &mut self,
        port: &DesiredPort,
        scope: Scope,
        has_affinity: bool,
    ) -> Option<ListId> {
        let known = self.known_list(port, scope, has_affinity);
        known.or_else(|| self.diff.lists[port.family.index()].add(port.list_use(), has_affinity))
    }

    /// Returns the list of the service, or one found with its frontends.
    fn known_list(&self, port: &DesiredPort, scope: Scope, has_affinity: bool) -> Option<ListId> {
        let lists = &self.diff.lists[port.family.index()];
        let own = self.former_lists.find(purpose_of(port, scope), has_affinity);
        let exists = |id: &ListId| lists.get(*id).is_some_and(|it| it.of == port.list_use());
        if let Some(own) = own.map(|list| list.id).filter(exists) {
            return Some(own);
        }
        let can_adopt = |list: &ListId| {
            // A list that the service already holds is that of another scope.
            let is_own = self.former_lists.has(port.family, *list);
            !is_own && lists.can_adopt(*list, port.list_use(), has_affinity)
        };
        self.found_list(port, scope).filter(can_adopt)
    }

    /// Returns whether the service must wait until more lists are read: those that its routes name,
    /// which are read next, or all of them if it needs a new number.
    fn waits_for_lists(&mut self) -> bool {
        if self.diff.knows_all_lists() {
            return false;
        }
        let frontends = self.desired.frontends().map(|it| &it.frontend);
        let mut waits = false;
        for frontend in frontends.chain(&self.holdings.frontends) {
            let unread = &mut self.diff.lists[frontend.family().index()].unread;
            let routes = self.diff.frontends.get(frontend).into_iter().flat_map(|it| it.routes());
            for list in routes.filter_map(Route::list) {
                waits |= unread.hurry(list);
            }
        }
        waits || self.desired.ports.iter().any(|port| self.needs_new_list(port))
    }

    /// Returns whether a port may need a new list of a table whose lists are not all read.
    fn needs_new_list(&self, port: &DesiredPort) -> bool {
        let lists = &self.diff.lists[port.family.index()];
        let is_of_session = port.timeout.is_some() && !lists.are_sessions_full();
        let mut scopes = Scope::ALL.into_iter().filter(|scope| {
            !port.endpoints(*scope).is_empty()
                && port.frontends.iter().any(|it| it.traffic.uses(*scope))
        });
        !lists.unread.have_told_all()
            && !is_of_session
            && scopes.any(|scope| self.known_list(port, scope, false).is_none())
    }

    fn add_problem(&mut self, port: &DesiredPort, field: &str, message: &str) {
        self.updated.problems.push(Problem::of_port(self.name, port.port, field, message));
    }

    /// Returns the list found with a frontend of the port's label.
    fn found_list(&self, port: &DesiredPort, scope: Scope) -> Option<ListId> {
        port.frontends.iter().find_map(|desired| {
            let state = self.diff.frontends.get(&desired.frontend)?;
            // Another service may have had the address.
            if !state.has_label(&port.label) {
                return None;
            }
            let (route, is_local) = match (desired.traffic, scope) {
                // An internal route that the route does not lead to may be another service's.
                (traffic, Scope::Cluster) if traffic.has_two_routes() => {
                    let is_in_use = state.route.is_some_and(|route| route.flags().local);
                    (state.internal().filter(|_| is_in_use), false)
                }
                (traffic, _) => (state.route, traffic.has_two_routes()),
            };
            let route = route.filter(|route| route.flags().local == is_local);
            route.filter(|_| desired.traffic.uses(scope))?.list()
        })
    }

    fn install_members(&mut self, piece: &mut Piece) -> Result<(), Full> {
        let desired = &self.desired.members;
        let former: SmallSet<_> = self.holdings.members.iter().copied().collect();
        for member in desired {
            piece.fits_limit(1)?;
            if former.contains(member) {
                self.diff.members.install(*member, piece)
            } else {
                self.diff.members.share(*member, piece);
                self.holdings.members.push(*member);
            }
        }
        let desired: SmallSet<_> = desired.iter().copied().collect();
        let mut result = Ok(());
        self.holdings.members.retain(|member| {
            if desired.contains(member) || result.is_err() {
                return true;
            }
            result = piece.fits_limit(1);
            if result.is_ok() {
                self.diff.members.unshare(*member, piece);
            }
            result.is_err()
        });
        result
    }

    /// Releases the frontends that are no longer desired.
    fn release_frontends(&mut self, piece: &mut Piece) -> Result<(), Full> {
        let desired: SmallSet<_> = self.desired.frontends().map(|it| it.frontend).collect();
        let mut result = Ok(());
        self.holdings.frontends.retain(|frontend| {
            if desired.contains(frontend) || result.is_err() {
                return true;
            }
            result = piece.fits_limit(FRONTEND_ELEMENTS);
            if result.is_err() {
                return true;
            }
            let precedence = |name: &ObjectName| claims::precedence(self.cluster, name, frontend);
            // The installed elements stay until the next claimant is updated.
            let claimed = &mut self.diff.frontends;
            if claimed.release(frontend, self.name, precedence, &mut self.updated) {
                self.diff.serving.set_desired(*frontend, None);
                // Nothing is added, and source ranges are deleted later, so all of it fits.
                let _ = self.diff.install(*frontend, DesiredState::default(), piece);
            }
            false
        });
        result
    }

    /// Deletes slots that no route uses any more.
    fn cut_lists(&mut self, piece: &mut Piece) -> Result<(), Full> {
        for (port, scope) in self.desired.ports.iter().flat_map(|it| Scope::ALL.map(|of| (it, of)))
        {
            let purpose = purpose_of(port, scope);
            let lists = [false, true].map(|has_affinity| self.lists.find(purpose, has_affinity));
            for list in lists.into_iter().flatten() {
                let open = self.diff.lists[list.family.index()].open(list.id);
                let Some(mut list) = open else { continue };
                list.cut(port.slot_count(scope), piece)?;
                list.forget_endpoints(piece)?;
            }
        }
        Ok(())
    }

    fn disown_lists(&mut self) {
        for list in std::mem::take(&mut self.holdings.lists) {
            if !self.lists.contains(&list) {
                self.diff.disown(list.family, list.id);
            }
        }
    }
}

impl DesiredService {
    fn frontends(&self) -> impl Iterator<Item = &DesiredFrontend> {
        self.ports.iter().flat_map(|port| &port.frontends)
    }
}
