//! Connections that conntrack tracks: UDP flows of services, listed and deleted one by one, and
//! translated connections of every protocol ([`Connection`]), for statistics and scheduler `lc`.

mod abi;
mod attributes;
mod connection;
mod message;
mod reopened;
mod table;

pub use connection::{Connection, Stage};
pub use reopened::ReopenedTable;
pub use table::{ConntrackError, ConntrackTable, delete_request};
