//! Name and layout number of the table, and what its rules depend on.

use std::time::Duration;

use nft::{Name, TableFamily, TableRef};

/// The name of the table.
pub const TABLE: &str = "direct-return";

/// The number of this layout. A table of another layout is replaced as a whole. Other chains and
/// rules with the same sets and elements need no other number: they are replaced alone.
pub const LAYOUT: u32 = 1;

/// The comment of the table, before the layout's number.
pub const TABLE_COMMENT: &str = "direct return of deltaproxy, layout ";

/// Returns the table.
pub fn table() -> TableRef {
    TableRef::new(TableFamily::Netdev, TABLE)
}

/// Returns the comment of the table with the layout's number. nft(8) keeps it in a listing.
pub fn table_comment() -> String {
    format!("{TABLE_COMMENT}{LAYOUT}")
}

/// The settings of the fixed rules of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectSettings {
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
