//! Everything between the source and the kernel as one value: events in, transactions out, their
//! outcomes in.
//!
//! It does no I/O and reads no clock. `run`, `apply`, `plan` and `bench` send it events, read-backs
//! and the outcome of each transaction.

mod base_state;
mod bisect;
mod blocked;
mod changed_elements;
mod checks;
mod devices;
mod fill;
mod flags;
mod flowtables;
mod found;
mod health_checks;
mod least_connections;
mod leftovers;
mod localhost;
mod lookups;
mod not_applied;
mod outcome;
mod piece_size;
mod queue;
mod routing;
mod slot_budget;
mod stale_by_commit;
mod stale_in_conntrack;
mod transactions;

pub use crate::desired::SlotUse;
pub use crate::diff::{Finding, Installed, Kept, NoLocalPorts};
pub use blocked::Blocked;
pub use changed_elements::{Changed, Differences, ElementId};
pub use devices::{DeviceAnswer, FlowtableDevices};
pub use found::FoundTable;
pub use leftovers::GRACE;
pub use outcome::{Answer, Cause};
pub use queue::ChangeSize;
pub use routing::ClosedNodePorts;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use ahash::HashSet;
use nft::{Family, Operation, TableFlags};
use smallvec::SmallVec;

use self::base_state::BaseState;
use self::bisect::Bisect;
use self::flags::header;
use self::health_checks::HealthChecks;
use self::piece_size::PieceSize;
use self::queue::{Lane, Queue, SMALL_CHANGE};
use self::stale_by_commit::NodeAddresses;
use self::stale_in_conntrack::Ended;
use self::transactions::{InFlight, Part};
use crate::counters::Counters;
use crate::desired::{SlotBudget, Timeouts};
use crate::diff::{self, Diff};
use crate::flow::StaleFlow;
use crate::model::{Cluster, Event, Extent, ObjectName, Problem, Scheduler, Touched};
use crate::routing::Routing;
use crate::ruleset::base::{Base, OptionalChains, Settings, has_guard};
use crate::ruleset::{self, Layouts, Lookups};

/// Trigger times kept while the kernel refuses everything: 1 MiB.
const MAX_TRIGGERS: usize = 1 << 16;

/// Desired state of both tables, and their installed state.
#[derive(Debug)]
pub struct Engine {
    routing: Routing,
    table_flags: TableFlags,
    layouts: Arc<Layouts>,
    cluster: Cluster,
    /// Services that the current events touch; empty outside [`Engine::apply`].
    touched: Touched,
    timeouts: Timeouts,
    slot_budget: SlotBudget,
    /// Touched services whose demand of slots is not known yet.
    unmeasured: HashSet<ObjectName>,
    optional_chains: OptionalChains,
    queue: Queue,
    diff: Diff,
    tables: [TableState; 2],
    piece_size: PieceSize,
    /// Transactions that are not answered yet, in order: at most one, and one made ahead of it.
    in_flight: VecDeque<InFlight>,
    /// Transactions of the last step that [`Engine::next_transaction`] has not returned yet.
    prepared: VecDeque<Part>,
    /// Number of steps so far.
    steps: u64,
    problems: Vec<Problem>,
    /// Services blamed for a refusal since the engine was last settled.
    suspects: HashSet<ObjectName>,
    /// The last piece held small changes while a large change waited.
    small_went_first: bool,
    /// Orphans are to be removed once all services are updated.
    sweep_due: bool,
    /// Services whose remainder is updated after the next commit.
    after_commit: Vec<ObjectName>,
    /// Services to be updated after all others, from a read-back on; `None` once the queue holds
    /// them.
    postponed: Option<Vec<ObjectName>>,
    /// Addresses of this node's interfaces.
    local_addresses: Vec<IpAddr>,
    /// Loopback addresses of IPv4 serve NodePorts.
    serves_localhost: bool,
    /// The installed IPv4 table has the rule that protects loopback addresses, and no setting needs
    /// it.
    loses_guard: bool,
    /// The kernel lacks flowtables.
    lacks_flowtables: bool,
    lookups: Lookups,
    closed_node_ports: Option<ClosedNodePorts>,
    node_addresses: NodeAddresses,
    stale_flows: Vec<StaleFlow>,
    /// Tables whose last step was not applied: flows are stale once the next one is.
    undone: [bool; 2],
    ended: Ended,
    health_checks: HealthChecks,
    /// Times of the events that led to changes of slices, since the last call of `take_triggers`.
    triggers: Vec<SystemTime>,
}

/// One table without the elements of services.
#[derive(Debug)]
struct TableState {
    family: Family,
    installed: BaseState,
    /// The settings of `desired`; `None` before it is rendered.
    settings: Option<Settings>,
    desired: Base,
    /// `installed` may differ from `desired`.
    is_stale: bool,
    /// Operations that remove elements that this program never writes.
    cleanup: Vec<Operation>,
    /// Why no transaction is sent for the table until the tables are read back.
    blocked: Option<Blocked>,
    /// The last transaction was refused for something that belongs to no service.
    is_suspect: bool,
    bisect: Bisect,
}

impl Engine {
    /// Returns an engine without cluster objects and without installed state.
    pub fn new(routing: Routing, table_flags: TableFlags) -> Self {
        let table = |family| TableState {
            family,
            installed: BaseState::Absent,
            settings: None,
            desired: Base::default(),
            is_stale: true,
            cleanup: Vec::new(),
            blocked: None,
            is_suspect: false,
            bisect: Bisect::default(),
        };
        let mut engine = Self {
            serves_localhost: routing.node_port_addresses.localhost,
            layouts: Arc::new(Layouts::new(routing.counters)),
            slot_budget: SlotBudget::new(routing.slot_budget),
            unmeasured: HashSet::default(),
            routing,
            table_flags,
            cluster: Cluster::default(),
            touched: Touched::default(),
            loses_guard: false,
            lacks_flowtables: false,
            lookups: Lookups::default(),
            timeouts: Timeouts::default(),
            optional_chains: OptionalChains::default(),
            queue: Queue::default(),
            diff: Diff::default(),
            tables: [table(Family::Ip), table(Family::Ip6)],
            piece_size: PieceSize::default(),
            in_flight: VecDeque::new(),
            prepared: VecDeque::new(),
            steps: 0,
            problems: Vec::new(),
            suspects: HashSet::default(),
            small_went_first: false,
            sweep_due: false,
            after_commit: Vec::new(),
            postponed: None,
            local_addresses: Vec::new(),
            closed_node_ports: None,
            node_addresses: NodeAddresses::default(),
            stale_flows: Vec::new(),
            undone: [false; 2],
            ended: Ended::default(),
            health_checks: HealthChecks::default(),
            triggers: Vec::new(),
        };
        if engine.routing.least_connections.is_some() {
            engine.cluster.balance_connections();
        }
        engine.render_tables();
        engine.render_node_ports();
        engine
    }

    /// Applies events to the cluster and queues the touched services; returns the size of the
    /// change. The services are updated when transactions are made.
    pub fn apply(&mut self, events: impl IntoIterator<Item = Event>) -> ChangeSize {
        for mut event in events {
            self.routing.adapt(&mut event);
            self.cluster.apply(event, &mut self.touched);
        }
        self.keep_triggers();
        let node = std::mem::take(&mut self.touched.node);
        let service_cidrs = std::mem::take(&mut self.touched.service_cidrs);
        if node {
            self.render_node_ports();
        }
        let mut size = match self.touched.dependents.is_empty() {
            true => ChangeSize::Small,
            false => ChangeSize::Large,
        };
        if self.cluster.is_listed() {
            for name in &self.touched.dependents {
                self.diff.excluded.remove(name);
            }
            self.touched.dependents.sort_unstable();
            self.queue.add_last(self.touched.dependents.drain(..));
        } else {
            let dependents = std::mem::take(&mut self.touched.dependents);
            dependents.into_iter().for_each(|name| self.touched.add(name, Extent::Whole));
        }
        // Sorted, so that the same objects always get the same numbers.
        let mut services: SmallVec<[_; 2]> = self.touched.services.drain().collect();
        services.sort_unstable_by(|(a, _): &(ObjectName, Extent), (b, _)| a.cmp(b));
        for (name, _) in &services {
            self.timeouts.request(name, self.cluster.session_affinity(name));
            self.health_checks.note(name, self.cluster.health_check(name));
            if !self.diff.excluded.is_empty() {
                self.diff.excluded.remove(name);
            }
        }
        self.note_demands(services.iter().map(|(name, _)| name));
        let is_new_timeout = self.timeouts.number_all();
        // Until all resources are listed, the service address ranges may be unknown.
        let has_new_chains = self.cluster.is_listed() && self.optional_chains.add(&self.cluster);
        if is_new_timeout
            || has_new_chains
            || service_cidrs
            || (node && self.routing.rules_depend_on_node())
        {
            self.render_tables();
        }
        if self.queue.has_backlog() {
            // The service may be in the backlog. Then the installed elements are older than the
            // state from which the change starts.
            services.iter_mut().for_each(|(_, extent)| *extent = Extent::Whole);
        }
        size = size.max(ChangeSize::of(services.len()));
        let services = services.into_iter();
        // The first list arrives in many small parts, and nothing is committed before it is
        // complete.
        match self.cluster.is_listed() {
            true => self.queue.add(services),
            false => self.queue.add_to(Lane::Slow, services),
        }
        self.touched.services.shrink_to(SMALL_CHANGE);
        self.touched.dependents.shrink_to(SMALL_CHANGE);
        size
    }

    /// Returns whether a small change, or any rendered transaction, is not in the kernel yet.
    pub fn has_urgent_changes(&mut self) -> bool {
        !self.in_flight.is_empty()
            || !self.prepared.is_empty()
            || !self.after_commit.is_empty()
            || self.queue.next_lane() == Some(Lane::Fast)
    }

    /// Returns the service ports of `family` whose policy wants a local endpoint and that have
    /// none.
    pub fn no_local_endpoints(&self, family: Family) -> NoLocalPorts {
        self.diff.no_local_endpoints(family)
    }

    /// Returns the number of routed services per scheduler, in the order of [`Scheduler::ALL`].
    pub fn services_by_scheduler(&self) -> [usize; Scheduler::ALL.len()] {
        self.diff.services_by_scheduler()
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
        std::mem::take(&mut self.problems)
    }

    /// Returns the times of the events that led to changes of slices, since the last call. The
    /// first lists do not count.
    pub fn take_triggers(&mut self) -> Vec<SystemTime> {
        std::mem::take(&mut self.triggers)
    }

    /// Sets the addresses of this node's interfaces.
    pub fn set_local_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.local_addresses = addresses;
        self.render_node_ports();
    }

    /// Returns the families in which no address of this node serves NodePorts.
    pub fn closed_node_ports(&self) -> Option<ClosedNodePorts> {
        self.closed_node_ports
    }

    /// Returns whether every resource has been listed. Nothing may be committed before.
    pub fn is_listed(&self) -> bool {
        self.cluster.is_listed()
    }

    /// Returns all objects of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the sets and maps of both tables.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Returns whether this process owns each of our tables that it writes, so that the kernel
    /// refuses changes by other programs.
    pub fn owns_its_tables(&self) -> bool {
        let mut written = self.tables.iter().filter(|table| table.blocked.is_none());
        written.all(|table| table.installed.is_owned())
    }

    /// Replaces the installed state by a read-back and queues all services.
    pub fn replace_installed(&mut self, found: [FoundTable; 2]) {
        self.in_flight.clear();
        self.prepared.clear();
        self.undone = [false; 2];
        let ip = found[Family::Ip.index()].contents.as_ref();
        self.loses_guard = !self.routing.node_port_addresses.localhost
            && ip.is_some_and(|contents| has_guard(&contents.rules));
        let contents = found.iter().filter_map(|found| found.contents.as_ref());
        let timeouts = contents.map(|it| ruleset::affinity::timeouts_of(it.rules.iter()));
        if self.timeouts.adopt(timeouts) {
            self.render_tables();
        }
        let elements = found.map(|found| self.replace_installed_table(found));
        let installed = elements.iter().flat_map(diff::FoundElements::node_port_ips);
        let is_listed = |ip: &IpAddr| !self.routing.node_ports_everywhere(Family::of(*ip));
        self.node_addresses.adopt(installed, is_listed);
        self.diff.replace_installed(elements);
        self.adopt_weights();
        // A postponed service may hold nothing yet, so `diff.services()` may lack it.
        let postponed = self.postponed.replace(Vec::new()).unwrap_or_default();
        let services: Vec<_> = self.diff.services().cloned().chain(postponed).collect();
        self.queue.add(services.into_iter().map(|name| (name, Extent::Whole)));
        self.after_commit.clear();
        self.sweep_due = true;
    }

    /// Replaces the installed state of one table; returns its elements, if the table is ours.
    fn replace_installed_table(&mut self, found: FoundTable) -> diff::FoundElements {
        let family = found.elements.family();
        let table = &mut self.tables[family.index()];
        let sets = self.layouts.of(family);
        table.installed = BaseState::found(found.contents.as_ref(), sets, &table.desired);
        table.is_stale = true;
        table.blocked = None;
        match table.installed {
            BaseState::Ours(_) => {
                table.cleanup = found.cleanup;
                found.elements
            }
            BaseState::Absent | BaseState::Foreign => {
                table.cleanup = Vec::new();
                diff::FoundElements::new(family)
            }
        }
    }

    /// Returns whether the kernel holds everything desired, and nothing else but kept leftovers.
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty()
            && self.prepared.is_empty()
            && self.postponed.is_none()
            && self.after_commit.is_empty()
            && !self.sweep_due
            && self.diff.is_settled()
            && self.tables.iter().all(|table| !table.is_stale)
    }

    /// Returns whether a table has affinity rules, which record clients.
    pub fn has_affinity(&self) -> bool {
        !self.timeouts.numbered().is_empty()
    }

    /// Returns the flows that committed changes have made stale, each once.
    pub fn take_stale_flows(&mut self) -> Vec<StaleFlow> {
        // A change of endpoints without a change of the tables has no commit that gathers its
        // flows.
        self.gather_stale_flows();
        std::mem::take(&mut self.stale_flows)
    }

    fn gather_stale_flows(&mut self) {
        let waits = Family::ALL.map(|family| {
            self.has_parts(family) || self.undone[family.index()] && !self.is_settled()
        });
        for family in Family::ALL.into_iter().filter(|family| !waits[family.index()]) {
            let changes = self.diff.serving.take(family);
            let ended = changes.iter().filter(|change| change.after.is_none());
            ended.for_each(|change| self.ended.add(change.frontend));
            let own = self.node_addresses.wanted();
            self.stale_flows
                .extend(changes.iter().flat_map(|change| stale_by_commit::flows(change, own)));
        }
        if waits.contains(&true) {
            return;
        }
        let is_committed = |address| self.diff.node_port_ips.is_settled(address);
        let changes = self.node_addresses.take_changes(is_committed);
        if !changes.is_empty() {
            let ports = self.diff.serving.node_ports().into_iter();
            self.stale_flows.extend(changes.flows(ports));
        }
    }

    /// Returns the operations from the installed to the desired table, without elements of
    /// services.
    fn table_operations(&mut self, i: usize) -> Vec<Operation> {
        let table = &mut self.tables[i];
        if !table.is_stale {
            return Vec::new();
        }
        let header = header(table.family, &table.installed, self.table_flags);
        let mut operations = table.installed.operations(&table.desired, &header);
        operations.extend(table.cleanup.iter().cloned());
        table.is_stale = !operations.is_empty();
        operations
    }

    fn render_tables(&mut self) {
        let service_cidrs = self.cluster.service_cidrs();
        let offload = self.routing.flowtable.as_ref().filter(|_| !self.lacks_flowtables);
        for table in &mut self.tables {
            let mut own = service_cidrs.clone();
            own.retain(|range| Family::of(range.addr()) == table.family);
            let settings = Settings {
                masquerade_mark: self.routing.masquerade_mark(),
                masquerade_all: self.routing.masquerade_all,
                local_detector: self.routing.local_detector(self.cluster.node(), table.family),
                node_ports_everywhere: self.routing.node_ports_everywhere(table.family),
                hash_seed: self.routing.hash_seed,
                lookups: self.lookups,
                localhost: self.serves_localhost && table.family == Family::Ip,
                counts_connections: self.routing.counters != Counters::Off,
                optional_chains: self.optional_chains,
                offload: offload.map(|offload| offload.after),
                service_cidrs: own,
                timeouts: self.timeouts.numbered().clone(),
            };
            if table.settings.as_ref() != Some(&settings) {
                table.desired = Base::new(self.layouts.of(table.family), &settings);
                table.settings = Some(settings);
                table.is_stale = true;
            }
        }
    }

    fn render_node_ports(&mut self) {
        let (node, local) = (self.cluster.node(), &self.local_addresses);
        let addresses = self.routing.node_port_ips(node, local, self.serves_localhost);
        self.closed_node_ports = self.routing.closed_node_ports(node, &addresses);
        self.diff.node_port_ips.want(&addresses);
        self.note_health_check_addresses(&addresses);
        let is_served = |address: &&IpAddr| {
            self.routing.node_ports_everywhere(Family::of(**address))
                && (!address.is_loopback() || self.serves_localhost && address.is_ipv4())
        };
        let mut serving = addresses;
        serving.extend(self.local_addresses.iter().filter(is_served));
        self.node_addresses.want(serving);
    }
}
