//! The elements of one table that was read, as frontends and lists.

use std::collections::BTreeMap;
use std::time::Duration;

use ahash::HashMap;
use nft::{Element, Family};

use super::both_tables::Diff;
use super::finding::InstalledElement;
use super::frontends::{FrontendState, Rare};
use super::holdings::ServiceList;
use super::list::List;
use super::lists::Affinity;
use super::packed_map::PackedMap;
use super::unread::{AT_A_TIME, AT_ONCE, ReadLists, UnreadLists};
use crate::model::{Protocol, Target};
use crate::ruleset::number::{EndpointId, ListId};
use crate::ruleset::{Frontend, ListUse, Member, NamedList, SetId, TableElement};

/// The elements of one table.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundElements {
    family: Family,
    frontends: PackedMap<Frontend, FrontendState>,
    lists: HashMap<ListId, List>,
    affinity: HashMap<ListId, Affinity>,
    members: Vec<Member>,
    /// Ended endpoints, with the time after which the kernel forgets them.
    ended: Vec<(Target, Duration)>,
    unread: UnreadLists,
    /// Elements that contradict others, or that this program never writes.
    strays: BTreeMap<SetId, Vec<Element>>,
}

impl FoundElements {
    /// Returns an empty table of a family.
    pub fn new(family: Family) -> Self {
        Self {
            family,
            frontends: PackedMap::default(),
            lists: HashMap::default(),
            affinity: HashMap::default(),
            members: Vec::new(),
            ended: Vec::new(),
            unread: UnreadLists::default(),
            strays: BTreeMap::new(),
        }
    }

    /// Returns the family of the table.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Adds an element. Endpoints of lists with affinity must come before the slots that name them.
    /// A frontend has the label that was added last.
    pub fn add(&mut self, element: &TableElement<'_>) {
        match *element {
            TableElement::Route(frontend, ..)
            | TableElement::Unserved(frontend, ..)
            | TableElement::Internal(frontend, _)
            | TableElement::Restricted(frontend)
            | TableElement::SourceRange(frontend, _)
            | TableElement::SourceRefusals(frontend)
            | TableElement::PortBlock(frontend, _) => {
                let InstalledElement { element, label, .. } =
                    InstalledElement::found(self.family, element);
                self.frontends.get_or_default(frontend).find(&element, label);
            }
            TableElement::Member(member) => self.members.push(member),
            TableElement::Endpoint(list, protocol, slot, target) => {
                if !self.put(list, protocol, slot, target) {
                    self.add_stray(element.set(), element.to_key());
                }
            }
            TableElement::AffinityEndpoint(list, protocol, id, target) => {
                if !self.put_endpoint(list, ListUse::Port(protocol), target, id) {
                    self.add_stray(element.set(), element.to_key());
                }
            }
            TableElement::RangeEndpoint(list, id, address) => {
                if !self.put_endpoint(list, ListUse::Ranges, Target::of_ranges(address), id) {
                    self.add_stray(element.set(), element.to_key());
                }
            }
            TableElement::AffinitySlot(list, slot, id) => {
                let target = self.affinity.get(&list).and_then(|it| it.targets.get(&id));
                match (self.lists.get_mut(&list), target) {
                    (Some(list), Some(target)) => list.put(slot as usize, *target),
                    (None, _) | (_, None) => self.add_stray(element.set(), element.to_key()),
                }
            }
            TableElement::AffinityList(list, route) => {
                self.affinity.entry(list).or_default().route = Some(route);
            }
            TableElement::Ended(target, left, _) => self.ended.push((target, left)),
        }
    }

    /// Adds an element to be deleted.
    pub fn add_stray(&mut self, set: SetId, element: Element) {
        self.strays.entry(set).or_default().push(element);
    }

    /// Adds an endpoint of a list with affinity; returns whether the list is for such packets, and the
    /// endpoint has no other number.
    fn put_endpoint(&mut self, list: ListId, of: ListUse, target: Target, id: EndpointId) -> bool {
        let known = self.lists.entry(list).or_insert(List::new(self.family, of));
        let affinity = self.affinity.entry(list).or_default();
        known.of == of && affinity.adopt_endpoint(target, id)
    }

    /// Puts an endpoint into a slot of a list; returns whether the list has this protocol.
    pub fn put(&mut self, list: ListId, protocol: Protocol, slot: u32, target: Target) -> bool {
        let of = ListUse::Port(protocol);
        let list = self.lists.entry(list).or_insert(List::new(self.family, of));
        let is_of_protocol = list.of == of;
        if is_of_protocol {
            list.put(slot as usize, target);
        }
        is_of_protocol
    }

    /// Drops the elements of a set that is read again from its start.
    pub fn forget(&mut self, set: SetId) {
        self.strays.remove(&set);
        match set {
            SetId::Endpoints => {
                self.unread = UnreadLists::default();
                self.lists.retain(|list, _| list.has_affinity());
            }
            SetId::AffinitySlots => {
                let lists = self.lists.iter_mut().filter(|(id, _)| id.has_affinity());
                lists.for_each(|(_, list)| list.resize(0));
            }
            SetId::AffinityEndpoints | SetId::RangeEndpoints => {
                let of_ranges = set == SetId::RangeEndpoints;
                let affinity = &mut self.affinity;
                self.lists.retain(|id, list| {
                    let is_read_again =
                        id.has_affinity() && (list.of == ListUse::Ranges) == of_ranges;
                    if is_read_again && let Some(affinity) = affinity.get_mut(id) {
                        affinity.endpoints.clear();
                        affinity.targets.clear();
                    }
                    !is_read_again
                });
            }
            SetId::AffinityLists => self.affinity.values_mut().for_each(|it| it.route = None),
            SetId::ClusterIps
            | SetId::NodePortIps
            | SetId::HairpinConnections
            | SetId::RangeHairpins => {
                self.members.retain(|member| TableElement::Member(*member).set() != set);
            }
            SetId::Services | SetId::NodePorts | SetId::RangeServices => {
                self.states_of(set).for_each(|state| state.route = None);
            }
            SetId::InternalServices | SetId::InternalNodePorts | SetId::InternalRangeServices => {
                self.rares_of(set).for_each(|rare| rare.internal = None);
            }
            SetId::UnservedServices | SetId::UnservedNodePorts | SetId::UnservedRangeServices => {
                self.rares_of(set).for_each(|rare| rare.unserved = None);
            }
            SetId::RestrictedServices | SetId::RestrictedRangeServices => {
                self.rares_of(set).for_each(|rare| rare.is_restricted = false)
            }
            SetId::PortRanges => self.rares_of(set).for_each(|rare| rare.blocks.clear()),
            SetId::SourceRanges | SetId::RangeSources => {
                self.rares_of(set).for_each(|rare| rare.ranges.clear())
            }
            SetId::SourceRefusals | SetId::RangeSourceRefusals => {
                self.rares_of(set).for_each(|rare| rare.counts_refusals = false);
            }
            SetId::AffinityClients => {}
            SetId::EndedEndpoints => self.ended.clear(),
        }
    }

    /// Returns the frontends whose elements belong to the kind of a set: node ports or addresses.
    fn states_of(&mut self, set: SetId) -> impl Iterator<Item = &mut FrontendState> {
        let in_set = move |it: &Frontend| match it {
            Frontend::Address { .. } => !set.is_of_node_ports() && !set.is_of_ranges(),
            Frontend::NodePort { .. } => set.is_of_node_ports(),
            Frontend::Ranges { .. } => set.is_of_ranges(),
        };
        self.frontends.iter_mut().filter(move |(it, _)| in_set(it)).map(|(_, state)| state)
    }

    fn rares_of(&mut self, set: SetId) -> impl Iterator<Item = &mut Rare> {
        self.states_of(set).filter_map(|state| state.rare.as_deref_mut())
    }

    /// Returns the plain lists that routes name, sorted.
    pub fn plain_lists(&self) -> BTreeMap<ListId, NamedList> {
        let mut lists = BTreeMap::new();
        for (frontend, state) in self.frontends.iter() {
            for route in state.routes() {
                if let Some(list) = route.list().filter(|list| !list.has_affinity()) {
                    let (protocol, size) = (frontend.protocol(), route.size());
                    let named = NamedList { list, protocol, size };
                    // Routes that contradict each other are those of another program.
                    let known = lists.entry(list).or_insert(named);
                    *known = named.max(*known);
                }
            }
        }
        lists
    }

    /// Leaves the plain lists, which have `elements` endpoints, to be read by their keys.
    pub fn leave_lists(&mut self, elements: usize) {
        self.unread = UnreadLists::new(self.plain_lists(), elements);
    }

    /// Returns the lists of UDP that were left. Their endpoints show which flows are stale.
    pub fn udp_lists(&self) -> Vec<NamedList> {
        self.unread.iter().filter(|named| named.protocol == Protocol::Udp).copied().collect()
    }

    /// Returns false if no lists are left, but the map has elements of others.
    pub fn may_have_all_lists(&self) -> bool {
        self.unread.may_be_all()
    }

    /// Returns the lists to be read next; none once all are read.
    pub fn next_lists(&mut self) -> Vec<NamedList> {
        self.unread.next(AT_ONCE)
    }

    /// Returns the lists to be read while all services are compared for the first time, those of each
    /// request. A comparison takes about a quarter of the time to read the list of the service.
    pub fn lists_ahead(&mut self) -> Vec<Vec<NamedList>> {
        let requests = self.frontends.len() / 4 / AT_A_TIME;
        let next = |_| self.unread.next(AT_A_TIME);
        (0..requests).map(next).take_while(|lists| !lists.is_empty()).collect()
    }

    /// Adds lists that were left.
    pub fn read_lists(&mut self, read: ReadLists) {
        self.unread.read(read, &mut self.lists);
    }

    /// Completes the reading. Returns the elements to be deleted: they contradict others, or this
    /// program never writes them.
    pub fn finish(&mut self) -> BTreeMap<SetId, Vec<Element>> {
        for rare in self.frontends.iter_mut().filter_map(|(_, state)| state.rare.as_deref_mut()) {
            rare.ranges.sort_unstable();
            rare.blocks.sort_unstable();
        }
        let (lists, strays) = (&self.lists, &mut self.strays);
        self.affinity.retain(|list, affinity| {
            let is_there = lists.contains_key(list);
            // A list of which only the route exists.
            if let Some(route) = affinity.route.filter(|_| !is_there) {
                let element = TableElement::AffinityList(*list, route);
                strays.entry(element.set()).or_default().push(element.to_key());
            }
            is_there
        });
        self.lists.values_mut().for_each(List::trim);
        self.members.sort_unstable();
        let by_key = |a: &Element, b: &Element| a.key.cmp(&b.key);
        self.strays.values_mut().for_each(|strays| strays.sort_unstable_by(by_key));
        std::mem::take(&mut self.strays)
    }

    /// Returns the addresses of `nodeport-ips`.
    pub fn node_port_ips(&self) -> impl Iterator<Item = std::net::IpAddr> {
        self.members.iter().filter_map(|member| match member {
            Member::NodePortIp(address) => Some(*address),
            Member::ClusterIp(_) | Member::Hairpin(..) | Member::RangeHairpin(_) => None,
        })
    }

    /// Returns the elements that several services can share, sorted after [`Self::finish`].
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the ended endpoints, with the time after which the kernel forgets them.
    pub fn ended(&self) -> &[(Target, Duration)] {
        &self.ended
    }

    /// Returns each list, and the endpoint in each slot.
    pub fn lists(&self) -> impl Iterator<Item = (ListId, impl Iterator<Item = Target>)> {
        self.lists.iter().map(|(id, list)| (*id, list.iter().flatten()))
    }

    /// Returns the number of an endpoint in a list with affinity.
    pub fn affinity_number(&self, list: ListId, endpoint: &Target) -> Option<EndpointId> {
        self.affinity.get(&list)?.endpoints.get(endpoint).copied()
    }

    /// Returns the installed state of each frontend.
    pub fn frontends(&self) -> impl Iterator<Item = (Frontend, &FrontendState)> {
        self.frontends.iter()
    }

    /// Returns the UDP frontends with all endpoints of their routes.
    fn serving(&self) -> impl Iterator<Item = (Frontend, Vec<Target>)> {
        let udp = self.frontends.iter().filter(|(it, _)| it.protocol() == Protocol::Udp);
        udp.map(|(frontend, state)| {
            let lists = state.routes().filter_map(|route| self.lists.get(&route.list()?));
            (frontend, lists.flat_map(List::iter).flatten().collect())
        })
    }
}

impl Diff {
    /// Replaces the installed state by a read-back. The holdings of services stay.
    ///
    /// Every service must be updated again; then [`Diff::begin_sweep`] must follow.
    pub fn replace_installed_elements(&mut self, found: [FoundElements; 2]) {
        self.unused.clear();
        self.serving.adopt(found.iter().flat_map(FoundElements::serving));
        self.node_port_ips.adopt(found.iter().flat_map(FoundElements::node_port_ips));
        let members = found.iter().flat_map(|found| found.members.iter().copied());
        let shared = members.filter(|member| !matches!(member, Member::NodePortIp(_)));
        self.members.adopt(shared);
        let mut frontends = PackedMap::default();
        for (lists, found) in self.lists.iter_mut().zip(found) {
            lists.adopt(found.lists, found.affinity, found.unread);
            // Most clusters have mainly one family, so the smaller map is merged into the larger.
            let fewer = if found.frontends.len() > frontends.len() {
                std::mem::replace(&mut frontends, found.frontends)
            } else {
                found.frontends
            };
            frontends.append(fewer);
        }
        self.frontends.adopt(frontends);
        for (frontend, list) in self.frontends.references() {
            self.lists[frontend.family().index()].add_reference(list);
        }
        self.keep_lists();
    }

    /// Keeps the lists of services, so that none becomes that of another service, updated before.
    fn keep_lists(&mut self) {
        for holdings in self.services.iter() {
            for ServiceList { family, of, id, .. } in holdings.unpack().lists {
                self.lists[family.index()].keep(id, of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::ruleset::number::Route;

    #[test]
    fn a_set_that_is_read_again_leaves_what_other_sets_hold() {
        let (protocol, port) = (Protocol::Tcp, NonZeroU16::MIN);
        let address = Frontend::Address { address: [10, 96, 0, 1].into(), protocol, port };
        let node_port = Frontend::NodePort { family: Family::Ip, protocol, port };
        let mut found = FoundElements::new(Family::Ip);
        for frontend in [address, node_port] {
            found.add(&TableElement::Route(frontend, Route::WITHOUT_LIST, None));
        }
        found.forget(SetId::NodePorts);
        let routes =
            [address, node_port].map(|frontend| found.frontends.get(&frontend).unwrap().route);
        assert_eq!(routes, [Some(Route::WITHOUT_LIST), None]);
    }
}
