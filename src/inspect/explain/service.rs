//! The service of a packet.

use engine::ruleset::number::Route;
use engine::ruleset::{TableElement, without_scheduler};
use nft::Family;

use super::step::{Prediction, RuleStep, Step};
use super::words::{element, our_family};

/// The service of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Address or node port, and protocol.
    pub frontend: String,
    /// `namespace/name:port`, if the tables have it.
    pub label: Option<String>,
    /// The scheduler is `lc`, which follows live connections.
    pub is_balanced: bool,
    /// Endpoint list, class and flags; `None` without endpoints.
    pub route: Option<Route>,
}

/// Returns the elements of our tables that were found, in order.
pub(super) fn elements(prediction: &Prediction) -> impl Iterator<Item = TableElement<'_>> {
    let rules = prediction.steps.iter().filter_map(rule_of_ours);
    rules.flat_map(|(rule, family)| {
        rule.events.iter().filter_map(move |event| element(event, family))
    })
}

/// Returns the rule of a step if it is in one of our tables.
fn rule_of_ours(step: &Step) -> Option<(&RuleStep, Family)> {
    match step {
        Step::Rule(rule) => our_family(&rule.place.table).map(|family| (rule, family)),
        Step::Hook { .. } | Step::Chain { .. } | Step::Routed { .. } => None,
    }
}

/// Returns the service of an element that names one.
pub(super) fn service(element: TableElement<'_>) -> Option<Service> {
    let (frontend, label, route) = match element {
        TableElement::Route(frontend, route, label) => (frontend, label, Some(route)),
        TableElement::NoEndpoint(frontend, _, label) => (frontend, label, None),
        TableElement::Endpoint(..)
        | TableElement::Internal(..)
        | TableElement::Member(_)
        | TableElement::Restricted(_)
        | TableElement::SourceRange(..)
        | TableElement::SourceRefusals(_)
        | TableElement::AffinitySlot(..)
        | TableElement::AffinityEndpoint(..)
        | TableElement::AffinityList(..) => return None,
    };
    let (label, is_balanced) = label.map_or((None, false), |label| {
        let (label, is_balanced) = without_scheduler(label);
        (Some(label.to_owned()), is_balanced)
    });
    Some(Service { frontend: frontend.to_string(), label, is_balanced, route })
}
