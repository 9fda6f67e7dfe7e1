//! Deletes conntrack entries of stale flows, and counts live connections.
//!
//! UDP has no end of a connection that conntrack could detect. A client that always sends from one
//! port keeps its entry alive, and with it the endpoint chosen for the first packet. So does a client
//! of TCP or SCTP that repeats its first packet and gets no answer. Answered connections of these are
//! never deleted: they end by themselves. Nothing here delays a
//! commit or makes the daemon fail: an error is logged, and a later list finds the flow again.

mod cleaner;
mod counter;
mod queue;

pub use cleaner::{Cleaner, FlowList, Request};
pub use counter::{ConnectionCounter, Count};
pub use queue::{Cleaned, Limits};
