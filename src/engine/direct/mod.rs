//! Direct return: packets from outside go to a node with an endpoint, which answers the client itself.

mod reach;
pub mod ruleset;

pub use reach::{Reach, Unreachable};
