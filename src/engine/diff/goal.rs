//! The desired state of a frontend, with the lists of its service.

use super::frontends::Goal;
use super::held::purpose_of;
use super::lists_by_purpose::ListsByPurpose;
use crate::desired::{DesiredFrontend, DesiredPort, Scope, Traffic};
use crate::ruleset::Unserved;
use crate::ruleset::number::{Flags, Route};

/// Returns the desired state of a frontend that the service has.
pub(super) fn goal<'a>(
    lists: &ListsByPurpose,
    port: &'a DesiredPort,
    wanted: &DesiredFrontend,
) -> Goal<'a> {
    let ranges = wanted.has_source_ranges.then_some(&*port.ranges);
    let goal = Goal { ranges, label: Some(&port.label), ..Goal::default() };
    match wanted.traffic {
        Traffic::To { scope, masquerade } => {
            match route(lists, port, scope, Flags { masquerade, local: false }) {
                Some(route) => Goal { route: Some(route), ..goal },
                // No number was free.
                None => Goal { unserved: Some(Unserved::Refuse), ..goal },
            }
        }
        traffic @ (Traffic::ExternalLocal | Traffic::ChosenNode) => {
            let flags = Flags { masquerade: traffic == Traffic::ChosenNode, local: true };
            let local = route(lists, port, Scope::Local, flags);
            Goal {
                route: Some(local.unwrap_or(Route::WITHOUT_LIST)),
                internal: route(lists, port, Scope::Cluster, Flags::default()),
                unserved: local.is_none().then_some(Unserved::Drop),
                ..goal
            }
        }
        Traffic::Unserved(unserved) => Goal { unserved: Some(unserved), ..goal },
    }
}

/// Returns the route to the endpoints of a scope; `None` without a list of them.
pub(super) fn route(
    lists: &ListsByPurpose,
    port: &DesiredPort,
    scope: Scope,
    flags: Flags,
) -> Option<Route> {
    let purpose = purpose_of(port, scope);
    let list = lists.find(purpose, false).or_else(|| lists.find(purpose, true))?;
    let timeout = port.timeout.filter(|_| list.id.has_affinity()).map(|it| it.number);
    Some(Route::new(list.id, timeout, port.size(scope), flags))
}
