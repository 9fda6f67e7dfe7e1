//! What an earlier run of the daemon, or the running one, made of services.

use std::collections::BTreeSet;

use super::desired_slots::DesiredSlots;
use super::elements::Elements;
use super::phase::Phase;
use super::planned::{FamilyPlan, PortPlan};
use super::ruleset::{Destination, DirectRoute, NodeNumber};
use crate::model::{Cluster, ObjectName, ServicePort};
use crate::ruleset::Frontend;

/// The tables of an earlier run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Former<'a> {
    /// The elements of table direct-return.
    pub(super) elements: &'a Elements,
    /// The number of this node.
    pub(super) own: NodeNumber,
    /// Frontends whose packets table kube-proxy translates to endpoints of this node alone, if known.
    pub(super) local: &'a BTreeSet<Frontend>,
}

impl Former<'_> {
    /// Returns the families in which nodes handed packets of a service to each other, if any.
    pub(super) fn handed(self, name: &ObjectName, cluster: &Cluster) -> Option<[bool; 2]> {
        let service = cluster.service(name)?.service;
        let external = || service.load_balancer_ips.iter().chain(&service.external_ips).copied();
        let own = || cluster.node().into_iter().flat_map(|node| &node.addresses).copied();
        let mut families = [false; 2];
        for ServicePort { protocol, port, node_port, .. } in &service.ports {
            let at = |port| move |address| Destination { address, protocol: *protocol, port };
            let at_nodes = node_port.iter().flat_map(|port| own().map(at(*port)));
            let destinations = external().map(at(*port)).chain(at_nodes);
            for destination in destinations.filter(|it| self.has_direct(*it)) {
                families[destination.family().index()] = true;
            }
        }
        families.contains(&true).then_some(families)
    }

    fn has_direct(self, destination: Destination) -> bool {
        let route = self.elements.route(destination);
        route.is_some_and(|route| self.is_direct(destination, route))
    }

    /// Takes over the lists of a service, and returns its phase then. A list that is `held` is that
    /// of another service, from which this one has taken the address.
    pub(super) fn adopt(
        self,
        plan: &mut FamilyPlan,
        desired: &DesiredSlots,
        held: &Elements,
    ) -> Option<Phase> {
        let mut phase = None;
        for (port, _) in &desired.ports {
            let routes = port.destinations.iter();
            let mut routes = routes.filter_map(|it| Some((*it, self.elements.route(*it)?)));
            let free = routes.find(|(_, route)| held.slots(route.list).is_empty());
            let Some((destination, route)) = free else { continue };
            if self.is_direct(destination, route) {
                phase = Some(Phase::Direct);
            }
            let known = PortPlan { list: route.list, destinations: port.destinations.clone() };
            plan.ports.entry((port.protocol, port.port)).or_insert(known);
        }
        phase
    }

    /// Returns whether nodes handed packets to each other: the list has another node than this one,
    /// or packets were translated as if it could.
    fn is_direct(self, destination: Destination, route: DirectRoute) -> bool {
        let mut nodes = self.elements.slots(route.list).iter().flatten();
        let leads_here = |frontend| self.local.contains(&frontend);
        leads_here(destination.frontend())
            || leads_here(destination.node_port())
            || nodes.any(|node| *node != self.own)
    }
}
