//! The result of table direct-return for a packet.

use engine::direct::ruleset::{NodeNumber, Route};

/// What table direct-return makes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectWay {
    /// The table has the destination.
    Chosen {
        /// The list of nodes, and how one is chosen.
        route: Route,
        /// The slot of the client; `None` if its port is not known, or if its connection is
        /// remembered.
        slot: Option<u32>,
        /// The node of the slot, or that of the remembered connection.
        node: Option<NodeNumber>,
        /// The connection is remembered.
        is_remembered: bool,
    },
    /// The packet comes from another node, which has handed it on.
    FromNode,
    /// The packet does not come in by a device of the table, which are these.
    OtherDevice(Vec<String>),
    /// The table does not have the destination.
    NoDestination,
}
