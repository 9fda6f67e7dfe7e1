//! Direct return as the reconciler sees it: objects and links in, rules and changes of elements out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use nft::Name;

use super::desired_slots::World;
use super::links::Links;
use super::nodes::Nodes;
use super::plans::Plans;
use super::ruleset::{self, DirectElement, DirectKey, DirectSet, DirectSettings, NodeListId};
use super::table::Table;
use crate::diff::Diff;
use crate::model::{Cluster, Handed, ObjectName};
use crate::routing::DirectReturn;
use crate::ruleset::base::Base;
use crate::ruleset::{Frontend, Subject};

/// Direct return on this node.
#[derive(Debug)]
pub struct Direct {
    hash_seed: u32,
    nodes: Nodes,
    pub(crate) plans: Plans,
    pub(crate) table: Table,
    /// The settings of the desired rules; `None` without any.
    settings: Option<DirectSettings>,
    /// Nothing was rendered since the start.
    is_new: bool,
}

impl Direct {
    /// Returns direct return with these settings; the table must be read before anything else.
    pub fn new(settings: DirectReturn, hash_seed: u32, now: Instant) -> Self {
        Self {
            hash_seed,
            nodes: Nodes::new(now),
            plans: Plans::new(settings, now),
            table: Table::default(),
            settings: None,
            is_new: true,
        }
    }

    /// Sets the time for what follows.
    pub(crate) fn note_time(&mut self, now: Instant) {
        self.plans.note_time(now);
        self.nodes.note_time(now);
    }

    /// Notes that other nodes came, went or changed.
    pub(crate) fn touch_nodes(&mut self) {
        self.nodes.is_stale = true;
    }

    /// Records what is known of the links; returns whether there are other devices.
    pub(crate) fn learn(&mut self, links: Links, cluster: &Cluster) -> bool {
        let differ = self.devices() != (&links.devices, links.tunnel.as_ref());
        self.nodes.learn(links);
        self.end_wait(cluster);
        differ
    }

    /// Returns the devices whose packets are handed on, and the tunnel.
    fn devices(&self) -> (&[Name], Option<&Name>) {
        self.nodes.links().map_or((&[], None), |links| (&links.devices, links.tunnel.as_ref()))
    }

    /// Ends the wait of the start, if all is known. Without devices it is not: the address of this
    /// node may not have arrived.
    fn end_wait(&mut self, cluster: &Cluster) {
        if cluster.is_listed() && !self.devices().0.is_empty() {
            self.nodes.end_wait(cluster);
        }
    }

    /// Returns whether everything is planned, and no element differs.
    pub(crate) fn is_settled(&self) -> bool {
        let has_no_changes = self.settings.is_none() || self.table.is_settled();
        self.plans.are_done() && !self.nodes.is_stale && has_no_changes
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

    /// Returns whether it is known how nodes are reached.
    pub(crate) fn may_plan(&self) -> bool {
        self.nodes.are_known()
    }

    /// Brings the desired elements up to date. Returns the services whose packets are to be
    /// translated otherwise than before, with what is to be recorded of them.
    pub(crate) fn plan(&mut self, world: World<'_>) -> Vec<(ObjectName, Option<Handed>)> {
        self.end_wait(world.cluster);
        if !self.may_plan() {
            return Vec::new();
        }
        if std::mem::take(&mut self.nodes.is_stale) {
            self.nodes.put(world.cluster, &mut self.table);
            self.plans.note_nodes(world.cluster, &mut self.table);
        }
        self.plans.plan((&self.nodes, &mut self.table), world)
    }

    /// Returns the desired rules if they are others than before; `None` for no table. `exists` tells
    /// whether the table is in the kernel.
    pub(crate) fn new_rules(&mut self, exists: bool) -> Option<Option<Base>> {
        let (devices, tunnel) = self.devices();
        let has_use = !devices.is_empty() || exists;
        let is_needed = self.plans.need_table() && has_use;
        let settings = self.plans.settings();
        let settings = is_needed.then(|| DirectSettings {
            devices: devices.to_vec(),
            tunnel: tunnel.cloned(),
            remember: settings.remember,
            connections: settings.connections,
            node_ports: settings.node_ports,
            hash_seed: self.hash_seed,
        });
        if self.settings == settings {
            return None;
        }
        self.settings = settings;
        Some(self.settings.as_ref().map(ruleset::base))
    }

    /// Returns the services that nodes handed to each other when an earlier run ended, once before
    /// anything is rendered. They stay so until it is known how the nodes are reached.
    pub(crate) fn take_adopted(&mut self, cluster: &Cluster) -> Vec<(ObjectName, Handed)> {
        if !std::mem::take(&mut self.is_new) {
            return Vec::new();
        }
        self.plans.adopted(cluster, self.table.installed())
    }

    /// Records the frontends whose packets table kube-proxy translates to endpoints of this node
    /// alone.
    /// For callers without a daemon's memory: of a service whose endpoints are all on this node,
    /// the list does not show whether nodes hand its packets to each other.
    pub fn note_local(&mut self, local: BTreeSet<Frontend>) {
        self.plans.note_local(local);
    }

    /// Records that a transaction was applied.
    pub(crate) fn committed(&mut self) {
        self.plans.lists.end_rest();
    }

    /// Returns the service that an element of the table belongs to.
    pub(crate) fn service_of<'a>(
        &'a self,
        set: &str,
        key: &[u8],
        diff: &'a Diff,
    ) -> Option<&'a ObjectName> {
        let destination = match DirectKey::read(DirectSet::by_name(set)?, key)? {
            DirectKey::Slot(list, _) => return self.plans.service_with(list),
            DirectKey::Frontend(destination) | DirectKey::ErrorFrontend(destination) => destination,
            DirectKey::Address(address) => self.table.desired().destination_at(address)?,
            DirectKey::HardwareAddress(_)
            | DirectKey::NodeAddress(..)
            | DirectKey::NodeDevice(_) => return None,
        };
        let family = destination.family();
        let frontends = [destination.frontend(), destination.node_port()];
        frontends.into_iter().find_map(|it| diff.service_of(family, Subject::Frontend(it)))
    }

    /// Replaces the installed elements by those that were read; returns whether they differed.
    pub(crate) fn replace_installed(&mut self, found: Vec<DirectElement>) -> bool {
        self.plans.note_blocked(false);
        let differed = self.table.replace_installed(found);
        self.plans.lists.adopt(self.table.installed().lists().map(NodeListId::get));
        differed
    }
}
