//! Deletes conntrack entries of UDP flows that would go on to where they no longer belong.
//!
//! A UDP flow has no end that the kernel could see: a client that always sends from one port keeps
//! its entry alive, and with it the endpoint that was chosen once. Other protocols are left alone:
//! their connections end by themselves. Nothing here delays a commit, and nothing fails because of
//! it: what cannot be deleted is logged and found again later.
//!
//! Translated connections of every protocol can be read, to be counted ([`Connection`]).

mod abi;
mod cleaner;
mod connection;
mod flow;
mod message;
mod queue;
mod table;

pub use cleaner::{Cleaned, Cleaner, FlowList, Request};
pub use connection::{Connection, Stage};
pub use flow::{Flow, StaleFlow};
pub use queue::Limits;
pub use table::{ConntrackError, ConntrackTable, delete_request};
