//! Everything between the source and the kernel as one value: events in, transactions out.
//!
//! It does no I/O and reads no clock. `run`, `apply` and `plan` give it events and what was read
//! back, and take steps until nothing differs.

mod backlog;
mod base_state;
mod found_session;
mod pace;
mod read_back;
mod read_slots;
mod routing;
mod stale;
mod table_timeouts;

pub use read_back::{Found, read_back};
pub use routing::ClosedNodePorts;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ahash::HashSet;

use self::backlog::{Backlog, SMALL_CHANGE};
use self::base_state::Installed;
use self::pace::Pace;
use self::stale::NodeAddresses;
use self::table_timeouts::TableTimeouts;
use crate::config::Routing;
use crate::conntrack::StaleFlow;
use crate::desired::base::{Base, Settings, TABLE};
use crate::desired::{Desired, Fragment, Key, Layouts, elements};
use crate::diff::{Lane, Update};
use crate::model::{Cluster, Event, Extent, ObjectName, Problem, Touched};
use crate::nft::{Acknowledge, Family, Operation, Table, TableFlags, Transaction};
use crate::plan;

/// Desired state of both tables and what is known of the kernel's.
#[derive(Debug)]
pub struct Engine {
    routing: Routing,
    table_flags: TableFlags,
    cluster: Cluster,
    /// What events touch; empty but while they are taken in.
    touched: Touched,
    desired: Desired,
    tables: [TableState; 2],
    backlog: Backlog,
    pace: Pace,
    problems: Vec<Problem>,
    /// Services with a refused element since everything was settled last.
    suspects: HashSet<ObjectName>,
    /// Whether installed keys that nobody asks for are to be removed once everything is rendered.
    sweep_due: bool,
    /// Addresses of this node's interfaces.
    local_addresses: Vec<IpAddr>,
    closed_node_ports: Option<ClosedNodePorts>,
    node_addresses: NodeAddresses,
    stale_flows: Vec<StaleFlow>,
    table_timeouts: TableTimeouts,
}

/// One table besides the elements that services ask for.
#[derive(Debug)]
struct TableState {
    family: Family,
    installed: Installed,
    desired: Base,
    /// Whether `installed` may differ from `desired`.
    is_stale: bool,
    /// Removes elements that nobody asks for.
    cleanup: Vec<Operation>,
}

/// A transaction, and what is known once it is applied.
#[derive(Debug, Default)]
pub struct Step {
    /// What is to be committed.
    pub transaction: Transaction,
    tables: Vec<Family>,
    fragments: Vec<(Key, Update<Fragment>)>,
    /// About how many bytes the transaction takes.
    bytes: usize,
}

/// Who is to blame for a refused transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blame {
    /// No service in particular.
    Nobody,
    /// This service, if it happens again.
    Suspected(ObjectName),
    /// This service, which is left out from now on.
    Excluded(ObjectName),
}

/// So many services of a large change are rendered whatever waits, so that it comes to an end.
const UNINTERRUPTED: usize = 256;

impl Engine {
    /// An engine that knows nothing of the cluster and of the kernel yet.
    pub fn new(routing: Routing, table_flags: TableFlags) -> Self {
        let table = |family| TableState {
            family,
            installed: Installed::Absent,
            desired: Base::default(),
            is_stale: true,
            cleanup: Vec::new(),
        };
        let mut engine = Self {
            routing,
            table_flags,
            cluster: Cluster::default(),
            touched: Touched::default(),
            desired: Desired::default(),
            tables: [table(Family::Ip), table(Family::Ip6)],
            backlog: Backlog::default(),
            pace: Pace::default(),
            problems: Vec::new(),
            suspects: HashSet::default(),
            sweep_due: false,
            local_addresses: Vec::new(),
            closed_node_ports: None,
            node_addresses: NodeAddresses::default(),
            stale_flows: Vec::new(),
            table_timeouts: TableTimeouts::default(),
        };
        engine.render_tables();
        engine.render_node_ports();
        engine
    }

    /// Takes in events. What they touch is rendered when steps are taken.
    pub fn apply(&mut self, events: impl IntoIterator<Item = Event>) {
        for mut event in events {
            self.routing.restrict(&mut event);
            self.cluster.apply(event, &mut self.touched);
        }
        let node = std::mem::take(&mut self.touched.node);
        let service_cidrs = std::mem::take(&mut self.touched.service_cidrs);
        if node {
            self.render_node_ports();
        }
        for name in self.touched.services.keys() {
            let timeout = self.cluster.session_affinity(name);
            self.desired.ask_timeout(name, timeout);
            self.desired.readmit(name);
        }
        let is_new_timeout = self.table_timeouts.add(self.desired.affinity_timeouts());
        if is_new_timeout || service_cidrs || (node && self.routing.rules_depend_on_node()) {
            self.render_tables();
        }
        let services = self.touched.services.drain();
        // The first list comes in many small parts, and nothing is committed before it is whole.
        match self.cluster.is_listed() {
            true => self.backlog.add(services),
            false => self.backlog.add_to(Lane::Slow, services),
        }
        // After a large change its room is given back.
        self.touched.services.shrink_to(SMALL_CHANGE);
    }

    /// Forgets the timeouts that no service has any more, once no session does; whether there was
    /// one.
    fn forget_affinity_timeouts(&mut self) -> bool {
        let forgot =
            self.is_settled() && self.table_timeouts.keep_only(self.desired.affinity_timeouts());
        if forgot {
            self.render_tables();
        }
        forgot
    }

    /// What was left out since this was last asked.
    pub fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }

    /// Sets the addresses of this node's interfaces.
    pub fn set_local_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.local_addresses = addresses;
        self.render_node_ports();
    }

    /// The families in which no address of this node serves NodePorts, as known by now.
    pub fn closed_node_ports(&self) -> Option<ClosedNodePorts> {
        self.closed_node_ports
    }

    /// Whether Services, EndpointSlices and this node are known completely. Before, nothing may be
    /// committed.
    pub fn is_listed(&self) -> bool {
        self.cluster.is_listed()
    }

    /// What is known of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Where things are kept in the tables.
    pub fn layouts(&self) -> &Arc<Layouts> {
        self.desired.layouts()
    }

    /// Whether the kernel lets nobody else change our tables.
    pub fn owns_its_tables(&self) -> bool {
        self.tables.iter().all(|table| table.installed.is_owned())
    }

    /// Starts over from what was read back.
    pub fn observe(&mut self, found: [Found; 2]) {
        // Sessions may have to leave the sets of other timeouts first.
        if self.table_timeouts.observe(&found, self.desired.layouts().of(Family::Ip)) {
            self.render_tables();
        }
        let mut fragments = ahash::HashMap::default();
        for (table, found) in self.tables.iter_mut().zip(found) {
            let layout = self.desired.layouts().of(table.family);
            table.installed = Installed::found(found.contents.as_ref(), layout, &table.desired);
            table.is_stale = true;
            table.cleanup = Vec::new();
            if matches!(table.installed, Installed::Ours { .. }) {
                // Most clusters have one family, or nearly so: one map takes in the other.
                let (mut more, mut fewer) = (found.fragments, fragments);
                if more.len() < fewer.len() {
                    std::mem::swap(&mut more, &mut fewer);
                }
                more.extend(fewer);
                fragments = more;
                table.cleanup = found.cleanup;
            }
        }
        let installed = fragments.keys().filter_map(Key::node_port_ip);
        let is_listed = |ip: &IpAddr| !self.routing.node_ports_everywhere(Family::of(*ip));
        self.node_addresses.observe(installed, is_listed);
        self.desired.observe(fragments);
        let services: Vec<_> = self.desired.services().cloned().collect();
        self.backlog.add(services.into_iter().map(|name| (name, Extent::Whole)));
        self.sweep_due = true;
    }

    /// Whether the kernel holds everything that is desired.
    pub fn is_settled(&self) -> bool {
        self.backlog.is_empty()
            && !self.sweep_due
            && self.desired.is_settled()
            && self.tables.iter().all(|table| !table.is_stale)
    }

    /// The next transaction; `None` if nothing differs. It is at most about `max_batch` bytes.
    ///
    /// [`Engine::committed`] or [`Engine::observe`] must follow.
    pub fn next_step(&mut self, max_batch: usize) -> Option<Step> {
        self.next_step_unless(max_batch, || false)
    }

    /// The same, for a caller who may have something to do that should not wait: soon after
    /// `interrupted` says so it is what is ready by then, or `None` although more is to be done.
    pub fn next_step_unless(
        &mut self,
        max_batch: usize,
        interrupted: impl Fn() -> bool,
    ) -> Option<Step> {
        let step = self.step_for_what_differs(max_batch, &interrupted);
        if step.is_none() && self.forget_affinity_timeouts() {
            return self.step_for_what_differs(max_batch, &interrupted);
        }
        step
    }

    fn step_for_what_differs(
        &mut self,
        max_batch: usize,
        interrupted: &impl Fn() -> bool,
    ) -> Option<Step> {
        let mut step = Step::default();
        let mut budget = max_batch.min(self.pace.piece_bytes());
        for i in 0..self.tables.len() {
            let operations = self.table_operations(i);
            if operations.is_empty() {
                continue;
            }
            let size = encoded_size(&operations);
            if step.bytes > 0 && step.bytes + size > max_batch {
                return Some(step);
            }
            step.bytes += size;
            if matches!(self.tables[i].installed, Installed::Foreign) {
                // What is replaced is replaced whole, if one transaction can hold it.
                budget = max_batch;
            }
            step.tables.push(self.tables[i].family);
            step.transaction.operations.extend(operations);
        }
        // Sizes of elements are estimates, so an eighth is left free.
        let limit = (max_batch - max_batch / 8).saturating_sub(step.bytes);
        if step.bytes == 0 || limit >= self.pace.piece_bytes() / 2 {
            let room = plan::Room { budget: budget.min(limit), limit };
            let piece = self.next_piece(room, interrupted);
            match step.transaction.operations.is_empty() {
                true => step.transaction.operations = piece.operations,
                false => step.transaction.operations.extend(piece.operations),
            }
            step.fragments = piece.fragments;
            step.bytes += piece.bytes;
        }
        (!step.transaction.operations.is_empty()).then_some(step)
    }

    /// Renders and takes changes that fill the room; empty only if there is none left, or if
    /// `interrupted`.
    fn next_piece(&mut self, room: plan::Room, interrupted: impl Fn() -> bool) -> plan::Piece {
        loop {
            let is_complete = self.render(room.budget, &interrupted);
            let piece = plan::take(&mut self.desired, room);
            if !piece.operations.is_empty() {
                return piece;
            }
            // What was taken came to the same in the kernel.
            self.commit_fragments(piece.fragments);
            if !is_complete {
                return plan::Piece::default();
            }
            if self.backlog.is_empty() && self.desired.is_settled() {
                if !std::mem::take(&mut self.sweep_due) {
                    return plan::Piece::default();
                }
                self.desired.sweep();
            }
        }
    }

    /// Renders of small changes what fits about `budget` bytes, and then of large ones. Whether it
    /// was not interrupted.
    fn render(&mut self, budget: usize, interrupted: impl Fn() -> bool) -> bool {
        let end = plan::estimate(&self.desired) + budget;
        while plan::estimate(&self.desired) < end
            && let Some((name, extent)) = self.backlog.next(Lane::Fast)
        {
            self.render_service(&name, &extent, Lane::Fast);
        }
        let mut rendered = 0;
        while plan::estimate(&self.desired) < budget
            && let Some((name, extent)) = self.backlog.next(Lane::Slow)
        {
            self.render_service(&name, &extent, Lane::Slow);
            rendered += 1;
            if rendered >= UNINTERRUPTED && interrupted() {
                return false;
            }
        }
        true
    }

    fn render_service(&mut self, name: &ObjectName, extent: &Extent, lane: Lane) {
        if let Extent::Endpoints(changes) = extent
            && self.desired.change_endpoints(name, changes, &self.cluster, lane)
        {
            return;
        }
        let problems = self.desired.render_service(name, &self.cluster, lane);
        self.problems.extend(problems);
    }

    /// The kernel took `time` for `step`: later ones are cut so that they take about as long as one
    /// should.
    pub fn learn_pace(&mut self, step: &Step, time: Duration) {
        self.pace.learn(step.bytes, time);
    }

    /// The kernel has applied `step`.
    pub fn committed(&mut self, step: Step) {
        for table in self.tables.iter_mut().filter(|table| step.tables.contains(&table.family)) {
            let flags = table.installed.flags_after(self.table_flags);
            table.installed = Installed::after(&table.desired, flags);
            table.is_stale = false;
            table.cleanup = Vec::new();
        }
        self.commit_fragments(step.fragments);
        if self.is_settled() {
            self.suspects.clear();
        }
        self.gather_stale_flows();
    }

    /// The flows that what is committed by now has made stale, each told once.
    ///
    /// To be asked only after [`Engine::committed`], or when there is no next step.
    pub fn take_stale_flows(&mut self) -> Vec<StaleFlow> {
        // A change of endpoints may leave the tables as they are.
        self.gather_stale_flows();
        std::mem::take(&mut self.stale_flows)
    }

    fn gather_stale_flows(&mut self) {
        let changes = self.desired.take_serving_changes();
        let own = self.node_addresses.wanted();
        self.stale_flows.extend(changes.iter().flat_map(|change| stale::flows(change, own)));
        let tracker = self.desired.tracker();
        let is_committed = |address| !tracker.differs(&Key::NodePortIp(address));
        let changes = self.node_addresses.take_changes(is_committed);
        if !changes.is_empty() {
            self.stale_flows.extend(changes.flows(self.desired.udp_node_ports()));
        }
    }

    fn commit_fragments(&mut self, fragments: Vec<(Key, Update<Fragment>)>) {
        for (key, update) in fragments {
            self.desired.tracker_mut().commit(key, update);
        }
    }

    /// Finds the service to which the refused element of a step belongs.
    ///
    /// The first time the kernel's contents may have been other than was thought, so reading them
    /// back may cure it. A service that is refused again is left out until it changes.
    /// [`Engine::observe`] must follow.
    pub fn blame(&mut self, step: &Step, operation: usize, element: usize) -> Blame {
        let Some(service) = self.culprit(step, operation, element) else { return Blame::Nobody };
        if self.suspects.insert(service.clone()) {
            return Blame::Suspected(service);
        }
        self.desired.exclude(&service);
        self.backlog.add([(service.clone(), Extent::Whole)].into_iter());
        Blame::Excluded(service)
    }

    fn culprit(&self, step: &Step, operation: usize, element: usize) -> Option<ObjectName> {
        let operation = step.transaction.operations.get(operation)?;
        let (Operation::AddElements(table, set, list)
        | Operation::DeleteElements(table, set, list)) = operation
        else {
            return None;
        };
        let placed = self.layouts().of(table.family).by_name(&set.name)?;
        let value = list.get(element)?.key;
        let (key, _) = elements::key_from_bytes(table.family, &placed, value.as_bytes())?;
        self.desired.service_of(&key).cloned()
    }

    /// What leads from the installed to the desired table, without services' elements.
    fn table_operations(&mut self, i: usize) -> Vec<Operation> {
        let table = &mut self.tables[i];
        if !table.is_stale {
            return Vec::new();
        }
        let header = Table {
            family: table.family,
            name: TABLE.into(),
            flags: table.installed.flags_after(self.table_flags),
            comment: Some("service proxy rules of deltaproxy".to_owned()),
        };
        let mut operations = table.installed.operations(&table.desired, &header);
        operations.extend(table.cleanup.iter().cloned());
        table.is_stale = !operations.is_empty();
        operations
    }

    fn render_tables(&mut self) {
        let service_cidrs = self.cluster.service_cidrs();
        for table in &mut self.tables {
            let mut own = service_cidrs.clone();
            own.retain(|range| Family::of(range.addr()) == table.family);
            let settings = Settings {
                masquerade_mark: self.routing.masquerade_mark(),
                masquerade_all: self.routing.masquerade_all,
                local_detector: self.routing.local_detector(self.cluster.node(), table.family),
                node_ports_everywhere: self.routing.node_ports_everywhere(table.family),
                service_cidrs: own,
                affinity_timeouts: self.table_timeouts.to_vec(),
            };
            table.desired = Base::new(self.desired.layouts().of(table.family), &settings);
            table.is_stale = true;
        }
    }

    fn render_node_ports(&mut self) {
        let addresses = self.routing.node_port_ips(self.cluster.node(), &self.local_addresses);
        self.closed_node_ports = self.routing.closed_node_ports(self.cluster.node(), &addresses);
        self.desired.set_node_port_ips(&addresses);
        let everywhere =
            |address: &&IpAddr| self.routing.node_ports_everywhere(Family::of(**address));
        let mut serving = addresses;
        serving.extend(self.local_addresses.iter().filter(everywhere));
        self.node_addresses.want(serving);
    }
}

/// Bytes that the operations take in a batch; a batch that cannot be encoded is told by its
/// commit.
fn encoded_size(operations: &[Operation]) -> usize {
    let transaction = Transaction { operations: operations.to_vec() };
    transaction.encode(0, Acknowledge::BatchEnd).map_or(0, |batch| batch.bytes.len())
}
