//! Deletes conntrack entries of stale UDP flows.
//!
//! UDP has no end of a connection that conntrack could detect. A client that always sends from one
//! port keeps its entry alive, and with it the endpoint chosen for the first packet. Entries of
//! other protocols are not deleted: their connections end by themselves. Nothing here delays a
//! commit or makes the daemon fail: an error is logged, and a later list finds the flow again.
//!
//! Also reads translated connections of every protocol, for statistics ([`Connection`]) and for the
//! scheduler `lc` ([`ConnectionCounter`]).

mod abi;
mod cleaner;
mod connection;
mod counter;
mod flow;
mod message;
mod queue;
mod reopened;
mod table;

pub use cleaner::{Cleaned, Cleaner, FlowList, Request};
pub use connection::{Connection, Stage};
pub use counter::{ConnectionCounter, Count};
pub use flow::{Flow, StaleFlow};
pub use queue::Limits;
pub use reopened::ReopenedTable;
pub use table::{ConntrackError, ConntrackTable, delete_request};
