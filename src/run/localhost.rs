//! Localhost NodePorts need `route_localnet`, which is set once the tables protect the node from it.

use super::Run;
use crate::family::Family;
use crate::kernel::Kernel;
use crate::node::UNGUARDED;

/// Sets `route_localnet`; returns whether it is set.
pub type RouteLocalnet = Box<dyn FnOnce() -> bool + Send>;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Sets `route_localnet` if the IPv4 table, which drops packets of other hosts to loopback
    /// addresses, is in place. Without the sysctl, localhost NodePorts are left out.
    pub(super) fn route_localnet(&mut self) {
        if !self.is_synced || self.engine.blocked(Family::Ip).is_some() {
            return;
        }
        let Some(route_localnet) = self.route_localnet.take() else { return };
        if !route_localnet() {
            self.engine.leave_out_localhost();
            self.note_change();
        }
    }

    /// Warns if the tables, which were just read, protected the node and will not any more.
    pub(super) fn report_lost_guard(&self) {
        if self.engine.loses_guard() {
            tracing::warn!("nodePortAddresses no longer has localhost: {UNGUARDED}");
        }
    }
}
