//! Deletes conntrack entries of UDP flows that would go on to where they no longer belong.
//!
//! A UDP flow has no end that the kernel could see: a client that always sends from one port keeps
//! its entry alive, and with it the endpoint that was chosen once. Other protocols are left alone:
//! their connections end by themselves. Nothing here delays a commit, and nothing fails because of
//! it: what cannot be deleted is logged.

mod cleaner;
mod flow;
mod message;
mod table;

pub use cleaner::{Cleaned, Cleaner};
pub use flow::{Flow, StaleFlow};
pub use table::{ConntrackError, ConntrackTable, read_flow};
