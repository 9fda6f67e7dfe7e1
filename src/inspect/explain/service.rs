//! The service of a packet.

use engine::ruleset::number::Route;
use engine::ruleset::{TableElement, without_scheduler};

use super::step::Prediction;
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
    prediction.rules().flat_map(|rule| {
        let family = our_family(&rule.place.table);
        rule.events.iter().filter_map(move |event| element(event, family?))
    })
}

/// Returns the service of an element that names one.
pub(super) fn service(element: TableElement<'_>) -> Option<Service> {
    let (frontend, label, route) = if let TableElement::Route(frontend, route, label) = element {
        (frontend, label, Some(route))
    } else if let TableElement::Unserved(frontend, _, label) = element {
        (frontend, label, None)
    } else {
        return None;
    };
    let (label, is_balanced) = label.map_or((None, false), |label| {
        let (label, is_balanced) = without_scheduler(label);
        (Some(label.to_owned()), is_balanced)
    });
    Some(Service { frontend: frontend.to_string(), label, is_balanced, route })
}
