//! The ports of a service with direct return in one family, and the slots of their nodes.

use std::net::IpAddr;
use std::num::NonZeroU16;

use nft::Family;

use super::nodes::Nodes;
use super::obstacle::Obstacle;
use super::ruleset::{Destination, NodeNumber};
use crate::desired::maglev;
use crate::diff::Diff;
use crate::model::{Cluster, Protocol, ServicePort, ServiceView, Weight};
use crate::ruleset::number::TableSize;
use crate::ruleset::{Frontend, Subject};

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectPort {
    /// Its position in the service.
    pub(super) index: usize,
    pub(super) protocol: Protocol,
    pub(super) port: NonZeroU16,
    /// The external addresses that are the service's, and its node port.
    pub(super) destinations: Vec<Destination>,
    /// The hash is of the client's address alone.
    pub(super) by_address: bool,
}

/// A table of slots: its size, and the node in each.
pub(super) type NodeSlots = (TableSize, Vec<Option<NodeNumber>>);

/// Returns the ports of a service with destinations in `family`.
///
/// `node_address` is the address of this node whose node ports of TCP have direct return. Packets of
/// UDP and SCTP there may be answers to masqueraded connections.
///
/// Of an address that several services claim, the one that has the frontend in table kube-proxy has
/// it here too.
pub(super) fn ports(
    view: &ServiceView<'_>,
    node_address: Option<IpAddr>,
    family: Family,
    diff: &Diff,
) -> Vec<DirectPort> {
    let service = &view.service;
    let by_address = service.session_affinity.is_some();
    let external = || service.load_balancer_ips.iter().chain(&service.external_ips).copied();
    let of_port = |(index, port): (usize, &ServicePort)| {
        let ServicePort { protocol, port, node_port, .. } = *port;
        let destination = |address| Destination { address, protocol, port };
        let holds =
            |frontend| diff.service_of(family, Subject::Frontend(frontend)) == Some(&service.name);
        let of_family = external().filter(|address| Family::of(*address) == family);
        let mut destinations: Vec<_> =
            of_family.map(destination).filter(|it| holds(it.frontend())).collect();
        let node_port = node_port.filter(|port| {
            protocol == Protocol::Tcp && holds(Frontend::NodePort { family, protocol, port: *port })
        });
        let at_node = |(address, port)| Destination { address, protocol, port };
        destinations.extend(node_address.zip(node_port).map(at_node));
        destinations.sort_unstable();
        destinations.dedup();
        DirectPort { index, protocol, port, destinations, by_address }
    };
    let ports = service.ports.iter().enumerate().map(of_port);
    ports.filter(|port| !port.destinations.is_empty()).collect()
}

/// Returns the slots of the table of a port's nodes, at most `most`; `None` if it has none. They are
/// empty while all endpoints are on nodes that cannot be reached at the moment.
///
/// # Errors
/// See [`Nodes::hop`], or no such table holds all nodes.
pub(super) fn slots(
    view: &ServiceView<'_>,
    port: &DirectPort,
    (family, most): (Family, u32),
    (nodes, cluster): (&Nodes, &Cluster),
) -> Result<Option<NodeSlots>, Obstacle> {
    let Some(port) = view.service.ports.get(port.index) else { return Ok(None) };
    let mut list = Vec::new();
    for (name, endpoints) in view.endpoints_by_node(port, family) {
        let hop = nodes.hop(&name, family, cluster)?;
        list.extend(hop.map(|hop| (hop, weight(endpoints))));
    }
    // An order that all nodes share.
    list.sort_unstable();
    list.dedup_by_key(|(hop, _)| hop.number);
    // No table has more slots.
    list.truncate(TableSize::LARGEST.slots() as usize);
    let Some(size) = maglev::size_within(list.len(), most) else {
        return if list.is_empty() { Ok(None) } else { Err(Obstacle::NoSlots) };
    };
    let hashes: Vec<_> = list.iter().map(|(hop, _)| hop.hash).collect();
    let weights: Vec<_> = list.iter().map(|(_, weight)| *weight).collect();
    let table = maglev::fill(&hashes, Some(&weights), size);
    let node_at = |place: &u16| list.get(usize::from(*place)).map(|(hop, _)| hop.number);
    Ok(Some((size, table.iter().map(node_at).collect())))
}

/// Returns the weight of a node: its number of endpoints, up to a power of two. With the number
/// itself, each endpoint that comes or goes would move slots of all nodes.
fn weight(endpoints: u32) -> Weight {
    let most = 1 << (Weight::BITS - 1);
    u16::try_from(endpoints).unwrap_or(most).min(most).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_powers_of_two() {
        let weights = [0, 1, 2, 3, 4, 5, 1_000, 40_000, 100_000].map(weight);
        assert_eq!(weights, [1, 1, 2, 4, 4, 8, 1_024, 32_768, 32_768]);
    }
}
