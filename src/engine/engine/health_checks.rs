//! The health checks of services, and their changes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ahash::HashMap;
use nft::family::Family;

use super::Engine;
use crate::model::{HealthCheck, ObjectName};

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
}

impl Engine {
    /// Returns the services whose health check has changed since the last call, sorted, with the new
    /// one.
    pub fn take_health_checks(&mut self) -> Vec<(ObjectName, Option<HealthCheck>)> {
        let HealthChecks { all, changed, .. } = &mut self.health_checks;
        let changed = std::mem::take(changed).into_iter();
        changed.map(|service| (service.clone(), all.get(&service).copied())).collect()
    }

    /// Returns the addresses of health check ports, if they have changed since the last call: those
    /// of NodePorts. `0.0.0.0` and `::` stand for all addresses of their family.
    pub fn take_health_check_addresses(&mut self) -> Option<Vec<IpAddr>> {
        self.health_checks.addresses.take()
    }

    /// Opens health check ports at `node_port_ips`, and at all addresses of families without
    /// limits.
    pub(super) fn note_health_check_addresses(&mut self, node_port_ips: &[IpAddr]) {
        let everywhere = |family: &Family| self.routing.node_ports_everywhere(*family);
        let unspecified = Family::ALL.into_iter().filter(everywhere).map(|family| match family {
            Family::Ip => Ipv4Addr::UNSPECIFIED.into(),
            Family::Ip6 => Ipv6Addr::UNSPECIFIED.into(),
        });
        self.health_checks.addresses =
            Some(unspecified.chain(node_port_ips.iter().copied()).collect());
    }
}
