//! Everything between the source and the kernel as one value: events in, transactions out, their
//! outcomes in.
//!
//! Each transaction that is returned gets one outcome, in order. A step counts as installed as soon
//! as it is made. After any outcome but its commit, what the kernel holds is read and replaces the
//! installed state.
//!
//! It does no I/O and reads no clock. `run`, `apply`, `plan` and `bench` send it events, read-backs
//! and the outcome of each transaction.

mod answer;
mod balance;
mod base_state;
mod bisect;
mod changed_elements;
mod devices;
mod direct_table;
pub mod doubt;
mod found_tables;
mod installed;
mod link;
mod listeners;
mod node_addresses;
mod node_state;
mod not_applied;
mod outcome;
mod piece_size;
mod problems;
mod queue;
mod routing;
mod stale_by_commit;
mod stale_in_conntrack;
mod steps;
mod table_id;
mod tables;
mod transactions;
mod updates;

pub use crate::desired::SlotUse;
pub use crate::diff::{
    Changed, ElementId, Finding, GRACE, InstalledElement, Kept, KnownElements, NoLocalPorts,
};
pub use answer::{Answer, Blocked, Cause};
pub use bisect::StepServices;
pub use changed_elements::{Corrected, Difference};
pub use found_tables::{FoundTable, FoundTables};
pub use link::{Link, LinkChange, LinkNews};
pub use node_state::NodeState;
pub use not_applied::Refused;
pub use queue::ChangeSize;
pub use routing::ClosedNodePorts;
pub use table_id::TableId;
pub use tables::Tables;

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Instant, SystemTime};

use nft::kernel::Release;
use nft::{Family, TableFlags, Transaction};
use smallvec::SmallVec;

use self::devices::FlowtableDevices;
use self::listeners::{Listeners, Listening};
use self::problems::Problems;
use self::queue::{Lane, SMALL_CHANGE};
use self::stale_in_conntrack::StaleFlows;
use self::steps::Steps;
use self::updates::Updates;
use crate::diff::{Context, Diff};
use crate::direct::{Direct, Links};
use crate::flow::{Flow, StaleFlow};
use crate::model::{
    API_SERVER, Adjusted, Cluster, EndedEndpoints, Event, Extent, HealthCheck, HostAddresses,
    LiveConnections, LocalhostPorts, ObjectName, Problem, Resource, Touched,
};
use crate::routing::Routing;
use crate::ruleset::{Layouts, Lookups};

/// Trigger times kept while the kernel refuses everything: 1 MiB.
const MAX_TRIGGERS: usize = 1 << 16;

/// Desired state of both tables, and their installed state, in parts that each keep one invariant.
#[derive(Debug)]
pub struct Engine {
    routing: Routing,
    cluster: Cluster,
    /// Services that the current events touch; empty outside [`Engine::apply`].
    touched: Touched,
    node: NodeState,
    tables: Tables,
    updates: Updates,
    /// The elements of services.
    diff: Diff,
    steps: Steps,
    flows: StaleFlows,
    listeners: Listeners,
    problems: Problems,
    /// Times of the events that led to changes of slices, since the last call of `take_triggers`.
    triggers: Vec<SystemTime>,
}

impl Engine {
    /// Returns an engine without cluster objects and without installed state.
    pub fn new(routing: Routing, table_flags: TableFlags) -> Self {
        let serves_localhost = routing.node_port_addresses.opens_localhost(Family::Ip);
        let mut engine = Self {
            node: NodeState { serves_localhost, ..NodeState::default() },
            tables: Tables::new(Layouts::new(routing.counters), table_flags),
            updates: Updates::new(routing.slot_budget),
            routing,
            cluster: Cluster::default(),
            touched: Touched::default(),
            diff: Diff::default(),
            steps: Steps::default(),
            flows: StaleFlows::default(),
            listeners: Listeners::default(),
            problems: Problems::default(),
            triggers: Vec::new(),
        };
        if engine.routing.least_connections.is_some() {
            engine.cluster.balance_connections();
        }
        let external = engine.routing.external_addresses.clone();
        engine.cluster.restrict_external(external, engine.routing.local_detection.ranges());
        if let Some(settings) = engine.routing.ended_connections {
            engine.cluster.end_connections(settings);
        }
        engine.render_tables();
        engine.render_node_ports();
        engine
    }

    /// Returns all objects of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns what this node is.
    pub fn node(&self) -> &NodeState {
        &self.node
    }

    /// Returns both tables without the elements of services.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Applies events to the cluster and queues the touched services; returns the size of the
    /// change. The services are updated when transactions are made.
    pub fn apply(&mut self, events: impl IntoIterator<Item = Event>) -> ChangeSize {
        let was_listed = self.cluster.is_listed();
        for mut event in events {
            self.routing.adapt(&mut event);
            self.tables.note_created(&event, &self.cluster);
            self.cluster.apply(event, &mut self.touched);
        }
        self.cluster.complete(&mut self.touched);
        self.note_ended();
        self.tables.touch_nodes(&mut self.touched);
        self.keep_triggers();
        let node = std::mem::take(&mut self.touched.node);
        let ranges = std::mem::take(&mut self.touched.service_cidrs)
            || self.touched.services.keys().any(|name| name.as_str() == API_SERVER);
        if node {
            self.render_node_ports();
        }
        if ranges || node || !was_listed {
            self.find_overlaps();
        }
        let mut size =
            if self.touched.dependents.is_empty() { ChangeSize::Small } else { ChangeSize::Large };
        if self.cluster.is_listed() {
            for name in &self.touched.dependents {
                self.diff.excluded.remove(name);
            }
            self.touched.dependents.sort_unstable();
            self.updates.queue.add_last(self.touched.dependents.drain(..));
        } else {
            let dependents = std::mem::take(&mut self.touched.dependents);
            dependents.into_iter().for_each(|name| self.touched.add(name, Extent::Whole));
        }
        // Sorted, so that the same objects always get the same numbers.
        let mut services: SmallVec<[_; 2]> = self.touched.services.drain().collect();
        services.sort_unstable_by(|(a, _): &(ObjectName, Extent), (b, _)| a.cmp(b));
        for (name, _) in &services {
            self.tables.timeouts.request(name, self.cluster.session_timeout(name));
            self.listeners.note(name, &self.cluster);
            if !self.diff.excluded.is_empty() {
                self.diff.excluded.remove(name);
            }
            if let Some(direct) = &mut self.tables.direct {
                direct.plans.include(name);
            }
        }
        let inputs = (&self.cluster, self.routing.direct_return.as_ref());
        self.updates.note_demands(inputs, services.iter().map(|(name, _)| name));
        let is_new_timeout = self.tables.timeouts.number_all();
        let has_new_chains = self.tables.add_optional_chains(&self.cluster);
        if is_new_timeout
            || has_new_chains
            || ranges
            || (node && self.routing.rules_depend_on_node())
        {
            self.render_tables();
        }
        if self.updates.queue.has_backlog() {
            // The service may be in the backlog. Then the installed elements are older than the
            // state from which the change starts.
            services.iter_mut().for_each(|(_, extent)| *extent = Extent::Whole);
        }
        size = size.max(ChangeSize::of(services.len()));
        let services = services.into_iter();
        // The first list arrives in many small parts, and nothing is committed before it is
        // complete.
        if self.cluster.is_listed() {
            self.updates.queue.add(services)
        } else {
            self.updates.queue.add_to(Lane::Slow, services)
        }
        self.touched.services.shrink_to(SMALL_CHANGE);
        self.touched.dependents.shrink_to(SMALL_CHANGE);
        size
    }

    /// Returns whether a small change, or one besides elements, is not in the kernel yet.
    pub fn has_urgent_changes(&mut self) -> bool {
        self.steps.parts().any(|part| part.services.are_urgent || part.base.is_some())
            || !self.updates.after_commit.is_empty()
            || self.updates.queue.next_lane() == Some(Lane::Fast)
    }

    fn keep_triggers(&mut self) {
        if self.cluster.is_listed() {
            self.triggers.append(&mut self.touched.triggers);
            self.triggers.truncate(MAX_TRIGGERS);
        } else {
            // The causes of the first lists lie before the start.
            self.touched.triggers = Vec::new();
        }
    }

    /// Returns the problems found since the last call.
    pub fn take_problems(&mut self) -> Vec<Problem> {
        self.problems.take_found()
    }

    /// Returns the services whose present problems changed since the last call, sorted, each with
    /// all of its present problems.
    pub fn take_changed_problems(&mut self) -> Vec<(ObjectName, Vec<Problem>)> {
        self.problems.take_changed()
    }

    /// Returns the times of the events that led to changes of slices, since the last call. The
    /// first lists do not count.
    pub fn take_triggers(&mut self) -> Vec<SystemTime> {
        std::mem::take(&mut self.triggers)
    }

    /// Returns whether every resource has been listed. Nothing may be committed before.
    pub fn is_listed(&self) -> bool {
        self.cluster.is_listed()
    }

    /// Returns whether the kernel holds everything desired, and besides only kept unused elements.
    pub fn is_settled(&self) -> bool {
        self.updates.are_done()
            && self.steps.prepared.is_empty()
            && self.diff.is_settled()
            && self.tables.are_as_desired()
            && self.tables.are_devices_settled()
            && self.tables.is_direct_return_settled()
    }

    /// Returns the flows that committed changes have made stale, each once.
    pub fn take_stale_flows(&mut self) -> Vec<StaleFlow> {
        // A change of endpoints without a change of the tables has no commit that gathers its
        // flows.
        self.gather_stale_flows();
        self.flows.take()
    }

    /// Returns whether commits may have made connections without an answer stale, since the last
    /// call: [`Self::stale_among`] finds them.
    pub fn takes_other_connections(&mut self) -> bool {
        std::mem::take(&mut self.flows.are_others_due)
    }

    fn gather_stale_flows(&mut self) {
        let waits = Family::ALL.map(|family| {
            self.steps.has_parts(family.into())
                || self.steps.undone[family.index()] && !self.is_settled()
        });
        self.flows.gather(&mut self.diff, &mut self.node, waits);
    }

    /// Returns those of `flows` that are stale. Nothing may be in flight, and
    /// [`Engine::is_settled`] must hold.
    pub fn stale_among(&self, flows: &[Flow]) -> Vec<StaleFlow> {
        let service_cidrs = self.routing.own_ranges(&self.cluster);
        self.flows.among(flows, &self.diff, &self.node, &service_cidrs)
    }

    /// Records that all flows of a list were compared, and that all stale ones among them are
    /// deleted.
    pub fn compared_flows(&mut self) {
        self.flows.compared();
    }

    /// Returns the services whose health check has changed since the last call, sorted, with the new
    /// one.
    pub fn take_health_checks(&mut self) -> Vec<(ObjectName, Option<HealthCheck>)> {
        self.listeners.health_checks.take_changed()
    }

    /// Returns the addresses of health check ports, if they have changed since the last call: those
    /// of NodePorts. `0.0.0.0` and `::` stand for all addresses of their family.
    pub fn take_health_check_addresses(&mut self) -> Option<Vec<IpAddr>> {
        self.listeners.health_check_addresses.take()
    }

    /// Records from now on which node ports are to be served at `[::1]`, if the settings open them
    /// there. For the daemon, which serves them; called before the first event.
    pub fn follow_localhost_ports(&mut self) {
        if self.routing.node_port_addresses.opens_localhost(Family::Ip6) {
            self.listeners.localhost = Some(Listening::default());
            self.render_node_ports();
        }
    }

    /// Returns the services whose node ports at `[::1]` have changed since the last call, sorted,
    /// with the new ones.
    pub fn take_localhost_ports(&mut self) -> Vec<(ObjectName, Option<LocalhostPorts>)> {
        self.listeners.localhost.as_mut().map(|it| it.take_changed()).unwrap_or_default()
    }

    /// Records devices of the network namespace, which flowtables follow from then on.
    pub fn learn_devices(&mut self, news: LinkNews) {
        if let Some(devices) = &mut self.tables.devices {
            devices.learn(news);
        }
    }

    /// Turns direct return on, if the settings ask for it, with no service handed on yet. For
    /// callers that know the links of the node, before the first event or a read-back. `now` is the
    /// time until [`Engine::note_time`].
    pub fn hand_packets_on(&mut self, now: Instant) {
        self.cluster.forget_handed();
        self.tables.start_direct_return(&self.routing, now);
        if let Some(direct) = &mut self.tables.direct {
            direct.plans.note_open_node_ports(self.node.serving.desired());
        }
    }

    /// Returns direct return; `None` while it is off.
    pub fn direct(&self) -> Option<&Direct> {
        self.tables.direct.as_deref()
    }

    /// Returns direct return; `None` while it is off.
    pub fn direct_mut(&mut self) -> Option<&mut Direct> {
        self.tables.direct.as_deref_mut()
    }

    /// Records what is known of the links of this node. Returns whether the kernel may have changed the
    /// table: it takes a device that goes out of the chain.
    pub fn learn_links(&mut self, links: Links) -> bool {
        self.tables.learn_links(links, &self.cluster)
    }

    /// Sets the time for what follows, on which direct return and ended endpoints depend.
    pub fn note_time(&mut self, now: Instant) {
        self.tables.note_time(now);
        if let Some(ended) = self.cluster.ended_mut() {
            ended.note_time(now);
        }
        self.note_ended();
    }

    /// Returns when [`Self::note_time`] changes something by itself.
    pub fn due(&self) -> Option<Instant> {
        let ended = self.cluster.ended().and_then(EndedEndpoints::due);
        self.tables.due().into_iter().chain(ended).min()
    }

    fn note_ended(&mut self) {
        if let Some(ended) = self.cluster.ended_mut() {
            let changed = ended.take_changed();
            self.tables.note_ended(changed.iter().filter(|it| ended.contains(it)));
            self.diff.note_ended(changed);
        }
    }

    /// Returns the transaction of a daemon that ends, after which nodes hand packets on until `end`
    /// only; `None` if they do not.
    pub fn ending(&self, end: SystemTime) -> Option<Transaction> {
        let is_known = !self.steps.has_parts(TableId::DirectReturn);
        self.tables.ending(end).filter(|_| is_known)
    }

    /// Returns the slots that services request and are given.
    pub fn slots_in_use(&self) -> SlotUse {
        self.updates.slot_budget.sums()
    }

    /// Adjusts weights to live connections and queues the services with other ones. The number of
    /// changes is limited as configured.
    pub fn balance(&mut self, counted: &LiveConnections) -> Adjusted {
        let Some(settings) = self.routing.least_connections else { return Adjusted::default() };
        balance::balance(&mut self.cluster, &mut self.updates, settings, counted)
    }

    /// Sets the addresses of this node's interfaces, and of what it must reach. Returns whether its own
    /// addresses or its tables are others then.
    pub fn set_local_addresses(&mut self, addresses: impl Into<HostAddresses>) -> bool {
        let was_settled = self.is_settled();
        let former = std::mem::replace(&mut self.node.addresses, addresses.into());
        self.render_node_ports();
        self.render_tables();
        self.find_overlaps();
        former.local != self.node.addresses.local || was_settled && !self.is_settled()
    }

    /// Finds what ranges of cluster IPs overlap, once they are known.
    fn find_overlaps(&mut self) {
        if self.cluster.is_listed() {
            let mut overlaps = self.node.addresses.overlaps(&self.cluster);
            Problem::keep_few(&mut overlaps);
            self.problems.replace(Resource::ServiceCidrs, overlaps);
        }
    }

    /// Makes the rules suit a kernel of this release; an unknown one may be old. Without this call
    /// they suit the newest, and flowtables keep their devices.
    pub fn suit_kernel(&mut self, release: Option<Release>) {
        self.node.lookups = Lookups::of_kernel(release);
        let offload = self.routing.flowtable.as_ref();
        let devices = offload.map(|it| FlowtableDevices::new(it.devices.clone(), release));
        self.tables.devices = devices;
        self.render_tables();
    }

    /// Stops serving NodePorts at loopback addresses, because the kernel does not route them.
    pub fn leave_out_localhost(&mut self) {
        self.node.serves_localhost = false;
        self.render_tables();
        self.render_node_ports();
    }

    /// Accepts tables without flowtables, if neither of `found` has one: the kernel may lack them.
    /// For commands that commit nothing, before [`Engine::replace_installed_state`].
    pub fn accept_missing_flowtables(&mut self, found: &FoundTables) {
        let mut contents = found.of_services.iter().filter_map(|found| found.contents.as_ref());
        let is_found = contents.any(|contents| !contents.flowtables.is_empty());
        if self.routing.flowtable.is_some() && !is_found {
            self.node.lacks_flowtables = true;
            self.render_tables();
        }
    }

    fn render_tables(&mut self) {
        self.tables.render(&self.cluster, &self.routing, &self.node);
    }

    fn render_node_ports(&mut self) {
        let (node, state) = (self.cluster.node(), &mut self.node);
        let local = &state.addresses.local;
        let addresses = self.routing.node_port_ips(node, local, state.serves_localhost);
        let mut open = addresses.clone();
        // The daemon serves them there.
        open.extend(self.listeners.localhost.as_ref().map(|_| IpAddr::V6(Ipv6Addr::LOCALHOST)));
        state.closed_node_ports = self.routing.closed_node_ports(node, &open);
        self.diff.node_port_ips.set_desired(&addresses);
        self.listeners.open_health_checks(&addresses, &self.routing);
        let served = state.addresses.local.iter().filter(|address| {
            self.routing.node_ports_everywhere(Family::of(**address))
                && (!address.is_loopback() || state.serves_localhost && address.is_ipv4())
        });
        let mut serving = addresses;
        serving.extend(served);
        state.serving.set_desired(serving);
        if let Some(direct) = &mut self.tables.direct {
            direct.plans.note_open_node_ports(self.node.serving.desired());
        }
    }
}

/// Returns what the rendering of a service depends on.
fn context<'a>(
    cluster: &'a Cluster,
    tables: &'a Tables,
    updates: &'a Updates,
    may_postpone: bool,
) -> Context<'a> {
    let (timeouts, slots, ranges) = (&tables.timeouts, &updates.slot_budget, &updates.range_budget);
    Context { cluster, timeouts, slots, ranges, may_postpone, rendered: None }
}
