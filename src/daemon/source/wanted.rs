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

#[cfg(test)]
mod tests {
    use engine::routing::{DirectMode, DirectReturn};

    use super::*;

    #[test]
    fn other_nodes_are_needed_for_direct_return_alone() {
        let mut routing = Routing::default();
        assert!(!Wanted::new("n", &routing).other_nodes);
        routing.direct_return = Some(DirectReturn::new(DirectMode::Annotated));
        assert!(Wanted::new("n", &routing).other_nodes);
    }
}
