//! Connections that conntrack tracks: UDP flows of services, listed and deleted one by one, and
//! translated connections of every protocol ([`Connection`]), for statistics and scheduler `lc`.

mod abi;
mod attributes;
mod connection;
mod filter;
mod message;
mod reopened;
mod search;
mod table;

pub use connection::{Connection, Stage};
pub use reopened::ReopenedTable;
pub use table::{Clock, ConntrackError, ConntrackTable, delete_request};
