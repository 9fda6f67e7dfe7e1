//! `route_localnet` for localhost NodePorts, set once the tables protect the node from other hosts.

use nft::family::Family;
use nft::kernel::Kernel;

use super::Run;
use crate::node::UNGUARDED;

/// Sets `route_localnet`; returns whether it is set.
pub type RouteLocalnet = Box<dyn FnOnce() -> bool + Send>;

impl<K: Kernel + Send + 'static> Run<K> {
    /// Sets `route_localnet` if the IPv4 table is in place, which drops packets of other hosts to
    /// loopback addresses. Leaves localhost NodePorts out if the sysctl cannot be set.
    pub(super) fn route_localnet(&mut self) {
        if !self.is_synced || self.engine.tables().blocked(Family::Ip).is_some() {
            return;
        }
        let Some(route_localnet) = self.route_localnet.take() else { return };
        if !route_localnet() {
            self.engine.leave_out_localhost();
            self.note_change();
        }
    }

    /// Warns if the tables just read protect the node and the desired ones do not.
    pub(super) fn report_lost_guard(&self) {
        if self.engine.node().loses_guard() {
            tracing::warn!("nodePortAddresses no longer has localhost: {UNGUARDED}");
        }
    }
}
