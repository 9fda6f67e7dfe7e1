//! Services in the kernel, with their endpoints and connections.
//!
//! [`Services`] holds the contents of the tables, [`Connections`] their connections in conntrack,
//! and [`Clients`] the clients of session affinity. A [`View`] joins them, one row for each
//! frontend. `format` writes rows while they are built: memory grows with the tables, not with the
//! number of connections.

mod busiest;
mod client_connections;
mod clients;
mod connections;
mod ended;
mod filter;
pub mod format;
mod latest;
mod read;
mod refused;
mod row;
mod search;
mod select;
mod services;
mod view;

pub use busiest::{BusyService, DrainingEndpoint, Order, Top};
pub use client_connections::{ClientConnections, MOST, OfEndpoints};
pub use clients::Clients;
pub use connections::{Connections, Counts};
pub use ended::{EndedEndpoint, ended_document, ended_endpoints, write_ended};
pub use filter::{Endpoints, EndpointsError, Filter, OfServices};
pub use latest::Latest;
pub use read::read;
pub use refused::refresh_refused;
pub use row::{Choice, EndpointRow, EndpointState, Kind, Policy, Row, Scheduler};
pub use select::{Selector, SelectorError};
pub use services::{Entry, Services};
pub use view::View;
