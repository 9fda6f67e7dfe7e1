//! Descriptions of events at the rules of table direct-return, and of its result.

use engine::direct::ruleset::{DirectElement, DirectRoute, DirectSet, NodeNumber};
use nft::Verdict;

use super::direct_elements::{DirectWay, direct_element, remembered};
use super::step::{Event, Hop, RuleStep};

/// Describes an event; `None` if the rule's text says enough.
pub(super) fn direct_line(event: &Event, step: &RuleStep, protocol: &str) -> Option<String> {
    Some(match event {
        Event::Found { .. } => match remembered(event) {
            Some(node) => format!("the connection is remembered: {}", node_words(node)),
            None => found(direct_element(event)?, protocol)?,
        },
        Event::Missing { set, .. } => missing(set)?.to_owned(),
        Event::Drawn { of, .. } => {
            format!("the port of the client is not known: it is in any of {of} slots")
        }
        Event::Handed(hop) => hop_words(hop),
        Event::Verdict(Verdict::Accept) => "this node serves the packet".to_owned(),
        Event::Unknown(what) => format!("{what} ({})", step.place),
        Event::Mark { .. }
        | Event::Destination(_)
        | Event::Source
        | Event::Reject
        | Event::Verdict(Verdict::Drop | Verdict::Return | Verdict::Jump(_) | Verdict::Goto(_)) => {
            return None;
        }
    })
}

fn found(element: DirectElement, protocol: &str) -> Option<String> {
    Some(match element {
        DirectElement::HardwareAddress(address) => {
            format!("another node sends it, at {}", hardware(address))
        }
        DirectElement::Frontend(to, route) | DirectElement::ErrorFrontend(to, route) => {
            format!(
                "{}:{}/{protocol} has direct return: {}",
                to.address,
                to.port,
                route_words(route)
            )
        }
        DirectElement::Slot(list, slot, node) => {
            format!("slot {slot} of list {} has {}", list.get(), node_words(node))
        }
        DirectElement::NodeAddress(node, address) => {
            format!("{} is at {address}", node_words(node))
        }
        DirectElement::Address(_) | DirectElement::NodeDevice(..) => return None,
    })
}

fn missing(set: &str) -> Option<&'static str> {
    let set = DirectSet::by_name(set)?;
    Some(match set {
        DirectSet::Frontends(_) => "no service has direct return at this protocol and port",
        DirectSet::Nodes => "the slot has no node",
        DirectSet::NodeAddresses(_) | DirectSet::NodeDevices => {
            "no other node has this number: it is that of this node"
        }
        DirectSet::Connections => "the connection is not remembered",
        DirectSet::NodeHardwareAddresses
        | DirectSet::Addresses(_)
        | DirectSet::ErrorFrontends(_)
        | DirectSet::Fragments(_) => return None,
    })
}

fn node_words(node: NodeNumber) -> String {
    format!("node {:#x}", node.get())
}

fn route_words(route: DirectRoute) -> String {
    let remembered = if route.remembered { ", connections are remembered" } else { "" };
    let start = if route.from_start { ", only those whose start was seen" } else { "" };
    format!("list {}, {}{remembered}{start}", route.list.get(), slots_words(route))
}

fn slots_words(route: DirectRoute) -> String {
    let by = if route.by_address { "address" } else { "address and port" };
    format!("{} slots by the client's {by}", route.size.slots())
}

/// Describes the hop of a packet that is handed on.
pub(super) fn hop_words(Hop { to, hardware_address, interface }: &Hop) -> String {
    let Some(to) = to else { return format!("sent by {interface} as it came in") };
    let at = hardware_address.map_or_else(
        || " (its hardware address is not known yet)".to_owned(),
        |address| format!(" ({})", hardware(address)),
    );
    format!("one hop to {to}{at} by {interface}, with the addresses of the client and the service")
}

/// Describes what the table makes of a packet.
pub(super) fn way_words(way: &DirectWay) -> String {
    match way {
        DirectWay::Chosen { route, node: Some(node), is_remembered: true, .. } => {
            let list = route.list.get();
            format!("list {list}: the connection is remembered, with {}", node_words(*node))
        }
        DirectWay::Chosen { route, slot: Some(slot), node: Some(node), .. } => {
            let (list, slots) = (route.list.get(), slots_words(*route));
            format!("list {list}, slot {slot} of {slots}: {}", node_words(*node))
        }
        DirectWay::Chosen { route, .. } => {
            let (list, slots) = (route.list.get(), slots_words(*route));
            format!("list {list}, one of {slots}")
        }
        DirectWay::FromNode => {
            "no: another node has handed it on, so this node serves it".to_owned()
        }
        DirectWay::OtherDevice(devices) => {
            format!("no: it does not come in by {}", devices.join(" or "))
        }
        DirectWay::NoDestination => {
            "no: the table does not have this address, protocol and port".to_owned()
        }
    }
}

/// Formats an Ethernet address.
pub(super) fn hardware(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}
