//! Direct return: packets of a client are handed to another node, which answers the client itself.

mod reach;

pub use reach::{Reach, Unreachable};
