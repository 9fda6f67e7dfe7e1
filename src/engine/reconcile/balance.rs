//! Scheduler `lc`: weights that follow live connections.

use nft::family::Family;

use super::queue::Lane;
use super::updates::Updates;
use crate::diff::Diff;
use crate::model::{Adjusted, Cluster, Extent, LiveConnections, ObjectName};
use crate::routing::LeastConnections;
use crate::ruleset::Frontend;

/// Adjusts weights to counted connections, and queues the services whose weights changed.
pub(super) fn balance(
    cluster: &mut Cluster,
    updates: &mut Updates,
    settings: LeastConnections,
    counted: &LiveConnections,
) -> Adjusted {
    let mut touched = Vec::new();
    let touch = |name: &ObjectName| touched.push((name.clone(), Extent::Whole));
    let adjusted = cluster.balance(counted, settings.changes(), touch);
    // Changes of objects come first.
    updates.queue.add_to(Lane::Slow, touched.into_iter());
    adjusted
}

/// Sets the weights of services without any to those that were read.
pub(super) fn adopt_weights(cluster: &mut Cluster, diff: &Diff) {
    let names: Vec<_> = cluster.balanced_services().cloned().collect();
    for name in names {
        let ips = cluster.cluster_ips(&name);
        cluster.adopt_shares(&name, |port, family| {
            let (protocol, port) = (port.protocol, port.port);
            let mut own = ips.iter().filter(|ip| Family::of(**ip) == family);
            let frontend = |address| Frontend::Address { address, protocol, port };
            own.next().map(|ip| diff.slots_at(&frontend(*ip))).unwrap_or_default()
        });
    }
}
