//! Three nodes on one link, each with a daemon of its own that reads manifests.
//!
//! Pods serve TCP, UDP and SCTP on [`PORT`] and answer with their name: `a1` and `a2` are on node-a,
//! and so on. Clients come from behind a router, which sends packets to services to one node.

mod nodes;
mod objects;
mod probes;
mod table;

pub use self::nodes::{Cluster, PORT, SOON};
pub use self::objects::{ADDRESS, endpoint, node, slice, web};
pub use self::probes::{Seen, place_of, service};
