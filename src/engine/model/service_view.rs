//! One service as its packets see it: with its endpoints, on this node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use nft::family::Family;

use super::balanced::Shares;
use super::by_node;
use super::event::Problem;
use super::node::Node;
use super::port_ranges::PortBlock;
use super::protocol::Protocol;
use super::scheduler::Scheduler;
use super::service::{Service, ServicePort};
use super::stored::StoredSlice;
use super::target::{Target, TargetList};
use super::usable::{UsableEndpoints, entries};
use super::weights::Weight;

/// A service with all that determines where its packets go.
#[derive(Clone, Debug)]
pub struct ServiceView<'a> {
    /// The service, without the external addresses that it may not have.
    pub service: Service,
    /// A problem for each of these addresses.
    pub refused: Vec<Problem>,
    pub(super) slices: &'a [StoredSlice],
    pub(super) node: Option<&'a Node>,
    /// Shares of endpoints under scheduler `lc`, if it is in use.
    pub(super) shares: Option<&'a Shares>,
    /// What direct return makes of it; `None` without.
    pub(super) handed: Option<&'a Handed>,
}

/// What direct return makes of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Nodes hand external packets to each other, by [`Family::index`](nft::Family::index). So this
    /// node sends those that come to it to its own endpoints, if it has any.
    pub families: [bool; 2],
    /// They also do so with packets to node ports of TCP.
    pub node_ports: bool,
    /// Why they do not, although the service has it on.
    pub problems: Vec<Problem>,
}

impl ServiceView<'_> {
    /// Returns what stands for the port ranges of each protocol, with the blocks of their ports,
    /// ascending.
    pub fn range_ports(&self) -> Vec<(ServicePort, Arc<[PortBlock]>)> {
        let of_protocol = |protocol| {
            let all = self.service.port_ranges.iter();
            let ranges = all.filter(|range| range.protocol == protocol);
            let mut blocks: Vec<_> = ranges.flat_map(|range| range.blocks()).collect();
            blocks.sort_unstable();
            (!blocks.is_empty()).then(|| (ServicePort::of_ranges(protocol), blocks.into()))
        };
        Protocol::ALL.into_iter().filter_map(of_protocol).collect()
    }

    /// Returns whether nodes hand external packets of `family` to each other.
    pub fn is_handed(&self, family: Family) -> bool {
        self.handed.is_some_and(|handed| handed.families[family.index()])
    }

    /// Returns whether they also do so with packets to node ports of a protocol.
    pub fn hands_node_ports(&self, family: Family, protocol: Protocol) -> bool {
        let has_node_ports = self.handed.is_some_and(|handed| handed.node_ports);
        has_node_ports && protocol == Protocol::Tcp && self.is_handed(family)
    }

    /// Returns why nodes do not, although the service has it on.
    pub fn handing_problems(&self) -> &[Problem] {
        self.handed.map_or(&[], |handed| &handed.problems)
    }

    /// Returns whether the service has external IPs, load balancer addresses or node ports.
    pub fn has_external_traffic(&self) -> bool {
        let Service { external_ips, load_balancer_ips, ports, .. } = &self.service;
        let has_node_port = ports.iter().any(|port| port.node_port.is_some());
        has_node_port || !external_ips.is_empty() || !load_balancer_ips.is_empty()
    }

    /// Returns the first address of this node of `family`.
    pub fn node_address(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.node?.addresses.iter().copied();
        addresses.find(|address| Family::of(*address) == family)
    }

    /// Returns the endpoints of `family` to which packets to `port` may be sent.
    pub fn usable_endpoints(&self, port: &ServicePort, family: Family) -> UsableEndpoints {
        let zone = self.node.and_then(|node| node.zone.as_ref());
        UsableEndpoints::select(self.slices, port, family, zone)
    }

    /// Returns the scheduler in effect: `lc` is [`Scheduler::Random`] if it is not in use.
    pub fn scheduler(&self) -> Scheduler {
        let scheduler = self.service.scheduler.unwrap_or_default();
        match (scheduler, self.shares) {
            (Scheduler::LeastConnections, None) => Scheduler::Random,
            _ => scheduler,
        }
    }

    /// Returns the scheduler of a port: that of the service. `lc` is [`Scheduler::Random`] for port
    /// ranges, as connections are counted by protocol, and the ranges of all protocols share lists.
    pub fn scheduler_of(&self, port: &ServicePort) -> Scheduler {
        let scheduler = self.scheduler();
        let is_by_load = scheduler == Scheduler::LeastConnections;
        if is_by_load && port.is_of_ranges() { Scheduler::Random } else { scheduler }
    }

    /// Removes the endpoints of a port with weight 0 and returns the weights of the others,
    /// multiplied by their shares under scheduler `lc`. Returns `None` if weights have no effect,
    /// because each is 1 or all are 0.
    pub fn effective_weights(
        &self,
        port: &ServicePort,
        family: Family,
        targets: &mut TargetList,
    ) -> Option<Vec<Weight>> {
        let weights = self.annotated_weights(port, family, targets);
        let is_balanced = self.scheduler_of(port) == Scheduler::LeastConnections;
        let shares = self.shares.filter(|_| is_balanced);
        shares.and_then(|it| it.slots(port.protocol, targets, weights.as_deref())).or(weights)
    }

    /// Removes the endpoints of a port with weight 0 and returns the weights of the others by
    /// annotations alone, without shares. Returns `None` if weights have no effect.
    pub fn annotated_weights(
        &self,
        port: &ServicePort,
        family: Family,
        targets: &mut TargetList,
    ) -> Option<Vec<Weight>> {
        let rules = self.service.weights.as_ref();
        if rules.is_none() && !self.slices.iter().any(StoredSlice::is_weighed) {
            return None;
        }
        let weights = super::usable::weights(self.slices, port, family, rules);
        super::weights::weigh(targets, |target| weights.get(target).copied().unwrap_or(1))
    }

    /// Returns the endpoints of `family` that may have established flows to `port`, sorted: those
    /// that are ready or serve while they terminate.
    pub fn serving_endpoints(&self, port: &ServicePort, family: Family) -> Vec<Target> {
        let entries = entries(self.slices, port, family);
        let taking = entries.filter(|(_, endpoint)| endpoint.conditions.takes_flows());
        let mut targets: Vec<_> = taking.map(|(target, _)| target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Returns the number of distinct endpoints of `family` for new flows to `port`, by `nodeName`
    /// (empty if absent): the ready ones of the whole cluster, else those that serve while they
    /// terminate.
    ///
    /// Neither hints nor the order of slices count, so that all nodes get the same. `nodeName` is
    /// kept only while direct return is on.
    pub fn endpoints_by_node(&self, port: &ServicePort, family: Family) -> BTreeMap<Arc<str>, u32> {
        by_node::count(self.slices, port, family)
    }
}
