//! Services whose external packets nodes hand to each other.

use super::event::Problem;

/// What direct return makes of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Nodes hand external packets to each other, by [`Family::index`](nft::Family::index). So this
    /// node sends those that come to it to its own endpoints, if it has any.
    pub families: [bool; 2],
    /// They also do so with packets to node ports of TCP.
    pub node_ports: bool,
    /// Why they do not, although the service wants it.
    pub problems: Vec<Problem>,
}
