//! The health checks of services, and their changes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ahash::HashMap;
use nft::family::Family;

use crate::model::{HealthCheck, ObjectName};
use crate::routing::Routing;

#[derive(Debug, Default)]
pub(super) struct HealthChecks {
    all: HashMap<ObjectName, HealthCheck>,
    changed: BTreeSet<ObjectName>,
    /// `None` if they have not changed since the last call of `take_health_check_addresses`.
    addresses: Option<Vec<IpAddr>>,
}

impl HealthChecks {
    /// Records the health check of a service; `None` if it has none.
    pub(super) fn note(&mut self, service: &ObjectName, check: Option<HealthCheck>) {
        if self.all.get(service) == check.as_ref() {
            return;
        }
        match check {
            Some(check) => self.all.insert(service.clone(), check),
            None => self.all.remove(service),
        };
        self.changed.insert(service.clone());
    }

    /// Takes the services whose health check has changed since the last call, sorted, with the new
    /// one.
    pub(super) fn take_changed(&mut self) -> Vec<(ObjectName, Option<HealthCheck>)> {
        let Self { all, changed, .. } = self;
        let changed = std::mem::take(changed).into_iter();
        changed.map(|service| (service.clone(), all.get(&service).copied())).collect()
    }

    /// Takes the addresses of health check ports, if they have changed since the last call: those
    /// of NodePorts. `0.0.0.0` and `::` stand for all addresses of their family.
    pub(super) fn take_addresses(&mut self) -> Option<Vec<IpAddr>> {
        self.addresses.take()
    }

    /// Opens health check ports at `node_port_ips`, and at all addresses of families without
    /// limits.
    pub(super) fn open_at(&mut self, node_port_ips: &[IpAddr], routing: &Routing) {
        let everywhere = |family: &Family| routing.node_ports_everywhere(*family);
        let unspecified = Family::ALL.into_iter().filter(everywhere).map(|family| match family {
            Family::Ip => Ipv4Addr::UNSPECIFIED.into(),
            Family::Ip6 => Ipv6Addr::UNSPECIFIED.into(),
        });
        self.addresses = Some(unspecified.chain(node_port_ips.iter().copied()).collect());
    }
}
