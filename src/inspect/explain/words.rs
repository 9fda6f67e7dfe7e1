//! Descriptions of events at a rule.
//!
//! Lookups in our own sets and maps are described by the meaning of their elements.

use std::net::SocketAddr;

use engine::model::{HashedSource, Target};
use engine::ruleset::number::{Flags, Route, Timeout};
use engine::ruleset::{SetId, TABLE, TableElement, Unserved, without_scheduler};
use nft::expression::Data;
use nft::{ElementView, Family, Verdict};

use super::direct_words::{direct_line, hop_words};
use super::step::{ChainId, Event, RuleStep, value};
use nft::TableRef;

/// Returns a line for each notable event at a rule.
pub(super) fn lines(step: &RuleStep, protocol: &str) -> Vec<String> {
    let family = our_family(&step.place.table);
    let is_direct = step.place.table == engine::direct::ruleset::table();
    let of_event = |event| {
        if is_direct {
            direct_line(event, step, protocol)
        } else {
            line(event, family, step, protocol)
        }
    };
    let mut lines: Vec<_> = step.events.iter().filter_map(of_event).collect();
    if step.more_events > 0 {
        lines.push(format!("and {} more", step.more_events));
    }
    lines
}

/// Returns the family if the table is ours.
pub(super) fn our_family(table: &TableRef) -> Option<Family> {
    table.family.of_addresses().filter(|_| table.name == TABLE)
}

/// Returns the element of our table that an event found.
pub(super) fn element(event: &Event, family: Family) -> Option<TableElement<'_>> {
    let Event::Found { set, key, data, comment } = event else { return None };
    let (data, comment) = (value(data.as_ref()), comment.as_deref());
    let view = ElementView { key, data, comment, ..ElementView::default() };
    TableElement::read(family, SetId::by_name(set)?, &view)
}

fn line(event: &Event, ours: Option<Family>, step: &RuleStep, protocol: &str) -> Option<String> {
    Some(match event {
        Event::Found { set, data, comment, .. } => {
            let of_ours = ours.and_then(|family| found(event, family));
            of_ours.unwrap_or_else(|| found_elsewhere(set, data.as_ref(), comment.as_deref()))
        }
        Event::Missing { set, .. } if ours.is_some() => missing(set, step)?,
        Event::Missing { set, .. } if set.starts_with("__") => return None,
        Event::Missing { set, .. } => format!("@{set} has no element for it"),
        Event::Drawn { set, of, hits } if hits == of => {
            format!("one of {of} numbers is drawn, each has an element in @{set}")
        }
        Event::Drawn { set, of, hits } => format!(
            "one of {of} numbers is drawn; {hits} have an element in @{set}, with the others the \
             packet goes on"
        ),
        Event::Mark { from, to } if ours.is_some() && (to & !from) != 0 => {
            format!("marked for masquerade: {}", why_masquerade(&step.place, &step.text))
        }
        Event::Mark { from, to } => format!("the mark becomes {to:#x}, from {from:#x}"),
        Event::Destination(to) => format!("the destination becomes {to}/{protocol}"),
        Event::Source => "masquerade: the source becomes the node's address".to_owned(),
        Event::Verdict(Verdict::Drop) => "the packet is dropped".to_owned(),
        Event::Verdict(Verdict::Accept) => "accept: the packet goes on to the next hook".to_owned(),
        Event::Verdict(Verdict::Return | Verdict::Jump(_) | Verdict::Goto(_)) => return None,
        Event::Handed(hop) => hop_words(hop),
        Event::Reject => "the packet is refused: its sender receives an error".to_owned(),
        Event::Unknown(what) => format!("{what} ({})", step.place),
    })
}

fn found_elsewhere(set: &str, data: Option<&Data>, comment: Option<&str>) -> String {
    let name = if set.starts_with("__") { "the set".to_owned() } else { format!("@{set}") };
    let comment = comment.map_or_else(String::new, |text| format!(" ({text})"));
    match data {
        Some(Data::Verdict(verdict)) => format!("{name} says {verdict}{comment}"),
        Some(Data::Value(_) | Data::Code(_)) | None => {
            format!("{name} has an element for it{comment}")
        }
    }
}

/// Describes an element of ours for the packet.
fn found(event: &Event, family: Family) -> Option<String> {
    let label = |label: Option<&str>| {
        label.map_or_else(String::new, |it| format!(" {}", without_scheduler(it).0))
    };
    Some(match element(event, family)? {
        TableElement::Route(frontend, route, comment) => {
            let (name, is_balanced) = without_scheduler(comment.unwrap_or_default());
            let name = label(Some(name).filter(|name| !name.is_empty()));
            format!("{frontend} is service{name}: {}", policy_words(route, is_balanced))
        }
        TableElement::Internal(_, route) => {
            format!("pods and the node reach all endpoints: {}", route_words(route))
        }
        TableElement::Unserved(frontend, Unserved::Refuse, comment) => {
            format!("{frontend} is service{}, which has no endpoint: refuse", label(comment))
        }
        TableElement::Unserved(frontend, Unserved::Drop, comment) => format!(
            "{frontend} is service{}, which has endpoints on other nodes only and traffic policy \
             Local: drop",
            label(comment)
        ),
        TableElement::Member(engine::ruleset::Member::ClusterIp(address)) => {
            format!("{address} is the ClusterIP of a service that lacks this port or protocol")
        }
        TableElement::Member(engine::ruleset::Member::NodePortIp(address)) => {
            format!("{address} is an address that accepts node ports")
        }
        TableElement::PortBlock(frontend, _) => {
            format!("the port is in a port range of {frontend}")
        }
        TableElement::Member(
            engine::ruleset::Member::Hairpin(..) | engine::ruleset::Member::RangeHairpin(_),
        ) => "an endpoint on this node reaches itself".to_owned(),
        TableElement::Restricted(frontend) => {
            format!("only sources in loadBalancerSourceRanges may use {frontend}")
        }
        TableElement::SourceRefusals(frontend) => {
            format!("it counts for {frontend} as a packet of another source")
        }
        TableElement::SourceRange(..) => "the source is in loadBalancerSourceRanges".to_owned(),
        TableElement::AffinityList(..) => "another endpoint is drawn for the client".to_owned(),
        TableElement::Ended(Target { address, port }, _, comment) => {
            let endpoint = SocketAddr::new(address, port.get());
            let of = comment.map_or_else(String::new, |service| format!(" of service {service}"));
            format!("endpoint {endpoint}{of} is in no EndpointSlice any more")
        }
        TableElement::Endpoint(..)
        | TableElement::AffinitySlot(..)
        | TableElement::AffinityEndpoint(..)
        | TableElement::RangeEndpoint(..) => return None,
    })
}

/// Describes the number of a route to a service whose scheduler may be `lc`.
pub(super) fn policy_words(route: Route, is_balanced: bool) -> String {
    let scheduler =
        if is_balanced { ", scheduler lc: weights follow live connections" } else { "" };
    format!("{}{scheduler}", route_words(route))
}

/// Describes the number of a route.
fn route_words(route: Route) -> String {
    let Some(list) = route.list() else { return "it has no endpoint on this node".to_owned() };
    let (fewest, most) = (route.size().fewest(), route.size().most());
    let count = match (fewest, most) {
        (_, slots) if route.size().table().is_some() => format!("{slots} slots of a table"),
        (1, 1) => "1 endpoint".to_owned(),
        (fewest, most) if fewest == most => format!("{most} endpoints"),
        (fewest, most) => format!("{fewest} to {most} endpoints"),
    };
    let noun = if list.has_affinity() { "session" } else { "endpoint list" };
    let mut words = format!("{noun} {list}, {count}");
    let hashed = route.size().table().map(|(source, _)| match source {
        HashedSource::Address | HashedSource::AddressForAllPorts => {
            ", scheduler mh: a hash of the source address chooses"
        }
        HashedSource::AddressAndPort => {
            ", scheduler mh-port: a hash of source address and port chooses"
        }
    });
    words.push_str(hashed.unwrap_or_default());
    let Flags { local, masquerade } = route.flags();
    for (is_set, text) in [
        (local && masquerade, ", endpoints on this node if direct return has chosen it"),
        (local && !masquerade, ", external traffic policy Local: endpoints on this node only"),
        (masquerade && !local, ", masquerade whatever the source"),
        (route.timeout().is_some_and(|it| it != Timeout::NONE), ", session affinity"),
    ] {
        words.push_str(if is_set { text } else { "" });
    }
    words
}

/// Describes a missing key of one of our sets; `None` if not notable.
fn missing(set: &str, step: &RuleStep) -> Option<String> {
    const NOTABLE: [(SetId, &str); 3] = [
        (SetId::Services, "no service has this address, port and protocol"),
        (SetId::NodePorts, "no service has this node port"),
        (SetId::AffinityClients, "the client is not remembered"),
    ];
    let (_, text) = NOTABLE.into_iter().find(|(id, _)| id.name() == set)?;
    // Translated packets look up the same map again.
    let is_for_services = step.place.chain.starts_with("nat-");
    (is_for_services || set == SetId::AffinityClients.name()).then(|| text.to_owned())
}

/// Returns the reason why a rule of ours marks a packet, from its chain and its test.
fn why_masquerade(place: &ChainId, text: &str) -> &'static str {
    match &*place.chain {
        "external-local" => "the node itself sends it to an external address",
        _ if text.contains("saddr !=") || text.contains("iifname !=") => {
            "it is not from a pod of this cluster"
        }
        "special-traffic" if !text.starts_with("meta priority & 0:20 == none") => {
            "external traffic policy Cluster"
        }
        _ => "all traffic to ClusterIPs is masqueraded",
    }
}
