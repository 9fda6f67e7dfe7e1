//! The desired slots of a service in one family, or why it has none.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nft::Family;

use super::nodes::Nodes;
use super::obstacle::Obstacle;
use super::ports::{self, DirectPort, NodeSlots};
use crate::desired::SlotBudget;
use crate::diff::Diff;
use crate::model::{Cluster, Protocol, ServiceView};

/// What the plan of a service depends on, besides the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World<'a> {
    pub(crate) cluster: &'a Cluster,
    /// The holders of frontends.
    pub(crate) diff: &'a Diff,
    pub(crate) slots: &'a SlotBudget,
}

/// The desired slots of a service in one family.
#[derive(Debug, Default)]
pub(super) struct DesiredSlots {
    /// The ports, each with its slots; without these, none of its nodes takes packets.
    pub(super) ports: Vec<(DirectPort, Option<NodeSlots>)>,
    /// Why packets are translated, although the service has direct return.
    pub(super) obstacle: Option<Obstacle>,
}

impl DesiredSlots {
    /// Returns the slots of a service with direct return.
    pub(super) fn of(
        (view, ports): (&ServiceView<'_>, Vec<DirectPort>),
        family: Family,
        (nodes, node_addresses): (&Nodes, &BTreeSet<IpAddr>),
        world: World<'_>,
    ) -> Self {
        let grants = world.slots.of(&view.service.name);
        let slots = |port: &DirectPort| {
            check_addresses(port, node_addresses)?;
            let most = grants.of_nodes(family, port.index).given;
            ports::slots(view, port, (family, most), (nodes, world.cluster))
        };
        match ports.iter().map(slots).collect::<Result<Vec<_>, _>>() {
            Ok(slots) => Self { ports: ports.into_iter().zip(slots).collect(), obstacle: None },
            Err(obstacle) => Self::translated(ports, Some(obstacle)),
        }
    }

    /// Returns one whose packets this node translates.
    pub(super) fn translated(ports: Vec<DirectPort>, obstacle: Option<Obstacle>) -> Self {
        Self { ports: ports.into_iter().map(|port| (port, None)).collect(), obstacle }
    }

    /// Returns whether packets are to be handed on.
    pub(super) fn is_direct(&self) -> bool {
        self.ports.iter().any(|(_, slots)| slots.is_some())
    }
}

/// Checks that answers of other connections cannot come to the destinations of a port.
fn check_addresses(port: &DirectPort, node_addresses: &BTreeSet<IpAddr>) -> Result<(), Obstacle> {
    let mut at_node = port.destinations.iter().filter(|it| node_addresses.contains(&it.address));
    match at_node.next() {
        Some(destination) if port.protocol != Protocol::Tcp => {
            Err(Obstacle::NoTcpAtNodeAddress(destination.address))
        }
        Some(_) | None => Ok(()),
    }
}
