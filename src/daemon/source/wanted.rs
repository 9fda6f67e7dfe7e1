//! The objects of the cluster that one node needs.

use engine::routing::{Routing, ServedServices};

/// The objects that a source sends for one node.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// The Services that it serves.
    pub services: &'a ServedServices,
    /// It needs the Nodes of other nodes, and the nodes of endpoints: for direct return.
    pub other_nodes: bool,
}

impl<'a> Wanted<'a> {
    /// Returns what the node of that name needs with these settings.
    pub fn new(node: &'a str, routing: &'a Routing) -> Self {
        let other_nodes = routing.direct_return.is_some();
        Self { node, services: &routing.services, other_nodes }
    }
}
