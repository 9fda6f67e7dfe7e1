//! Services as the kernel has them, with their endpoints and connections.
//!
//! [`Services`] is what the tables hold, [`Connections`] what conntrack tracks of it, [`Clients`]
//! what session affinity remembers. A [`View`] puts them together, a row for each frontend, and
//! `format` writes rows while they are made: the memory used grows with the tables and not with the
//! number of connections.

mod busiest;
mod clients;
mod connections;
pub mod format;
mod latest;
mod read;
mod row;
mod search;
mod select;
mod services;
mod view;

pub use busiest::{BusyService, DrainingEndpoint, Order, Top};
pub use clients::Clients;
pub use connections::{Connections, Counts};
pub use latest::Latest;
pub use read::read;
pub use row::{Choice, EndpointRow, EndpointState, Kind, Policy, Row, Scheduler};
pub use search::Matches;
pub use select::{Selector, SelectorError};
pub use services::{Entry, Services};
pub use view::View;
