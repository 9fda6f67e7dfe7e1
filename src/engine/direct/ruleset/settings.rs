//! What the rules of the table depend on.

use std::time::Duration;

use nft::Name;

/// The settings of the fixed rules of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The devices at whose ingress packets are handed on. Without any there is no base chain.
    pub devices: Vec<Name>,
    /// The device at whose ingress packets arrive from nodes alone.
    pub tunnel: Option<Name>,
    /// Time after its last packet for which a connection keeps its node.
    pub remember: Duration,
    /// Maximum number of remembered connections.
    pub connections: u32,
    /// Other nodes hand on packets to their own addresses, at node ports of TCP.
    pub node_ports: bool,
    /// The seed of the hash of a client. Nodes with the same seed choose alike.
    pub hash_seed: u32,
}
