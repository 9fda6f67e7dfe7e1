//! Direct return as the engine sees it: objects and links in, transactions out, their outcomes in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use nft::kernel::CommitError;
use nft::{Errno, Expression, Name, Operation, TableFlags, Transaction};

use super::links::Links;
use super::nodes::Nodes;
use super::plans::Plans;
use super::reading::Readings;
use super::ruleset::{Destination, List, Settings};
use super::table::{Found, Table};
use super::target::World;
use crate::model::{Cluster, Handed, ObjectName};
use crate::routing::DirectReturn;
use crate::ruleset::Frontend;

/// Direct return on this node.
#[derive(Debug)]
pub struct Direct {
    hash_seed: u32,
    /// The devices whose packets are handed on.
    devices: Vec<Name>,
    tunnel: Option<Name>,
    nodes: Nodes,
    plans: Plans,
    table: Table,
    readings: Readings,
    now: Instant,
    /// Nothing was rendered since the start.
    is_new: bool,
}

impl Direct {
    /// Returns direct return with these settings; the table must be read before anything else.
    pub fn new(settings: DirectReturn, hash_seed: u32, flags: TableFlags, now: Instant) -> Self {
        Self {
            hash_seed,
            devices: Vec::new(),
            tunnel: None,
            nodes: Nodes::new(now),
            plans: Plans::new(settings, now),
            table: Table::new(flags),
            readings: Readings::new(now),
            now,
            is_new: true,
        }
    }

    /// Sets the time for what follows.
    pub(crate) fn note_time(&mut self, now: Instant) {
        self.now = now;
        self.plans.note_time(now);
        self.nodes.note_time(now);
    }

    /// Notes that a service was created, so that it has no connections yet.
    pub(crate) fn note_created(&mut self, name: &ObjectName) {
        self.plans.note_created(name);
    }

    /// Notes that a service may have changed.
    pub(crate) fn touch(&mut self, name: &ObjectName, cluster: &Cluster) {
        self.plans.touch(name, cluster);
    }

    /// Notes that other nodes came, went or changed.
    pub(crate) fn touch_nodes(&mut self) {
        self.nodes.is_stale = true;
    }

    /// Records the addresses of this node at which node ports are open.
    pub(crate) fn note_open_node_ports(&mut self, addresses: &[IpAddr]) {
        self.plans.note_open_node_ports(addresses);
    }

    /// Records what is known of the links.
    pub(crate) fn learn(&mut self, links: Links, cluster: &Cluster) {
        if self.devices != links.devices || self.tunnel != links.tunnel {
            self.devices.clone_from(&links.devices);
            self.tunnel.clone_from(&links.tunnel);
            // The kernel takes a device that goes out of the chain.
            self.compare();
            self.want_rules();
        }
        self.nodes.learn(links);
        self.end_wait(cluster);
    }

    /// Ends the wait of the start, if all is known. Without devices it is not: the address of this
    /// node may not have arrived.
    fn end_wait(&mut self, cluster: &Cluster) {
        if cluster.is_listed() && !self.devices.is_empty() {
            self.nodes.end_wait(cluster);
        }
    }

    /// Returns whether the kernel holds what is desired, as far as that can be known now.
    pub fn is_settled(&self) -> bool {
        let is_planned = self.plans.are_done() && !self.nodes.is_stale;
        !self.may_plan() || is_planned && self.table.is_settled()
    }

    /// Returns whether a transaction waits for its outcome.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.table.is_in_flight()
    }

    /// Returns whether the table exists, as far as is known.
    pub fn has_table(&self) -> bool {
        self.table.exists()
    }

    /// Returns the number of services whose packets nodes hand to each other.
    pub fn services(&self) -> usize {
        self.plans.handed()
    }

    /// Returns the number of other nodes by state.
    pub fn nodes_by_state(&self, cluster: &Cluster) -> BTreeMap<&'static str, usize> {
        self.nodes.by_state(cluster)
    }

    /// Returns when something changes by itself.
    pub fn due(&self) -> Option<Instant> {
        self.plans.next_end().into_iter().chain(self.nodes.due()).min()
    }

    fn may_plan(&self) -> bool {
        self.readings.due().is_none() && self.nodes.are_known()
    }

    /// Brings the desired elements up to date. Returns the services whose packets are to be
    /// translated otherwise than before, with what is to be recorded of them.
    pub(crate) fn plan(&mut self, world: World<'_>) -> Vec<(ObjectName, Option<Handed>)> {
        self.end_wait(world.cluster);
        if !self.may_plan() {
            return Vec::new();
        }
        if std::mem::take(&mut self.nodes.is_stale) {
            self.nodes.want(world.cluster, &mut self.table);
            self.plans.note_nodes(world.cluster, &mut self.table);
        }
        let changed = self.plans.plan((&self.nodes, &mut self.table), world);
        self.want_rules();
        changed
    }

    /// A table whose devices are gone stays: it remembers the connections until they are back.
    fn want_rules(&mut self) {
        let has_use = !self.devices.is_empty() || self.table.exists();
        let is_needed = self.plans.need_table() && has_use;
        let settings = self.plans.settings();
        self.table.want_rules(is_needed.then(|| Settings {
            devices: self.devices.clone(),
            tunnel: self.tunnel.clone(),
            remember: settings.remember,
            connections: settings.connections,
            node_ports: settings.node_ports,
            hash_seed: self.hash_seed,
        }));
    }

    /// Returns the services that nodes handed to each other when an earlier run ended, once before
    /// anything is rendered. They stay so until it is known how the nodes are reached.
    pub(crate) fn take_adopted(&mut self, cluster: &Cluster) -> Vec<(ObjectName, Handed)> {
        let installed = self.table.installed().filter(|_| self.is_new);
        let adopt = |installed| self.plans.adopted(cluster, installed);
        let adopted = installed.map(adopt).unwrap_or_default();
        self.is_new = false;
        adopted
    }

    /// Records the frontends whose packets table kube-proxy translates to endpoints of this node
    /// alone.
    /// For callers without a daemon's memory: of a service whose endpoints are all on this node,
    /// the list does not show whether nodes hand its packets to each other.
    pub fn note_local(&mut self, local: BTreeSet<Frontend>) {
        self.plans.note_local(local);
    }

    /// Returns the next transaction; `None` if nothing differs, or not now.
    pub(crate) fn next_transaction(&mut self, max_batch: usize) -> Option<Transaction> {
        if self.may_plan() { self.table.next_transaction(max_batch) } else { None }
    }

    /// Records the outcome of the last transaction.
    pub(crate) fn answer(&mut self, transaction: &Transaction, outcome: Result<(), &CommitError>) {
        let Err(error) = outcome else {
            self.applied();
            return;
        };
        self.table.failed();
        self.readings.failed(self.now);
        if shows_lack_of_fwd(transaction, error) {
            self.plans.note_lack_of_fwd();
        }
    }

    /// Records that the last transaction was applied.
    pub(crate) fn applied(&mut self) {
        self.readings.applied();
        self.plans.lists.end_rest();
        self.table.applied();
    }

    /// Returns the service with a list of nodes.
    pub(crate) fn holder(&self, list: List) -> Option<&ObjectName> {
        self.plans.lists.holder(list)
    }

    /// Returns a destination with elements at an address.
    pub(crate) fn destination_at(&self, address: IpAddr) -> Option<Destination> {
        self.plans.destination_at(address)
    }

    /// Returns the transaction of a daemon that ends, after which nodes hand packets on until `end`
    /// only; `None` if they do not.
    pub fn ending(&self, end: SystemTime) -> Option<Transaction> {
        self.table.ending(end)
    }

    /// Lets the table be compared with what is desired, if it exists.
    pub fn compare(&mut self) {
        if self.table.exists() {
            self.readings.request(self.now);
        }
    }

    /// Records that the table could not be read.
    pub fn failed_reading(&mut self) {
        self.readings.failed(self.now);
    }

    /// Returns when the table is to be read, if it must be.
    pub fn reading_due(&self) -> Option<Instant> {
        self.readings.due()
    }

    /// Replaces what is installed by what was read.
    pub fn replace_installed(&mut self, found: Found) {
        self.readings.done();
        self.table.replace_installed(found);
        self.plans.lists.adopt(&self.table);
    }
}

/// Returns whether the kernel refused a rule that hands packets to an address.
fn shows_lack_of_fwd(transaction: &Transaction, error: &CommitError) -> bool {
    let CommitError::Refused { operation: Some(operation), errno, .. } = error else {
        return false;
    };
    let Some(Operation::AddRule(_, rule)) = transaction.operations.get(*operation) else {
        return false;
    };
    rule.expressions.iter().any(|it| matches!(it, Expression::Fwd(_)))
        && matches!(*errno, Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL)
}
