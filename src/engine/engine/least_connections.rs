//! Scheduler `lc`: weights that follow live connections.

use nft::family::Family;

use super::Engine;
use super::queue::Lane;
use crate::model::{Adjusted, Extent, LiveConnections, ObjectName};
use crate::ruleset::Frontend;

impl Engine {
    /// Returns whether a service has scheduler `lc`, and it is in use.
    pub fn has_balanced_services(&self) -> bool {
        self.cluster.has_balanced_services()
    }

    /// Returns the services whose turn it is, with the endpoints whose connections count.
    pub fn to_be_balanced(&self) -> LiveConnections {
        self.cluster.to_be_balanced()
    }

    /// Adjusts weights to live connections and queues the services with other ones. The number of
    /// changes is limited as configured.
    pub fn balance(&mut self, counted: &LiveConnections) -> Adjusted {
        let Some(settings) = self.routing.least_connections else { return Adjusted::default() };
        let mut touched = Vec::new();
        let touch = |name: &ObjectName| touched.push((name.clone(), Extent::Whole));
        let adjusted = self.cluster.balance(counted, settings.changes(), touch);
        // Changes of objects come first.
        self.queue.add_to(Lane::Slow, touched.into_iter());
        adjusted
    }

    /// Sets the weights of services without any to those that were read.
    pub(super) fn adopt_weights(&mut self) {
        let names: Vec<_> = self.cluster.balanced_services().cloned().collect();
        for name in names {
            let ips = self.cluster.cluster_ips(&name);
            let diff = &self.diff;
            self.cluster.adopt_shares(&name, |port, family| {
                let (protocol, port) = (port.protocol, port.port);
                let mut own = ips.iter().filter(|ip| Family::of(**ip) == family);
                let frontend = |address| Frontend::Address { address, protocol, port };
                own.next().map(|ip| diff.slots_at(&frontend(*ip))).unwrap_or_default()
            });
        }
    }
}
