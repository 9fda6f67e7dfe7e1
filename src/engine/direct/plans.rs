//! The services with direct return: their phases and desired elements.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nft::Family;

use super::desired_slots::{DesiredSlots, World};
use super::elements::Elements;
use super::former::Former;
use super::nodes::{Nodes, hop_of};
use super::obstacle::Obstacle;
use super::phase::{Phase, Times};
use super::planned::{FamilyPlan, Planned, PortPlan};
use super::ports::{self, DirectPort, NodeSlots};
use super::ruleset::{Destination, DirectElement, DirectKey, DirectRoute, NodeListId, NodeNumber};
use super::table::Table;
use crate::diff::Numbers;
use crate::model::{Cluster, Handed, ObjectName, Problem, ServiceView};
use crate::routing::DirectReturn;
use crate::ruleset::Frontend;
use crate::ruleset::number::TableSize;

/// Time in which the first connections of a new service are remembered: those that came after table
/// kube-proxy had it, and before table direct-return.
const NEW: Duration = Duration::from_secs(1);

/// The services with direct return.
#[derive(Debug)]
pub(crate) struct Plans {
    settings: DirectReturn,
    services: BTreeMap<ObjectName, Planned>,
    touched: BTreeSet<ObjectName>,
    /// Services created since the start that had no external traffic without direct return.
    fresh: BTreeSet<ObjectName>,
    /// Addresses of this node and of others.
    node_addresses: BTreeSet<IpAddr>,
    /// Addresses of this node at which node ports are open.
    open: BTreeSet<IpAddr>,
    /// Addresses that have an element, whether or not they have destinations.
    kept: BTreeSet<IpAddr>,
    /// Frontends whose packets table kube-proxy translates to endpoints of this node alone, if known.
    local: BTreeSet<Frontend>,
    /// The numbers of lists. Connections are remembered by the number of their list, so a service
    /// keeps it, and a freed one is used again late.
    pub(super) lists: Numbers,
    refusals: Refusals,
    now: Instant,
    /// The earliest end of a phase.
    next_end: Option<Instant>,
}

/// What the kernel refuses.
#[derive(Debug, Default)]
struct Refusals {
    /// Packets cannot be forwarded to an address.
    forwarding: bool,
    /// The table is not written.
    table: bool,
    /// Services with a refused element, until they change.
    services: BTreeSet<ObjectName>,
}

impl Plans {
    pub(super) fn new(settings: DirectReturn, now: Instant) -> Self {
        Self {
            settings,
            services: BTreeMap::new(),
            touched: BTreeSet::new(),
            fresh: BTreeSet::new(),
            node_addresses: BTreeSet::new(),
            open: BTreeSet::new(),
            kept: BTreeSet::new(),
            local: BTreeSet::new(),
            lists: Numbers::new(1, NodeListId::LAST),
            refusals: Refusals::default(),
            now,
            next_end: None,
        }
    }

    /// Returns the settings.
    pub(super) fn settings(&self) -> &DirectReturn {
        &self.settings
    }

    /// Sets the time for what follows. Touches the services whose phase is over by then.
    pub(super) fn note_time(&mut self, now: Instant) {
        self.now = now;
        if self.next_end.is_none_or(|end| end > now) {
            return;
        }
        let over = self.services.iter().filter(|(_, it)| it.end().is_some_and(|end| end <= now));
        self.touched.extend(over.map(|(name, _)| name.clone()));
        self.next_end = None;
    }

    /// Returns when the first phase ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.next_end
    }

    /// Notes that a service was created, so that it has no connections yet.
    pub(crate) fn note_created(&mut self, name: &ObjectName) {
        self.fresh.insert(name.clone());
    }

    /// Notes that a service may have changed.
    pub(crate) fn touch(&mut self, name: &ObjectName, cluster: &Cluster) {
        let view = cluster.service(name);
        if self.includes(view.as_ref()) || self.services.contains_key(name) {
            self.touched.insert(name.clone());
        } else if view.is_none_or(|view| view.has_external_traffic()) {
            self.fresh.remove(name);
        }
    }

    /// Notes whether the table is not written.
    pub(crate) fn note_blocked(&mut self, is_blocked: bool) {
        if std::mem::replace(&mut self.refusals.table, is_blocked) != is_blocked {
            self.touch_all();
        }
    }

    /// Leaves a service out, whose elements the kernel refuses, until it changes.
    pub(crate) fn exclude(&mut self, name: &ObjectName, cluster: &Cluster) {
        self.refusals.services.insert(name.clone());
        self.touch(name, cluster);
    }

    /// Notes that a service has changed, so that it is not left out any more.
    pub(crate) fn include(&mut self, name: &ObjectName) {
        self.refusals.services.remove(name);
    }

    /// Notes that every service may have changed.
    pub(super) fn touch_all(&mut self) {
        self.touched.extend(self.services.keys().cloned());
    }

    /// Notes that the kernel cannot forward packets to an address.
    pub(crate) fn note_lack_of_fwd(&mut self) {
        self.refusals.forwarding = true;
        self.touch_all();
    }

    /// Records the addresses of this node at which node ports are open.
    pub(crate) fn note_open_node_ports(&mut self, addresses: &[IpAddr]) {
        if !self.settings.node_ports {
            return;
        }
        let open = addresses.iter().copied().collect();
        if self.open != open {
            self.open = open;
            self.touch_all();
        }
    }

    /// Records the addresses of all nodes. Packets to node ports of the others are handed to this
    /// node.
    pub(super) fn note_nodes(&mut self, cluster: &Cluster, table: &mut Table) {
        let peers = || cluster.peers().values().flat_map(|peer| &peer.addresses).copied();
        let own = cluster.node().into_iter().flat_map(|node| &node.addresses).copied();
        self.node_addresses = own.chain(peers()).collect();
        let kept = if self.settings.node_ports { peers().collect() } else { BTreeSet::new() };
        kept.iter().for_each(|address| table.put(DirectElement::Address(*address)));
        for former in std::mem::replace(&mut self.kept, kept) {
            self.remove_address(former, table);
        }
        self.touch_all();
    }

    /// Returns whether no service waits to be planned.
    pub(super) fn are_done(&self) -> bool {
        self.touched.is_empty()
    }

    /// Returns whether a service needs the table, and the kernel can have it.
    pub(super) fn need_table(&self) -> bool {
        !self.refusals.forwarding
            && !self.refusals.table
            && self.services.values().any(Planned::has_elements)
    }

    /// Records the frontends whose packets table kube-proxy translates to endpoints of this node
    /// alone.
    pub(super) fn note_local(&mut self, local: BTreeSet<Frontend>) {
        self.local = local;
    }

    /// Returns the services that nodes handed to each other in an earlier run.
    pub(super) fn adopted(
        &self,
        cluster: &Cluster,
        elements: &Elements,
    ) -> Vec<(ObjectName, Handed)> {
        let Some(own) = own_number(cluster) else { return Vec::new() };
        let former = Former { elements, own, local: &self.local };
        let services = cluster.services_with_external_traffic();
        let node_ports = self.settings.node_ports;
        let handed = |it: &ObjectName| {
            let families = former.handed(it, cluster)?;
            Some((it.clone(), Handed { families, node_ports, problems: Vec::new() }))
        };
        services.filter_map(handed).collect()
    }

    /// Returns the service of a list of nodes.
    pub(super) fn service_with(&self, list: NodeListId) -> Option<&ObjectName> {
        self.services.iter().find(|(_, planned)| planned.has(list)).map(|(name, _)| name)
    }

    /// Returns the number of services whose packets nodes hand to each other.
    pub(super) fn handed(&self) -> usize {
        self.services.values().filter(|planned| planned.is_direct()).count()
    }

    fn handed_by(&self, planned: &Planned) -> Handed {
        planned.handed(self.settings.node_ports)
    }

    /// Plans the elements of the touched services. Returns those whose packets are to be translated
    /// otherwise than before, with what is to be recorded of them.
    pub(super) fn plan(
        &mut self,
        links: (&Nodes, &mut Table),
        world: World<'_>,
    ) -> Vec<(ObjectName, Option<Handed>)> {
        let (nodes, table) = links;
        let mut changed = Vec::new();
        for name in std::mem::take(&mut self.touched) {
            let former = self.services.remove(&name);
            let had = former.as_ref().map(|it| self.handed_by(it));
            let planned =
                self.plan_service(&name, former.unwrap_or_default(), (nodes, table), world);
            let has = planned.as_ref().map(|it| self.handed_by(it));
            self.services.extend(planned.map(|planned| (name.clone(), planned)));
            if had != has {
                changed.push((name, has));
            }
        }
        self.next_end = self.services.values().filter_map(Planned::end).min();
        changed
    }

    /// Returns the plan of a service; `None` if it has no elements any more.
    fn plan_service(
        &mut self,
        name: &ObjectName,
        mut planned: Planned,
        (nodes, table): (&Nodes, &mut Table),
        world: World<'_>,
    ) -> Option<Planned> {
        let view = world.cluster.service(name);
        planned.problems.clear();
        for family in Family::ALL {
            let desired = self.desired(view.as_ref(), family, nodes, world);
            planned.problems.extend(desired.obstacle.as_ref().map(|it| problem(name, family, it)));
            planned.problems.extend(answered(name, &desired, nodes));
            let plan = &mut planned.families[family.index()];
            self.plan_family(name, plan, desired, (world.cluster, table));
        }
        if planned.has_elements() {
            self.fresh.remove(name);
        }
        (self.includes(view.as_ref()) || planned.has_elements()).then_some(planned)
    }

    fn includes(&self, view: Option<&ServiceView<'_>>) -> bool {
        view.is_some_and(|view| self.settings.includes(&view.service))
    }

    fn desired(
        &self,
        view: Option<&ServiceView<'_>>,
        family: Family,
        nodes: &Nodes,
        world: World<'_>,
    ) -> DesiredSlots {
        let Some(view) = view else { return DesiredSlots::default() };
        let obstacle = match (self.refusals.forwarding, self.refusals.table) {
            (true, _) => Some(Obstacle::KernelWithoutFwd),
            (false, true) => Some(Obstacle::Refused),
            (false, false) => None,
        };
        let ports = ports::ports(view, self.node_port_address(view, family), family, world.diff);
        if self.refusals.services.contains(&view.service.name) {
            let obstacle = (!ports.is_empty()).then_some(Obstacle::Refused);
            return DesiredSlots { ports: Vec::new(), obstacle };
        }
        if self.includes(Some(view)) && obstacle.is_none() {
            return DesiredSlots::of((view, ports), family, (nodes, &self.node_addresses), world);
        }
        let obstacle = obstacle.filter(|_| self.includes(Some(view)) && !ports.is_empty());
        DesiredSlots::translated(ports, obstacle)
    }

    /// Returns the address of this node whose node ports have direct return: the one that other nodes
    /// know, if node ports are open there.
    fn node_port_address(&self, view: &ServiceView<'_>, family: Family) -> Option<IpAddr> {
        view.node_address(family).filter(|address| self.open.contains(address))
    }

    fn plan_family(
        &mut self,
        name: &ObjectName,
        plan: &mut FamilyPlan,
        desired: DesiredSlots,
        (cluster, table): (&Cluster, &mut Table),
    ) {
        let own = own_number(cluster);
        if plan.phase.is_none() {
            let (elements, local) = (table.installed(), &self.local);
            let former = own.map(|own| Former { elements, own, local });
            plan.phase = former.and_then(|former| former.adopt(plan, &desired, table.desired()));
        }
        let remember = self.settings.remember;
        let learning = if self.fresh.contains(name) { remember.min(NEW) } else { remember };
        let times = Times { now: self.now, learning, leaving: remember };
        let phase = Phase::after(plan.phase, desired.is_direct(), times);
        plan.phase = phase.filter(|_| !desired.ports.is_empty() && own.is_some());
        let mut ports = Vec::new();
        if let (Some(phase), Some(own)) = (plan.phase, own) {
            let slots = |slots: Option<NodeSlots>| match phase {
                Phase::Direct => slots,
                Phase::Learning(_) | Phase::Leaving(_) => Some(own_slots(own)),
            };
            let all = desired.ports.into_iter();
            ports.extend(all.filter_map(|(port, given)| Some((port, slots(given)?))));
        }
        self.put_ports(plan, ports, table);
    }

    /// Puts the elements of these ports, and of no others, into the table.
    fn put_ports(
        &mut self,
        plan: &mut FamilyPlan,
        ports: Vec<(DirectPort, NodeSlots)>,
        table: &mut Table,
    ) {
        let mut former = std::mem::take(&mut plan.ports);
        for (port, (size, slots)) in ports {
            let key = (port.protocol, port.port);
            let known = former.remove(&key);
            let list = known.as_ref().map(|known| known.list);
            let Some(list) = list.or_else(|| self.new_list(table)) else { continue };
            table.put_list(list, slots);
            let gone = known.into_iter().flat_map(|known| known.destinations);
            for destination in gone.filter(|it| !port.destinations.contains(it)) {
                self.remove_destination(destination, list, table);
            }
            for destination in &port.destinations {
                let from_start = self.node_addresses.contains(&destination.address);
                let by_address = port.by_address;
                let route = DirectRoute { list, size, by_address, remembered: true, from_start };
                table.put_destination(*destination, route);
            }
            plan.ports.insert(key, PortPlan { list, destinations: port.destinations });
        }
        for PortPlan { list, destinations } in former.into_values() {
            destinations.into_iter().for_each(|it| self.remove_destination(it, list, table));
            table.remove_list(list);
            self.lists.free(list.get());
        }
    }

    /// Returns a number that no list of the table has; `None` if all are in use.
    fn new_list(&mut self, table: &Table) -> Option<NodeListId> {
        let taken = |number| NodeListId::new(number).is_none_or(|list| table.has_list(list));
        self.lists.give(taken).and_then(NodeListId::new)
    }

    /// Removes the elements of a destination, unless they lead to another list than this one: another
    /// service may have taken the address.
    fn remove_destination(&self, destination: Destination, list: NodeListId, table: &mut Table) {
        if table.desired().route(destination).is_none_or(|route| route.list != list) {
            return;
        }
        table.remove(DirectKey::Frontend(destination));
        table.remove(DirectKey::ErrorFrontend(destination));
        self.remove_address(destination.address, table);
    }

    /// Removes the element of an address that needs none.
    fn remove_address(&self, address: IpAddr, table: &mut Table) {
        if table.desired().destination_at(address).is_none() && !self.kept.contains(&address) {
            table.remove(DirectKey::Address(address));
        }
    }
}

fn own_number(cluster: &Cluster) -> Option<NodeNumber> {
    cluster.node().map(|node| hop_of(node.name.as_str()).number)
}

/// The slots of a list all of whose packets this node serves.
fn own_slots(own: NodeNumber) -> NodeSlots {
    let [size, ..] = TableSize::ALL;
    (size, vec![Some(own); size.slots() as usize])
}

/// Returns a problem if this node answers for an address of the service on the link, so that all
/// packets may come to it.
fn answered(service: &ObjectName, desired: &DesiredSlots, nodes: &Nodes) -> Option<Problem> {
    let handed = desired.ports.iter().filter(|(_, slots)| slots.is_some());
    let mut addresses = handed.flat_map(|(port, _)| &port.destinations).map(|it| it.address);
    let (address, device) = addresses.find_map(|it| Some((it, nodes.answers_on(it)?)))?;
    let message = format!(
        "vip-on-interface: this node has {address} on an interface and answers for it on {device}, \
         whichever node the network sends its packets to; set arp_ignore=1 and arp_announce=2"
    );
    Some(Problem::of_direct_return(service, message))
}

fn problem(service: &ObjectName, family: Family, obstacle: &Obstacle) -> Problem {
    let message = format!("{} packets are translated: {obstacle}", family.name());
    Problem::of_direct_return(service, message)
}
