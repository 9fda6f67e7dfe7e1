//! What an earlier run of the daemon, or the running one, made of services.

use std::collections::BTreeSet;

use nft::Family;

use super::elements::Elements;
use super::phase::Phase;
use super::planned::{FamilyPlan, PortPlan};
use super::ruleset::{Destination, NodeNumber, Route};
use super::target::Target;
use crate::model::{Cluster, Handed, ObjectName, ServicePort};

/// The tables of an earlier run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Former<'a> {
    /// The elements of table direct-return.
    pub(super) elements: &'a Elements,
    /// The number of this node.
    pub(super) own: NodeNumber,
    /// Destinations that table kube-proxy translates to endpoints of this node alone, if known.
    pub(super) local: &'a BTreeSet<Destination>,
}

impl Former<'_> {
    /// Returns what was made of a service; `None` if nodes did not hand its packets to each other.
    pub(super) fn handed(self, name: &ObjectName, cluster: &Cluster) -> Option<Handed> {
        let service = cluster.service(name)?.service;
        let external = || service.load_balancer_ips.iter().chain(&service.external_ips).copied();
        let mut handed = Handed::default();
        for ServicePort { protocol, port, .. } in &service.ports {
            for address in external() {
                let destination = Destination { address, protocol: *protocol, port: *port };
                let route = self.elements.route(destination);
                if route.is_some_and(|route| self.is_direct(destination, route)) {
                    handed.families[Family::of(address).index()] = true;
                }
            }
        }
        handed.families.contains(&true).then_some(handed)
    }

    /// Takes over the lists of a service, and returns its phase then.
    pub(super) fn adopt(self, plan: &mut FamilyPlan, target: &Target) -> Option<Phase> {
        let mut phase = None;
        for (port, _) in &target.ports {
            let routes = port.destinations.iter();
            let mut routes = routes.filter_map(|it| Some((*it, self.elements.route(*it)?)));
            let Some((destination, route)) = routes.next() else { continue };
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
    fn is_direct(self, destination: Destination, route: Route) -> bool {
        let mut nodes = self.elements.slots(route.list).iter().flatten();
        self.local.contains(&destination) || nodes.any(|node| *node != self.own)
    }
}
