//! What the kernel holds and does, for people: read from it and not from the daemon.
//!
//! So everything here works without a daemon, and a daemon waits for none of it. Nothing is changed.

pub mod counts;
pub mod explain;
pub mod show;
pub mod tables;
pub mod top;
