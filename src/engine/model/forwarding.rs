//! How packets from outside get to an endpoint on another node.

/// How a node forwards packets from outside to an endpoint on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Unchanged, to the node of the endpoint, which answers the client itself.
    Direct,
    /// With the addresses of the endpoint and of this node. Answers return through this node.
    Translate,
}
