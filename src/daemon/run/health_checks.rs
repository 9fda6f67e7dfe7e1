//! Health check ports report the committed state.

use nft::kernel::Kernel;

use super::Run;
use crate::observe;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Reports changed health checks. The kernel must hold the desired state.
    pub(super) fn update_health_checks(&mut self) {
        for (service, check) in self.engine.take_health_checks() {
            let check = check.map(|check| observe::HealthCheck {
                port: check.port,
                local_endpoints: check.local_endpoints,
            });
            self.observe.health_check(service.as_str(), check);
        }
        if let Some(addresses) = self.engine.take_health_check_addresses() {
            self.observe.health_check_addresses(addresses);
        }
    }
}
