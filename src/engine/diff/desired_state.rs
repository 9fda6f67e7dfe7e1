//! The desired state of a frontend, with the lists of its service.

use ipnet::IpNet;

use super::holdings::purpose_of;
use super::lists_by_purpose::ListsByPurpose;
use crate::desired::{DesiredFrontend, DesiredPort, Label, Scope, Traffic};
use crate::model::PortBlock;
use crate::ruleset::Unserved;
use crate::ruleset::number::{Flags, Route};

/// The desired state of a frontend.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DesiredState<'a> {
    pub(super) route: Option<Route>,
    pub(super) internal: Option<Route>,
    pub(super) unserved: Option<Unserved>,
    /// Sources that may use the frontend, ascending and disjoint; `None` if all may.
    pub(super) ranges: Option<&'a [IpNet]>,
    /// Ports of its port ranges, ascending.
    pub(super) blocks: &'a [PortBlock],
    /// The comment of its elements.
    pub(super) label: Option<&'a Label>,
}

impl<'a> DesiredState<'a> {
    /// Returns the desired state of a frontend that the service has.
    pub(super) fn of(
        lists: &ListsByPurpose,
        port: &'a DesiredPort,
        frontend: &DesiredFrontend,
    ) -> Self {
        let ranges = frontend.has_source_ranges.then_some(&*port.ranges);
        let (blocks, label) = (&*port.blocks, Some(&port.label));
        let state = Self { ranges, blocks, label, ..Self::default() };
        match frontend.traffic {
            Traffic::To { scope, masquerade } => {
                match route(lists, port, scope, Flags { masquerade, local: false }) {
                    Some(route) => Self { route: Some(route), ..state },
                    // No number was free.
                    None => Self { unserved: Some(Unserved::Refuse), ..state },
                }
            }
            traffic @ (Traffic::ExternalLocal | Traffic::ChosenNode) => {
                let flags = Flags { masquerade: traffic == Traffic::ChosenNode, local: true };
                let local = route(lists, port, Scope::Local, flags);
                Self {
                    route: Some(local.unwrap_or(Route::WITHOUT_LIST)),
                    internal: route(lists, port, Scope::Cluster, Flags::default()),
                    unserved: local.is_none().then_some(Unserved::Drop),
                    ..state
                }
            }
            Traffic::Unserved(unserved) => Self { unserved: Some(unserved), ..state },
        }
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
