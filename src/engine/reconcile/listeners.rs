//! What the process itself listens for, on behalf of services.

use std::collections::BTreeSet;

use ahash::HashMap;

use super::health_checks::HealthChecks;
use crate::model::{Cluster, LocalhostPorts, ObjectName};

#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) health_checks: HealthChecks,
    /// `None` if nothing serves node ports at `[::1]`.
    pub(super) localhost: Option<LocalhostServices>,
}

impl Listeners {
    /// Records what a service has now.
    pub(super) fn note(&mut self, service: &ObjectName, cluster: &Cluster) {
        self.health_checks.note(service, cluster.health_check(service));
        if let Some(localhost) = &mut self.localhost {
            localhost.note(service, LocalhostPorts::of(cluster, service));
        }
    }
}

/// The services with node ports at `[::1]`, and their changes.
/// The services with node ports at `[::1]`, and their changes.
#[derive(Debug, Default)]
pub(super) struct LocalhostServices {
    all: HashMap<ObjectName, LocalhostPorts>,
    changed: BTreeSet<ObjectName>,
}

impl LocalhostServices {
    /// Records the ports of a service; `None` if it has none.
    pub(super) fn note(&mut self, service: &ObjectName, ports: Option<LocalhostPorts>) {
        if self.all.get(service) == ports.as_ref() {
            return;
        }
        match ports {
            Some(ports) => self.all.insert(service.clone(), ports),
            None => self.all.remove(service),
        };
        self.changed.insert(service.clone());
    }

    /// Takes the services whose ports have changed since the last call, sorted, with the new ones.
    pub(super) fn take_changed(&mut self) -> Vec<(ObjectName, Option<LocalhostPorts>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|service| (service.clone(), self.all.get(&service).cloned())).collect()
    }
}
