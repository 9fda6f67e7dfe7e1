//! Annotations of a Service. A wrong one is left out, and the rest of the Service stays.

use std::time::Duration;

use engine::model::{EndedConnections, Forwarding, HashedSource, PortRange, Scheduler, Weights};

use super::converter::{Findings, MAX_LABEL};
use super::metadata::{
    AFFINITY_SCOPE, CILIUM_FORWARDING, ENDED_CONNECTIONS, FORWARDING, ObjectMeta, PORT_RANGES,
    SCHEDULER, WEIGHTED, WEIGHTS,
};

/// Returns the scheduler in the annotation, or the nearest one. `None` for an unknown name: the
/// node's scheduler then applies.
pub(super) fn scheduler(metadata: &ObjectMeta, findings: &mut Findings) -> Option<Scheduler> {
    let name = metadata.annotations.get(SCHEDULER).filter(|name| !name.is_empty())?;
    let field = format_args!("metadata.annotations[{SCHEDULER}]");
    let Some(named) = Scheduler::named(name) else {
        let expected = Scheduler::NAMES;
        findings.leave_out(field, format!("{} is no scheduler: expected {expected}", shown(name)));
        return None;
    };
    if let Some(reservation) = named.reservation(name) {
        findings.leave_out(field, reservation);
    }
    Some(named.scheduler)
}

/// Returns the weights of the endpoints. Without their names, only rules for all endpoints apply.
pub(super) fn weights(metadata: &ObjectMeta, findings: &mut Findings) -> Option<Weights> {
    let text = metadata.annotations.get(WEIGHTS).filter(|text| !text.trim().is_empty())?;
    let field = format_args!("metadata.annotations[{WEIGHTS}]");
    match Weights::parse(text) {
        Ok(weights) => {
            if weights.need_names() && metadata.labels.get(WEIGHTED).is_none() {
                let message = format!(
                    "label {WEIGHTED} is missing, which Kubernetes copies to the EndpointSlices: \
                     names of zones, nodes and pods are kept only of slices with it"
                );
                findings.leave_out(field, message);
            }
            Some(weights)
        }
        Err(expected) => {
            findings.leave_out(field, expected);
            None
        }
    }
}

/// Returns how packets from outside are forwarded. Our annotation wins over that of Cilium. `None`
/// for an unknown value: the node's settings then apply.
pub(super) fn forwarding(metadata: &ObjectMeta, findings: &mut Findings) -> Option<Forwarding> {
    FORWARDINGS
        .into_iter()
        .find_map(|(key, direct, translate)| {
            let value = metadata.annotations.get(key).filter(|value| !value.is_empty())?;
            Some(if value.eq_ignore_ascii_case(direct) {
                Some(Forwarding::Direct)
            } else if value.eq_ignore_ascii_case(translate) {
                Some(Forwarding::Translate)
            } else {
                let found = shown(value);
                let message = format!("{found} is no forwarding: expected {direct} or {translate}");
                findings.leave_out(format_args!("metadata.annotations[{key}]"), message);
                None
            })
        })
        .flatten()
}

/// Annotations for forwarding, each with its values, in any case as in Cilium
/// (`getAnnotationServiceForwardingMode` of cilium/pkg/loadbalancer).
const FORWARDINGS: [(&str, &str, &str); 2] =
    [(FORWARDING, "direct", "translate"), (CILIUM_FORWARDING, "dsr", "snat")];

/// Returns the scheduler of a Service whose session affinity concerns all its ports together. A record
/// of a client is of one port, so a hash of its address chooses instead.
pub(super) fn affinity_of_all_ports(
    metadata: &ObjectMeta,
    affinity: Option<Duration>,
    findings: &mut Findings,
) -> Option<Scheduler> {
    let value = metadata.annotations.get(AFFINITY_SCOPE).filter(|value| !value.is_empty())?;
    let field = format_args!("metadata.annotations[{AFFINITY_SCOPE}]");
    match (value, affinity) {
        ("port", _) => None,
        ("service", Some(_)) => Some(Scheduler::Maglev(HashedSource::AddressForAllPorts)),
        ("service", None) => {
            findings.leave_out(field, "has no effect without spec.sessionAffinity ClientIP");
            None
        }
        _ => {
            findings.leave_out(field, format!("is {}: expected service or port", shown(value)));
            None
        }
    }
}

/// Returns the port ranges of a Service; none if one is wrong.
pub(super) fn port_ranges(metadata: &ObjectMeta, findings: &mut Findings) -> Vec<PortRange> {
    let text = metadata.annotations.get(PORT_RANGES).filter(|text| !text.trim().is_empty());
    let Some(text) = text else { return Vec::new() };
    PortRange::parse_list(text).unwrap_or_else(|expected| {
        findings.leave_out(format_args!("metadata.annotations[{PORT_RANGES}]"), expected);
        Vec::new()
    })
}

/// Returns what becomes of connections whose endpoint is gone. `None` for an unknown value: the node's
/// settings then apply.
pub(super) fn ended_connections(
    metadata: &ObjectMeta,
    findings: &mut Findings,
) -> Option<EndedConnections> {
    let value = metadata.annotations.get(ENDED_CONNECTIONS).filter(|value| !value.is_empty())?;
    match value {
        "reset" => Some(EndedConnections::Reset),
        "keep" => Some(EndedConnections::Keep),
        _ => {
            let field = format_args!("metadata.annotations[{ENDED_CONNECTIONS}]");
            findings.leave_out(field, format!("is {}: expected reset or keep", shown(value)));
            None
        }
    }
}

/// Returns the start of a text in quotes.
pub(super) fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(MAX_LABEL).collect::<String>())
}
