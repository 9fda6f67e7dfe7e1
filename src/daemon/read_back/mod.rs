//! Reading our tables from the kernel, whole or a few elements by their keys.
//!
//! The engine does no I/O: it returns what to look up and takes what was found.

mod direct_table;
mod requests;
mod tables;

pub use direct_table::read_direct_return;
pub use requests::{answer, look_up_changed};
pub use tables::{Lists, read_back, read_watching};
