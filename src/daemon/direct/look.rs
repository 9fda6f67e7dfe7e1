//! One look at the links, for commands that only compare.

use std::io;

use engine::direct::Links;
use engine::model::Cluster;
use engine::routing::DirectReturn;
use tokio::sync::watch;

use super::allowed_devices::AllowedDevices;
use super::node_links::{NodeLinks, Scope};
use super::requested::{other_nodes, own_address};
use super::tunnel::{TunnelEnds, TunnelSettings};

/// Returns what the kernel knows of the links at present. Makes it ask no neighbour.
///
/// # Errors
/// Routes or neighbours cannot be read.
pub fn look(settings: &DirectReturn, cluster: &Cluster) -> io::Result<Links> {
    let (_sender, address) = watch::channel(own_address(cluster));
    let (_sender, ends) = watch::channel(TunnelEnds::of(cluster));
    let mut links = NodeLinks::open(TunnelSettings::of(settings, ends))?;
    links.request(&other_nodes(cluster));
    links.catch_up(&mut AllowedDevices::of(settings, address), Scope::Round)?;
    links.look_for_tunnel()?;
    Ok(links.news())
}
