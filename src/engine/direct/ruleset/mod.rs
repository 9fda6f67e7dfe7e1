//! The chains, rules, sets and maps of the table for direct return, and their elements.
//!
//! The table is of family netdev, for both IP families. Its rules run at the ingress of the outer
//! devices, before conntrack. They depend on [`DirectSettings`] alone: services, nodes, and the devices
//! that lead to nodes are elements without verdicts.
//!
//! A packet to a service takes these steps:
//!
//! ```text
//! ingress    addresses4: an address with such a service?
//! direct4    from a node, or flooded: serve it; a later fragment: the node of the first one
//!            frontends4: priority = route; error-frontends4: the same for an ICMP error
//! choose4    hash of the client -> slot of the list -> mark = number of a node
//! chosen4    connections: the node that the client had before; fragments4: note the node
//! send4      mark -> address and device of another node -> forward
//! here       no address: this node serves the packet, in table kube-proxy
//! ```
//!
//! The first packet to a node port that this node serves, chosen here or by another node, has the
//! priority [`CHOSEN_NODE`](crate::ruleset::number::CHOSEN_NODE) there.

mod base;
mod chain;
mod choose;
mod element;
mod errors;
mod inner;
mod layout;
mod number;
mod packet;
mod send;
mod sets;

pub use base::base;
pub(crate) use base::ending;
pub use element::{Destination, DirectElement, DirectKey};
pub use layout::{DirectSettings, LAYOUT, TABLE, TABLE_COMMENT, table, table_comment};
pub use number::{DirectRoute, NodeListId, NodeNumber};
pub use sets::DirectSet;
