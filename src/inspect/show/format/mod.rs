//! Output formats of services, one file each.
//!
//! Rows are written while they are built. Text from the kernel's tables is escaped.

mod brief;
pub(super) mod cells;
mod client_connections;
mod detail;
mod document;
mod draining;
mod ipvsadm;
mod listing;
mod refused;
#[cfg(test)]
pub(super) mod sample;

pub use brief::{Brief, brief};
#[cfg(feature = "top")]
pub(crate) use cells::age;
pub use client_connections::{client_connections, client_connections_document};
pub use detail::detail;
pub use document::{draining_json, draining_yaml, json, yaml};
pub use draining::draining;
pub use ipvsadm::ipvsadm;
pub use listing::listing;
pub use refused::{refused, refused_document};
