//! Direct return: the node that a packet reaches hands it to a node with an endpoint, and that one
//! answers the client itself.
//!
//! A room of its own: nothing here runs while the setting is off. The packet keeps its addresses on
//! the way, so external traffic of policy `Cluster` keeps the client's address. A table of family
//! netdev chooses the node, before conntrack; its rules are constant ([`ruleset`]). The chosen node
//! translates to one of its own endpoints, by the list of local endpoints in table kube-proxy.
//!
//! ```text
//!  Cluster, Reach --> ports  --> phase --> table, desired --changes, by stages--> Engine
//!                                           installed <-- read
//! ```

mod changes;
mod desired_slots;
mod elements;
mod former;
mod links;
mod nodes;
mod obstacle;
mod phase;
mod planned;
mod plans;
mod ports;
mod room;
pub mod ruleset;
mod table;

pub(crate) use desired_slots::World;
pub use links::{Links, Reach, Unreachable, Unsuitable};
pub use nodes::node_number;
pub use room::Direct;
pub use table::{Found, is_own};
