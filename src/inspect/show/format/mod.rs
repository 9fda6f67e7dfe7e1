//! Output formats of services, one file each.
//!
//! Rows are written while they are built. Text from the kernel's tables is escaped.

mod brief;
pub(super) mod cells;
mod detail;
mod document;
mod ipvsadm;
mod listing;
mod lists;
#[cfg(test)]
pub(super) mod sample;

pub use brief::brief;
#[cfg(feature = "top")]
pub(crate) use cells::age;
pub use detail::detail;
pub use document::{DocumentFormat, draining_document, services};
pub use ipvsadm::ipvsadm;
pub use listing::listing;
pub use lists::{
    client_connections, client_connections_document, draining, refused, refused_document,
};
