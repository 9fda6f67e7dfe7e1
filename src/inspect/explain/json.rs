//! The explanation as JSON.

use serde_json::{Value, json};

use super::direct_elements::DirectWay;
use super::direct_words::{hardware, way_words};
use super::explanation::Explanation;
use super::report::fate;
use super::step::{Fate, Hop, PossibleFate, RuleStep, Step};
use super::words::{lines, policy_words};

impl Explanation {
    /// Returns the explanation as one JSON object.
    pub fn json(&self) -> Value {
        let packet = &self.packet;
        let summary = self.summary();
        let ranges = self.source_ranges.as_ref().and_then(|ranges| ranges.ranges.as_deref());
        let protocol = self.protocol();
        let service = summary.service.map(|service| {
            json!({
                "frontend": service.frontend,
                "name": service.label,
                "policy": service.route.filter(|_| !self.is_handed_on()).map(|it| policy_words(it, service.is_balanced)),
                "sourceRanges": ranges.map(|it| it.iter().map(ToString::to_string).collect::<Vec<_>>()),
            })
        });
        let outcomes: Vec<_> =
            self.prediction.outcomes.iter().map(|it| self.outcome(it, &protocol)).collect();
        let steps: Vec<_> = self.prediction.steps.iter().map(|it| step(it, &protocol)).collect();
        json!({
            "packet": {
                "source": packet.source,
                "sourcePort": packet.source_port,
                "destination": packet.destination,
                "port": packet.port,
                "protocol": protocol,
                "inInterface": Some(&*packet.input.name).filter(|name| !name.is_empty()),
                "hook": self.start.name(),
            },
            "service": service,
            "closedNodePort": self.closed_node_port.as_ref().map(|closed| json!({
                "frontend": closed.service.frontend,
                "name": closed.service.label,
                "servedByDaemon": closed.is_served_by_daemon,
            })),
            "direct": self.direct.as_ref().map(|direct| way(&direct.way)),
            "masqueraded": summary.is_masqueraded,
            "outcomes": outcomes,
            "assumed": self.notes,
            "generation": self.generation.0,
            "steps": steps,
        })
    }

    fn outcome(&self, outcome: &PossibleFate, protocol: &str) -> Value {
        let why = self.why_dropped(&outcome.fate).unwrap_or_default();
        let kind = match &outcome.fate {
            Fate::Sent { .. } => "sent",
            Fate::Handed(_) => "handed",
            Fate::Refused(_) => "refused",
            Fate::Dropped(_) => "dropped",
            Fate::NoRoute(_) => "noRoute",
            Fate::Unknown(_) => "unknown",
        };
        let mut value = json!({
            "kind": kind,
            "share": outcome.share,
            "certain": outcome.is_certain,
            "text": fate(&outcome.fate, protocol) + &why,
        });
        if let Fate::Sent { to, translated, masqueraded, interface } = &outcome.fate {
            value["to"] = json!(to);
            value["translated"] = json!(translated);
            value["masqueraded"] = json!(masqueraded);
            value["interface"] = json!(interface);
        }
        if let Fate::Handed(Hop { to, hardware_address, interface }) = &outcome.fate {
            value["to"] = json!(to);
            value["hardwareAddress"] = json!(hardware_address.map(hardware));
            value["interface"] = json!(interface);
        }
        value
    }
}

/// Returns what table direct-return makes of a packet; the members of a chosen node are null where
/// there is none.
fn way(way: &DirectWay) -> Value {
    let (mut route_of, mut value) = (None, json!({ "text": way_words(way) }));
    let kind = match way {
        DirectWay::Chosen { route, slot, node, is_remembered } => {
            route_of = Some((route, slot, node));
            if *is_remembered { "remembered" } else { "chosen" }
        }
        DirectWay::FromNode => "fromNode",
        DirectWay::OtherDevice(_) => "otherDevice",
        DirectWay::NoDestination => "noDestination",
    };
    value["kind"] = kind.into();
    value["list"] = json!(route_of.map(|(route, ..)| route.list.get()));
    value["slots"] = json!(route_of.map(|(route, ..)| route.size.slots()));
    value["slot"] = json!(route_of.and_then(|(_, slot, _)| *slot));
    value["node"] = json!(route_of.and_then(|(_, _, node)| node.map(|node| node.get())));
    value
}

fn step(step: &Step, protocol: &str) -> Value {
    match step {
        Step::Hook { name, share } => json!({"hook": name, "share": share}),
        Step::Routed { what, share } => json!({"routing": what, "share": share}),
        Step::Chain { place, kind, priority, drops } => json!({
            "table": place.table.to_string(),
            "chain": place.chain,
            "type": kind,
            "priority": priority,
            "policy": if *drops { "drop" } else { "accept" },
        }),
        Step::Rule(rule) => rule_step(rule, protocol),
    }
}

fn rule_step(rule: &RuleStep, protocol: &str) -> Value {
    json!({
        "table": rule.place.table.to_string(),
        "chain": rule.place.chain,
        "handle": rule.handle,
        "rule": rule.text,
        "reached": rule.reached,
        "matched": rule.matched,
        "certain": rule.is_certain,
        "words": lines(rule, protocol),
    })
}
