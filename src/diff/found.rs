//! What was read back of one table, in terms of frontends and lists.

use ahash::HashMap;

use super::lists::{Affinity, List};
use super::{Diff, FrontendState};
use crate::model::{Protocol, Target};
use crate::nft::{Element, Family};
use crate::ruleset::number::ListId;
use crate::ruleset::{Frontend, Member, Range, SetId, TableElement};

/// The elements of one table.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    family: Family,
    frontends: HashMap<Frontend, FrontendState>,
    lists: HashMap<ListId, List>,
    affinity: HashMap<ListId, Affinity>,
    /// Slots of lists with affinity, until all endpoints are known.
    affinity_slots: HashMap<ListId, Vec<(u32, u16)>>,
    /// Source ranges, until all are known.
    ranges: HashMap<Frontend, Vec<Range>>,
    members: Vec<Member>,
    /// Elements that contradict others.
    strays: Vec<(SetId, Element)>,
}

impl Found {
    /// Nothing, of the table of this family.
    pub fn new(family: Family) -> Self {
        Self {
            family,
            frontends: HashMap::default(),
            lists: HashMap::default(),
            affinity: HashMap::default(),
            affinity_slots: HashMap::default(),
            ranges: HashMap::default(),
            members: Vec::new(),
            strays: Vec::new(),
        }
    }

    /// The table's family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Adds an element.
    pub fn add(&mut self, element: &TableElement<'_>) {
        match *element {
            TableElement::Route(frontend, ..)
            | TableElement::Internal(frontend, _)
            | TableElement::NoEndpoint(frontend, ..)
            | TableElement::Firewall(frontend) => {
                self.frontends.entry(frontend).or_default().observe(element);
            }
            TableElement::SourceRange(frontend, range) => {
                self.ranges.entry(frontend).or_default().push(range);
            }
            TableElement::Member(member) => self.members.push(member),
            TableElement::Endpoint(list, protocol, slot, target) => {
                if !self.put(list, protocol, slot, target) {
                    self.strays.push((element.set(), element.to_key()));
                }
            }
            TableElement::AffinitySlot(list, slot, id) => {
                self.affinity_slots.entry(list).or_default().push((slot, id));
            }
            TableElement::AffinityEndpoint(list, protocol, id, target) => {
                let known = self.lists.entry(list).or_insert(List::new(self.family, protocol));
                let affinity = self.affinity.entry(list).or_default();
                if known.protocol() != protocol || affinity.observe_endpoint(target, id) {
                    self.strays.push((element.set(), element.to_key()));
                }
            }
            TableElement::AffinityList(list, route) => {
                self.affinity.entry(list).or_default().observe_route(Some(route));
            }
        }
    }

    /// Puts an endpoint into a slot of a list; returns whether the list has this protocol.
    pub fn put(&mut self, list: ListId, protocol: Protocol, slot: u32, target: Target) -> bool {
        let list = self.lists.entry(list).or_insert(List::new(self.family, protocol));
        let is_of_protocol = list.protocol() == protocol;
        if is_of_protocol {
            list.put(slot as usize, target);
        }
        is_of_protocol
    }

    /// Forgets the elements of a set, which is read again from its start.
    pub fn forget(&mut self, set: SetId) {
        self.strays.retain(|(of, _)| *of != set);
        match set {
            SetId::Endpoints => self.lists.retain(|list, _| list.has_affinity()),
            SetId::AffinitySlots => self.affinity_slots.clear(),
            SetId::AffinityEndpoints => {
                self.lists.retain(|list, _| !list.has_affinity());
                self.affinity.values_mut().for_each(Affinity::forget_endpoints);
            }
            SetId::AffinityLists => {
                self.affinity.values_mut().for_each(|affinity| affinity.observe_route(None));
            }
            SetId::ClusterIps => self.members.retain(|it| !matches!(it, Member::ClusterIp(_))),
            SetId::NodePortIps => self.members.retain(|it| !matches!(it, Member::NodePortIp(_))),
            SetId::HairpinConnections => {
                self.members.retain(|it| !matches!(it, Member::Hairpin(..)));
            }
            SetId::SourceRanges => self.ranges.clear(),
            SetId::Services
            | SetId::NodePorts
            | SetId::InternalServices
            | SetId::InternalNodePorts
            | SetId::NoEndpointServices
            | SetId::NoEndpointNodePorts
            | SetId::FirewallIps => {
                self.frontends.values_mut().for_each(|state| state.forget(set));
            }
            SetId::AffinityClients => {}
        }
    }

    /// The plain lists that routes name, with their protocols and the fewest and the most endpoints
    /// that each may have.
    pub fn plain_lists(&self) -> HashMap<ListId, (Protocol, [u32; 2])> {
        let mut lists = HashMap::default();
        for (frontend, state) in &self.frontends {
            for route in [state.route(), state.internal()].into_iter().flatten() {
                if let Some(list) = route.list().filter(|list| !list.has_affinity()) {
                    let counts = [route.size().fewest(), route.size().most()];
                    lists.insert(list, (frontend.protocol(), counts));
                }
            }
        }
        lists
    }

    /// Completes lists; returns the elements that contradict others, which are to be deleted.
    pub fn finish(&mut self) -> Vec<(SetId, Element)> {
        for (list, slots) in std::mem::take(&mut self.affinity_slots) {
            let mut affinity = self.affinity.get_mut(&list);
            let targets = affinity.as_ref().map(|affinity| affinity.by_id()).unwrap_or_default();
            for (slot, id) in slots {
                match (self.lists.get_mut(&list), &mut affinity, targets.get(&id)) {
                    (Some(found), Some(affinity), Some(target)) => {
                        found.put(slot as usize, *target);
                        affinity.observe_slot(slot as usize, id);
                    }
                    _ => {
                        let element = TableElement::AffinitySlot(list, slot, id);
                        self.strays.push((element.set(), element.to_key()));
                    }
                }
            }
        }
        for (frontend, mut ranges) in std::mem::take(&mut self.ranges) {
            ranges.sort_unstable();
            self.frontends.entry(frontend).or_default().observe_ranges(ranges.into());
        }
        // A list of which only the route is there.
        for (list, affinity) in &mut self.affinity {
            if !self.lists.contains_key(list)
                && let Some(route) = affinity.take_route()
            {
                let element = TableElement::AffinityList(*list, route);
                self.strays.push((element.set(), element.to_key()));
            }
        }
        let lists = &mut self.lists;
        self.affinity.retain(|list, _| lists.contains_key(list));
        self.lists.values_mut().for_each(List::trim);
        self.members.sort_unstable();
        std::mem::take(&mut self.strays)
    }

    /// The addresses of `nodeport-ips`.
    pub fn node_port_ips(&self) -> impl Iterator<Item = std::net::IpAddr> {
        self.members.iter().filter_map(|member| match member {
            Member::NodePortIp(address) => Some(*address),
            Member::ClusterIp(_) | Member::Hairpin(..) => None,
        })
    }

    /// What is installed for each frontend.
    pub fn frontends(&self) -> &HashMap<Frontend, FrontendState> {
        &self.frontends
    }

    /// The lists.
    pub fn lists(&self) -> &HashMap<ListId, List> {
        &self.lists
    }

    /// Members of sets, sorted.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The UDP frontends with all endpoints that their routes lead to.
    fn serving(&self) -> impl Iterator<Item = (Frontend, Vec<Target>)> {
        let udp = self.frontends.iter().filter(|(it, _)| it.protocol() == Protocol::Udp);
        udp.map(|(frontend, state)| {
            let routes = [state.route(), state.internal()].into_iter().flatten();
            let lists = routes.filter_map(|route| self.lists.get(&route.list()?));
            (*frontend, lists.flat_map(List::iter).flatten().collect())
        })
    }
}

impl Diff {
    /// Starts over from what the kernel was found to hold. Which service has what stays.
    ///
    /// Every service must be updated again, then [`Diff::begin_sweep`] be called.
    pub fn observe(&mut self, found: [Found; 2]) {
        self.leftovers.clear();
        self.unclaimed.clear();
        self.serving.observe(found.iter().flat_map(Found::serving));
        self.node_port_ips.observe(found.iter().flat_map(Found::node_port_ips));
        let members = found.iter().flat_map(|found| found.members.iter().copied());
        let is_shared = |member: &Member| !matches!(member, Member::NodePortIp(_));
        self.members.observe(members.filter(is_shared));
        let mut frontends = HashMap::default();
        for (lists, found) in self.lists.iter_mut().zip(found) {
            lists.observe(found.lists, found.affinity);
            // Most clusters have one family, or nearly so: one map takes in the other.
            let (mut more, mut fewer) = (found.frontends, frontends);
            if more.len() < fewer.len() {
                std::mem::swap(&mut more, &mut fewer);
            }
            more.extend(fewer);
            frontends = more;
        }
        self.frontends.observe(frontends);
        for (frontend, list) in self.frontends.references() {
            self.lists[frontend.family().index()].add_reference(list);
        }
    }
}
