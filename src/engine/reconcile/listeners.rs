//! What the process itself listens for, on behalf of services.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ahash::HashMap;
use nft::family::Family;

use crate::model::{Cluster, HealthCheck, LocalhostPorts, ObjectName};
use crate::routing::Routing;

#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) health_checks: Listening<HealthCheck>,
    /// Addresses of health check ports: those of NodePorts. `0.0.0.0` and `::` stand for all
    /// addresses of their family. `None` if they have not changed since they were taken.
    pub(super) health_check_addresses: Option<Vec<IpAddr>>,
    /// Node ports at `[::1]`; `None` if nothing serves them there.
    pub(super) localhost: Option<Listening<LocalhostPorts>>,
}

/// What services have, and the services with another one since the last call of `take_changed`.
#[derive(Debug)]
pub(super) struct Listening<T> {
    all: HashMap<ObjectName, T>,
    changed: BTreeSet<ObjectName>,
}

impl Listeners {
    /// Records what a service has now.
    pub(super) fn note(&mut self, service: &ObjectName, cluster: &Cluster) {
        self.health_checks.note(service, HealthCheck::of(cluster, service));
        if let Some(localhost) = &mut self.localhost {
            localhost.note(service, LocalhostPorts::of(cluster, service));
        }
    }

    /// Opens health check ports at `node_port_ips`, and at all addresses of families without
    /// limits.
    pub(super) fn open_health_checks(&mut self, node_port_ips: &[IpAddr], routing: &Routing) {
        let everywhere = |family: &Family| routing.node_ports_everywhere(*family);
        let unspecified = Family::ALL.into_iter().filter(everywhere).map(|family| match family {
            Family::Ip => Ipv4Addr::UNSPECIFIED.into(),
            Family::Ip6 => Ipv6Addr::UNSPECIFIED.into(),
        });
        self.health_check_addresses =
            Some(unspecified.chain(node_port_ips.iter().copied()).collect());
    }
}

impl<T> Default for Listening<T> {
    fn default() -> Self {
        Self { all: HashMap::default(), changed: BTreeSet::new() }
    }
}

impl<T: Clone + PartialEq> Listening<T> {
    /// Records what a service has; `None` if it has nothing.
    fn note(&mut self, service: &ObjectName, new: Option<T>) {
        if self.all.get(service) == new.as_ref() {
            return;
        }
        match new {
            Some(new) => self.all.insert(service.clone(), new),
            None => self.all.remove(service),
        };
        self.changed.insert(service.clone());
    }

    /// Takes the services that have changed since the last call, sorted, with what they have now.
    pub(super) fn take_changed(&mut self) -> Vec<(ObjectName, Option<T>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|service| (service.clone(), self.all.get(&service).cloned())).collect()
    }
}
