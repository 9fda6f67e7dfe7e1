//! The installed elements of one service, and their correction after a lookup.
//!
//! A correction changes the installed state. The next update of the service sends the difference,
//! as usual.

use std::collections::BTreeSet;
use std::hash::Hash;

use ahash::HashSet;
use smallvec::SmallVec;

use super::assignment::assign;
use super::both_tables::{Context, Diff};
use super::desired_state::DesiredState;
use super::finding::{Changed, ElementId, Finding, InstalledElement};
use super::frontends::FrontendState;
use super::holdings::{Holdings, ServiceList, purpose_of};
use super::list::List;
use super::lists::Lists;
use super::lists_by_purpose::ListsByPurpose;
use super::packed_map::sorted;
use super::unused::Unused;
use crate::desired::{DesiredPort, Scope, SmallSet};
use crate::model::ObjectName;
use crate::ruleset::number::{ListId, Route};
use crate::ruleset::{Frontend, ListUse, Member, SetId, Subject, TableElement};

impl Diff {
    /// Calls `each` for every installed element of a service. The elements of no service are the
    /// addresses for node ports and the ended endpoints.
    pub fn each_installed_element(
        &self,
        service: Option<&ObjectName>,
        each: &mut dyn FnMut(InstalledElement),
    ) {
        let Some(name) = service else {
            let member = |ip| InstalledElement::member(Member::NodePortIp(ip));
            self.node_port_ips.installed().map(member).for_each(&mut *each);
            self.ended.installed().map(InstalledElement::ended).for_each(each);
            return;
        };
        let Some(holdings) = self.services.get(name) else { return };
        let Holdings { frontends, members, lists } = holdings.unpack();
        for frontend in frontends {
            if let Some(state) = self.state_of(name, &frontend) {
                state.each_installed_element(frontend, each);
            }
        }
        for member in members.into_iter().filter(|it| self.members.is_installed(it)) {
            each(InstalledElement::member(member));
        }
        for list in lists {
            self.lists[list.family.index()].each_installed_element(list.id, each);
        }
    }

    /// Returns the element that is installed at a place, of a service or of none.
    pub fn installed_at(&self, place: &ElementId) -> Option<InstalledElement> {
        if let Some(member) = place.member() {
            let is_installed = match member {
                Member::NodePortIp(ip) => self.node_port_ips.is_installed(ip),
                Member::ClusterIp(_) | Member::Hairpin(..) | Member::RangeHairpin(_) => {
                    self.members.is_installed(&member)
                }
            };
            return is_installed.then(|| InstalledElement::member(member));
        }
        if let Some(target) = place.ended() {
            return self.ended.is_installed(&target).then(|| InstalledElement::ended(target));
        }
        let mut installed = None;
        let mut each = |it| {
            if ElementId::of_element(&it) == *place {
                installed = Some(it);
            }
        };
        match place.subject()? {
            (family, Subject::Frontend(frontend)) => {
                let state = self.frontends.get(&frontend)?;
                // There may be many.
                if let Some(range) = place.source_range() {
                    let element = TableElement::SourceRange(frontend, range);
                    let found = InstalledElement { family, element, label: 0 };
                    return state.has_range(&range).then_some(found);
                }
                state.each_installed_element(frontend, &mut each);
            }
            (family, Subject::List(list)) => {
                self.lists[family.index()].element_at(list, place).into_iter().for_each(each);
            }
        }
        installed
    }

    /// Returns whether the finding is not the installed element.
    pub fn differs(&self, Changed { place, finding }: &Changed) -> bool {
        let installed = self.installed_at(place);
        *finding != installed.map_or(Finding::Missing, |it| Finding::Present(Some(it)))
    }

    /// Returns the services that need one of these members. Searches all services if there is one.
    pub fn services_with(&self, members: &HashSet<Member>) -> BTreeSet<&ObjectName> {
        if members.is_empty() {
            BTreeSet::new()
        } else {
            self.services.with(|it| it.unpack().members.iter().any(|it| members.contains(it)))
        }
    }

    /// Adopts an element found in the kernel that is not installed, unless its list or frontend is
    /// unknown. The next update deletes it, or leaves it if it is desired.
    pub fn adopt(&mut self, found: InstalledElement) -> bool {
        match found.element {
            TableElement::Endpoint(list, protocol, ..) => {
                let list = self.lists[found.family.index()].get(list);
                list.is_some_and(|list| list.of == ListUse::Port(protocol))
                    && self.correct(found, Finding::Present(Some(found)))
            }
            TableElement::Route(frontend, ..)
            | TableElement::Unserved(frontend, ..)
            | TableElement::Internal(frontend, _)
            | TableElement::Restricted(frontend)
            | TableElement::SourceRange(frontend, _)
            | TableElement::SourceRefusals(frontend)
            | TableElement::PortBlock(frontend, _) => {
                if self.frontends.get(&frontend).is_none() {
                    return false;
                }
                if self.frontends.holder(&frontend).is_none() {
                    self.unused.push_front((Unused::Unclaimed(frontend), None));
                    // Its flows are stale once it is deleted.
                    self.serving.forget(&frontend);
                }
                self.correct(found, Finding::Present(Some(found)))
            }
            TableElement::Member(Member::NodePortIp(ip)) => {
                self.node_port_ips.find(ip);
                true
            }
            TableElement::Member(member) => {
                self.members.find(member);
                // It is deleted if no service needs it.
                self.unused.push_front((Unused::Member(member), None));
                true
            }
            TableElement::Ended(target, ..) => {
                self.ended.find(target, true);
                true
            }
            TableElement::AffinitySlot(..)
            | TableElement::AffinityEndpoint(..)
            | TableElement::RangeEndpoint(..)
            | TableElement::AffinityList(..) => false,
        }
    }

    /// Drops the unused lists that installed routes name: the step that replaced these routes was
    /// not applied.
    pub fn drop_named_unused_lists(&mut self) {
        let lists = &self.lists;
        self.unused.retain(|(unused, _)| match unused {
            Unused::List(family, id) => lists[family.index()].get(*id).is_some_and(List::is_unused),
            Unused::Frontend(_) | Unused::Unclaimed(_) | Unused::Member(_) => true,
        });
    }

    /// Drops pending changes of the endpoints that serve the UDP frontends of a service. Its next
    /// update repeats them.
    pub fn forget_serving(&mut self, service: &ObjectName) {
        let Some(holdings) = self.services.get(service) else { return };
        holdings.unpack().frontends.iter().for_each(|it| self.serving.forget(it));
    }

    /// Returns whether the installed elements of a service are the desired ones.
    pub fn is_as_desired(&self, name: &ObjectName, context: Context<'_>) -> bool {
        let desired = self.desired_service(name, context);
        let holdings = self.services.get(name).map(|it| it.unpack()).unwrap_or_default();
        let lists: ListsByPurpose = holdings.lists.iter().copied().collect();
        let frontends: usize = desired.ports.iter().map(|it| it.frontends.len()).sum();
        are_same(&holdings.members, &desired.members)
            && holdings.frontends.len() == frontends
            && desired.ports.iter().all(|port| self.is_port_as_desired(name, port, &lists))
    }

    fn is_port_as_desired(
        &self,
        name: &ObjectName,
        port: &DesiredPort,
        lists: &ListsByPurpose,
    ) -> bool {
        // Without a free number for a list with affinity, the port has a plain list.
        let may_be_plain =
            port.timeout.is_none() || self.lists[port.family.index()].are_sessions_full();
        let are_lists_as_desired = Scope::ALL.into_iter().all(|scope| {
            let purpose = purpose_of(port, scope);
            let (plain, with_affinity) = (lists.find(purpose, false), lists.find(purpose, true));
            let mut found = plain.into_iter().chain(with_affinity);
            (may_be_plain || plain.is_none()) && found.all(|list| self.holds(list, port, scope))
        });
        are_lists_as_desired
            && port.frontends.iter().all(|it| match self.state_of(name, &it.frontend) {
                Some(state) => state.is_at(DesiredState::of(lists, port, it)),
                // Another service has the frontend.
                None => self.frontends.holder(&it.frontend).is_some(),
            })
    }

    /// Returns whether the slots of a list hold exactly the endpoints of a scope.
    fn holds(&self, list: ServiceList, port: &DesiredPort, scope: Scope) -> bool {
        let installed = self.lists[list.family.index()].get(list.id);
        installed.is_some_and(|list| {
            let found: Vec<_> = list.iter().collect();
            *assign(&found, port.endpoints(scope), port.slots(scope)) == *found
        })
    }

    fn state_of(&self, name: &ObjectName, frontend: &Frontend) -> Option<&FrontendState> {
        self.frontends.get(frontend).filter(|_| self.frontends.holder(frontend) == Some(name))
    }

    /// Records the finding in place of an installed element. Returns whether the next update then
    /// writes the element again; if not, the tables must be read back.
    pub fn correct(&mut self, installed: InstalledElement, finding: Finding) -> bool {
        let found = match finding {
            Finding::Missing => None,
            Finding::Present(Some(found)) => Some(found),
            Finding::Present(None) => return false,
        };
        let lists = &mut self.lists[installed.family.index()];
        match installed.element {
            TableElement::Route(frontend, ..)
            | TableElement::Unserved(frontend, ..)
            | TableElement::Internal(frontend, _)
            | TableElement::Restricted(frontend)
            | TableElement::SourceRange(frontend, _)
            | TableElement::SourceRefusals(frontend)
            | TableElement::PortBlock(frontend, _) => {
                return self.correct_frontend(frontend, installed.element, found);
            }
            // An element without data that is there does not differ.
            TableElement::Member(_) | TableElement::Ended(..) if found.is_some() => return false,
            TableElement::Member(Member::NodePortIp(address)) => self.node_port_ips.lose(address),
            TableElement::Member(member) => self.members.lose(member),
            TableElement::Ended(target, ..) => self.ended.find(target, false),
            TableElement::Endpoint(list, _, slot, _) => {
                let Some(list) = lists.get_mut(list) else { return true };
                match found.map(|it| it.element) {
                    Some(TableElement::Endpoint(_, _, _, target)) => {
                        list.put(slot as usize, target)
                    }
                    None => list.empty(slot as usize),
                    // Not an element of this set.
                    Some(_) => return false,
                }
            }
            // Packets also write the numbers of endpoints with affinity.
            TableElement::AffinitySlot(..)
            | TableElement::AffinityEndpoint(..)
            | TableElement::RangeEndpoint(..)
            | TableElement::AffinityList(..) => return false,
        }
        true
    }

    /// As [`Diff::correct`], for an element of a frontend.
    fn correct_frontend(
        &mut self,
        frontend: Frontend,
        installed: TableElement<'_>,
        found: Option<InstalledElement>,
    ) -> bool {
        let family = frontend.family();
        let (lists, unused) = (&mut self.lists[family.index()], &mut self.unused);
        let present = self.epochs.present;
        self.frontends.change(frontend, |state| {
            let former: SmallVec<[Route; 2]> = state.routes().collect();
            let is_corrected = state.correct(installed, found);
            state.routes().filter_map(Route::list).for_each(|it| lists.add_reference(it));
            for list in former.into_iter().filter_map(Route::list) {
                // The list of a frontend without a holder has no owner, and this may have been the
                // last route to it.
                if lists.remove_reference(list) {
                    unused.push_back((Unused::List(family, list), Some(present)));
                }
            }
            is_corrected
        })
    }
}

impl Lists {
    /// Calls `each` for every installed element of a list.
    fn each_installed_element(&self, id: ListId, each: &mut dyn FnMut(InstalledElement)) {
        let Some(list) = self.get(id) else { return };
        let family = self.family();
        let mut give = |element| each(InstalledElement { family, element, label: 0 });
        let slots = (0..).zip(list.iter()).filter_map(|(slot, target)| Some((slot, target?)));
        let Some(affinity) = self.affinity(id) else {
            // Lists of port ranges all have affinity.
            let ListUse::Port(protocol) = list.of else { return };
            slots.for_each(|(slot, it)| give(TableElement::Endpoint(id, protocol, slot, it)));
            return;
        };
        for (slot, target) in slots {
            if let Some(endpoint) = affinity.endpoints.get(&target) {
                give(TableElement::AffinitySlot(id, slot, *endpoint));
            }
        }
        for (target, endpoint) in sorted(affinity.endpoints.iter()) {
            give(TableElement::of_session(id, list.of, *endpoint, *target));
        }
        if let Some(route) = affinity.route {
            give(TableElement::AffinityList(id, route));
        }
    }

    /// Returns the installed element of a list whose key ends as that of a place.
    fn element_at(&self, id: ListId, place: &ElementId) -> Option<InstalledElement> {
        let list = self.get(id)?;
        // The slot, or the number of an endpoint.
        let number = u32::from_ne_bytes(*place.key.as_bytes().last_chunk()?);
        let target = list.slot(number as usize);
        let element = match self.affinity(id) {
            None => match list.of {
                ListUse::Port(protocol) => TableElement::Endpoint(id, protocol, number, target?),
                ListUse::Ranges => return None,
            },
            Some(affinity) if place.set == SetId::AffinitySlots => {
                TableElement::AffinitySlot(id, number, *affinity.endpoints.get(&target?)?)
            }
            Some(affinity)
                if matches!(place.set, SetId::AffinityEndpoints | SetId::RangeEndpoints) =>
            {
                let (_, number) = ListId::from_endpoint(number)?;
                let target = affinity.targets.get(&number)?;
                TableElement::of_session(id, list.of, number, *target)
            }
            Some(affinity) => TableElement::AffinityList(id, affinity.route?),
        };
        Some(InstalledElement { family: self.family(), element, label: 0 })
    }
}

/// Returns whether both have the same items, each once.
fn are_same<T: Copy + Eq + Hash>(some: &[T], others: &[T]) -> bool {
    let found: SmallSet<T> = some.iter().copied().collect();
    some.len() == others.len() && others.iter().all(|it| found.contains(it))
}
