//! The proxy for TCP node ports at `[::1]`, which the kernel cannot translate.
//!
//! It accepts connections there and joins each to one of its own, to the node port at another
//! address of the node, or to the cluster IP if no address serves node ports. So the tables choose
//! the endpoint, as for any other connection of the node.
//!
//! It has a thread of its own: neither its clients nor its endpoints delay commits. Its connections
//! have limits in number, in memory and in time after a stop.

mod limits;
mod listener;
mod listeners;
mod ports;
mod relay;
mod relays;
mod socket;
mod thread;

pub use ports::ServedPorts;
pub use thread::LocalhostProxy;
