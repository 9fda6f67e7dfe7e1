//! The answer in short: the service and what becomes of the packet.

use super::step::{Event, Step};
use super::words::{element, our_family};
use super::{Explanation, Fate};
use crate::ruleset::TableElement;
use crate::ruleset::number::Route;

/// The service that a packet is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Address or node port, and protocol.
    pub frontend: String,
    /// `namespace/name:port`, if the tables say so.
    pub label: Option<String>,
    /// Endpoint list, class and flags; `None` without endpoints.
    pub route: Option<Route>,
}

/// The answer in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The service; `None` if no service has the destination.
    pub service: Option<Service>,
    /// Packets are marked or translated so that the endpoint sees the node's address.
    pub is_masqueraded: bool,
}

impl Explanation {
    /// The answer in short.
    pub fn summary(&self) -> Summary {
        let is_masqueraded = self
            .prediction
            .outcomes
            .iter()
            .any(|outcome| matches!(outcome.fate, Fate::Sent { masqueraded: true, .. }));
        Summary { service: self.service(), is_masqueraded }
    }

    /// The first element that was found for a service.
    fn service(&self) -> Option<Service> {
        self.prediction.steps.iter().find_map(|step| match step {
            Step::Rule(rule) => {
                let family = our_family(&rule.place.table)?;
                rule.events.iter().find_map(|event| service(event, family))
            }
            Step::Hook { .. } | Step::Chain { .. } | Step::Routed { .. } => None,
        })
    }
}

fn service(event: &Event, family: crate::nft::Family) -> Option<Service> {
    let (frontend, label, route) = match element(event, family)? {
        TableElement::Route(frontend, route, label) => (frontend, label, Some(route)),
        TableElement::NoEndpoint(frontend, _, label) => (frontend, label, None),
        TableElement::Endpoint(..)
        | TableElement::Internal(..)
        | TableElement::Member(_)
        | TableElement::Firewall(_)
        | TableElement::SourceRange(..)
        | TableElement::AffinitySlot(..)
        | TableElement::AffinityEndpoint(..)
        | TableElement::AffinityList(..) => return None,
    };
    Some(Service { frontend: frontend.to_string(), label: label.map(str::to_owned), route })
}
