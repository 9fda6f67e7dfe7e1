//! The addresses of nodes that direct return looks for on the links.

use std::net::IpAddr;

use engine::model::Cluster;
use nft::Family;

/// Returns the addresses of the other nodes: the first one of each family, by which packets are
/// handed to them.
pub(crate) fn other_nodes(cluster: &Cluster) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for peer in cluster.peers().values() {
        addresses.extend(Family::ALL.into_iter().filter_map(|family| peer.address(family)));
    }
    addresses
}

/// Returns the address of this node, whose device is the default.
pub(crate) fn own_address(cluster: &Cluster) -> Option<IpAddr> {
    cluster.node().and_then(|node| node.addresses.first().copied())
}
