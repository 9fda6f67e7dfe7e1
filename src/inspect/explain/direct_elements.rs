//! Elements of table direct-return that rules found.

use engine::direct::ruleset::{DirectElement, NodeNumber, SetId};
use nft::{ElementData, ElementView};

use super::step::Event;

/// Returns the element of the table that an event found; `None` for those that packets write.
pub(super) fn direct_element(event: &Event) -> Option<DirectElement> {
    let Event::Found { set, key, data, .. } = event else { return None };
    let data = value(data.as_ref());
    DirectElement::read(SetId::by_name(set)?, &ElementView { key, data, ..ElementView::default() })
}

/// Returns the node of a connection that an event found.
pub(super) fn remembered(event: &Event) -> Option<NodeNumber> {
    let Event::Found { set, data, .. } = event else { return None };
    let bytes = value(data.as_ref()).filter(|_| set == SetId::Connections.name())?;
    NodeNumber::of(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn value(data: Option<&ElementData>) -> Option<&[u8]> {
    match data {
        Some(ElementData::Value(data)) => Some(data),
        Some(ElementData::Verdict(_) | ElementData::Code(_)) | None => None,
    }
}
