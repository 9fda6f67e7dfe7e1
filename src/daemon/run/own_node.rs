//! What the loop follows of its own node: addresses, `route_localnet`, the Node object, and whether
//! NodePorts are open.

use engine::model::{
    Cluster, HostAddresses, Node, ObjectName, ObjectRef, Problem, ProblemKind, Resource,
};
use engine::{ClosedNodePorts, Engine};
use nft::family::Family;
use tokio::sync::watch;

use crate::localhost_proxy::ServedPorts;
use crate::node::UNGUARDED;
use crate::observe::Observe;

/// Sets `route_localnet`; returns whether it is set.
pub type RouteLocalnet = Box<dyn FnOnce() -> bool + Send>;

/// What the daemon does for localhost NodePorts; nothing by default.
#[derive(Default)]
pub struct Localhost {
    /// Called once the IPv4 table is in place.
    pub route_localnet: Option<RouteLocalnet>,
    /// The node ports that the proxy serves at `[::1]`, to be filled.
    pub ports: Option<ServedPorts>,
}

/// Whether a node that never had a Node object accepts traffic from load balancers, and is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingNode {
    /// No: in a cluster, such a node was removed, or has another name.
    #[default]
    Ineligible,
    /// Yes: no object excludes it.
    Eligible,
}

/// The node of this daemon.
///
/// `route_localnet` is set once. `closed_node_ports` and `absence` are what was reported last.
pub(super) struct OwnNode {
    /// The addresses around this node; `None` if they never change.
    pub(super) addresses: Option<watch::Receiver<HostAddresses>>,
    route_localnet: Option<RouteLocalnet>,
    missing_node: MissingNode,
    closed_node_ports: Option<ClosedNodePorts>,
    absence: Option<Absence>,
}

/// Why there is no Node object of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// There never was one.
    Never,
    /// It was deleted. Its content stays in force.
    Deleted,
}

impl OwnNode {
    pub(super) fn new(
        addresses: Option<watch::Receiver<HostAddresses>>,
        route_localnet: Option<RouteLocalnet>,
        missing_node: MissingNode,
    ) -> Self {
        Self { addresses, route_localnet, missing_node, closed_node_ports: None, absence: None }
    }

    /// Returns whether load balancers should use this node, whose object is `node`.
    pub(super) fn is_eligible(&self, node: Option<&Node>, is_listed: bool) -> bool {
        match (node, self.missing_node) {
            (Some(node), _) => !node.leaving,
            (None, MissingNode::Ineligible) => false,
            // Before everything is listed, the Node object may still arrive.
            (None, MissingNode::Eligible) => is_listed,
        }
    }

    /// Returns why the Node object is missing, if at all, once that has changed.
    pub(super) fn changed_absence(&mut self, cluster: &Cluster) -> Option<Option<Absence>> {
        let absence = match (self.missing_node, cluster.node()) {
            _ if cluster.is_node_deleted() => Some(Absence::Deleted),
            (MissingNode::Ineligible, None) if cluster.is_listed() => Some(Absence::Never),
            (MissingNode::Ineligible | MissingNode::Eligible, _) => None,
        };
        (std::mem::replace(&mut self.absence, absence) != absence).then_some(absence)
    }

    /// Sets `route_localnet`, if that was asked for and not done. The IPv4 table must be in place:
    /// it drops packets of other hosts to loopback addresses. Returns false if the sysctl cannot be
    /// set.
    pub(super) fn set_route_localnet(&mut self) -> bool {
        self.route_localnet.take().is_none_or(|set| set())
    }

    /// Reports once when NodePorts close or open in a family.
    pub(super) fn report_closed_node_ports(&mut self, engine: &Engine, observe: &Observe) {
        let closed = engine.node().closed_node_ports;
        if !engine.is_listed() || closed == self.closed_node_ports {
            return;
        }
        match closed {
            Some(closed) if closed.is_complete() => tracing::warn!("{closed}"),
            // Clusters of one family are common.
            Some(closed) => tracing::info!("{closed}"),
            None => tracing::info!("NodePorts are open in both families"),
        }
        for family in Family::ALL {
            let is_closed = closed.is_some_and(|closed| closed.has(family));
            observe.metrics().own.node_ports_closed[family.index()].set(is_closed);
        }
        self.closed_node_ports = closed;
    }
}

/// Returns the problem of a node whose Node object is missing.
pub(super) fn missing_object(node_name: &str, absence: Absence) -> Problem {
    let message = match absence {
        Absence::Never => {
            "does not exist, so that endpoints of this machine count as remote; the name is that \
             of the machine, or of hostnameOverride"
        }
        Absence::Deleted => "was deleted; its last content stays in use",
    };
    let object = ObjectRef { resource: Resource::Nodes, name: ObjectName::written(node_name) };
    Problem::new(ProblemKind::MissingNode, object, "", message.to_owned())
}

/// Warns if the tables just read protect the node and the desired ones do not.
pub(super) fn report_lost_guard(engine: &Engine) {
    if engine.node().loses_guard {
        tracing::warn!("nodePortAddresses no longer has localhost: {UNGUARDED}");
    }
}

/// Waits for a change of the addresses and returns them; returns `None` if they never change.
pub(super) async fn changed(
    addresses: &mut Option<watch::Receiver<HostAddresses>>,
) -> Option<HostAddresses> {
    let receiver = addresses.as_mut()?;
    receiver.changed().await.ok()?;
    Some(receiver.borrow_and_update().clone())
}

#[cfg(test)]
mod tests {
    use engine::model::{Change, Event, ObjectName, Touched};

    use super::*;

    #[test]
    fn load_balancers_use_a_node_unless_it_leaves_or_its_object_is_gone() {
        let node = |leaving| Node {
            name: ObjectName::written("node"),
            zone: None,
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            leaving,
        };
        let (staying, leaving) = (node(false), node(true));
        // The node's object, and whether the node is eligible before and after the lists.
        let table = [
            (MissingNode::Ineligible, Some(&staying), [true, true]),
            (MissingNode::Ineligible, Some(&leaving), [false, false]),
            (MissingNode::Ineligible, None, [false, false]),
            (MissingNode::Eligible, Some(&staying), [true, true]),
            (MissingNode::Eligible, Some(&leaving), [false, false]),
            (MissingNode::Eligible, None, [false, true]),
        ];
        for (missing, object, eligible) in table {
            let node = OwnNode::new(None, None, missing);
            let found = [false, true].map(|is_listed| node.is_eligible(object, is_listed));
            assert_eq!(found, eligible, "{missing:?}, {object:?}");
        }
    }

    #[test]
    fn a_node_object_is_missing_if_the_cluster_never_had_it() {
        let object = Node {
            name: ObjectName::written("node"),
            zone: None,
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            leaving: false,
        };
        let gone = Event::Node(Change::Gone(object.name.clone()));
        let listed = Resource::ALL.map(Event::Listed).to_vec();
        let (never, deleted) = (Some(Some(Absence::Never)), Some(Some(Absence::Deleted)));
        for (missing, first) in [(MissingNode::Ineligible, never), (MissingNode::Eligible, None)] {
            let (mut node, mut cluster) = (OwnNode::new(None, None, missing), Cluster::default());
            assert_eq!(node.changed_absence(&cluster), None, "it may still be listed");
            for (events, change) in [
                (listed.clone(), first),
                (Vec::new(), None),
                (vec![Event::Node(Change::Is(object.clone()))], first.map(|_| None)),
                (vec![gone.clone()], deleted),
                (vec![gone.clone()], None),
                (vec![Event::Node(Change::Is(object.clone()))], Some(None)),
            ] {
                events.into_iter().for_each(|it| cluster.apply(it, &mut Touched::default()));
                assert_eq!(node.changed_absence(&cluster), change, "{missing:?}");
            }
        }
    }

    #[test]
    fn route_localnet_is_set_once() {
        let mut node = OwnNode::new(None, Some(Box::new(|| false)), MissingNode::Ineligible);
        assert_eq!([node.set_route_localnet(), node.set_route_localnet()], [false, true]);
    }
}
