//! Reads the state of the kernel for people, without the daemon.
//!
//! Needs no daemon, blocks none, and changes nothing.

pub mod counts;
pub mod explain;
pub mod refusals;
pub mod show;
pub mod tables;
#[cfg(feature = "top")]
pub mod top;
