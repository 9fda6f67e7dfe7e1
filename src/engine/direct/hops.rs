//! Nodes by their numbers, which are equal on all nodes.

use super::ruleset::NodeNumber;
use crate::stable_hash;

/// A node to which packets can be handed, or this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hop {
    pub(super) number: NodeNumber,
    /// The hash of its name, for the table of slots.
    pub(super) hash: u64,
}

/// Returns the number and hash of a node, which are equal on all nodes.
pub(super) fn hop_of(name: &str) -> Hop {
    let hash = stable_hash::of_name(name);
    Hop { number: NodeNumber::of_hash(hash), hash }
}

/// Returns the number of a node, the same on all nodes.
pub fn node_number(name: &str) -> NodeNumber {
    hop_of(name).number
}
