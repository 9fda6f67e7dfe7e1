//! What the process itself listens for, on behalf of services.

use super::health_checks::HealthChecks;
use super::localhost::LocalhostServices;
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
