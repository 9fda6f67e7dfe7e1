//! Elements of table direct-return that rules found, and what they make of a packet.

use engine::direct::ruleset::{DirectElement, DirectRoute, DirectSet, NodeNumber};
use nft::ElementView;

use super::step::{Event, value};

/// Returns the element of the table that an event found; `None` for those that packets write.
pub(super) fn direct_element(event: &Event) -> Option<DirectElement> {
    let Event::Found { set, key, data, .. } = event else { return None };
    let view = ElementView { key, data: value(data.as_ref()), ..ElementView::default() };
    DirectElement::read(DirectSet::by_name(set)?, &view)
}

/// Returns the node of a connection that an event found.
pub(super) fn remembered(event: &Event) -> Option<NodeNumber> {
    let Event::Found { set, data, .. } = event else { return None };
    let bytes = value(data.as_ref()).filter(|_| set == DirectSet::Connections.name())?;
    NodeNumber::of(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// What table direct-return makes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectWay {
    /// The table has the destination.
    Chosen {
        /// The list of nodes, and how one is chosen.
        route: DirectRoute,
        /// The slot of the client; `None` if its port is not known, or if its connection is
        /// remembered.
        slot: Option<u32>,
        /// The node of the slot, or that of the remembered connection.
        node: Option<NodeNumber>,
        /// The connection is remembered.
        is_remembered: bool,
    },
    /// The packet comes from another node, which has handed it on.
    FromNode,
    /// The packet does not come in by a device of the table, which are these.
    OtherDevice(Vec<String>),
    /// The table does not have the destination.
    NoDestination,
}
