//! Finds the stale flows among those that conntrack tracks.
//!
//! A connection without an answer is stale if the tables no longer translate it so. A commit does not
//! determine those, because most connections are answered before a pass over conntrack could end.
//!
//! A commit determines the flows that it makes stale. But their deletion may fail, the process may
//! be killed before it, and a packet may begin a flow by the former tables meanwhile. So all flows
//! are regularly compared with the endpoints that serve.
//!
//! Other programs translate addresses too. A flow is ours if its original destination is or was a
//! frontend.

use ahash::HashSet;
use ipnet::IpNet;
use nft::family::Family;

use super::node_state::NodeState;
use super::stale_by_commit;
use crate::diff::Diff;
use crate::flow::{Flow, StaleFlow};
use crate::model::Target;
use crate::ruleset::Frontend;

/// Frontends that no longer exist, as long as flows to them may be left.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Ended since the last comparison of all flows.
    recent: HashSet<Frontend>,
    /// Ended before that comparison.
    former: HashSet<Frontend>,
    /// This process has compared all flows once. Before, the frontends that ended shortly before
    /// its start are not known.
    is_complete: bool,
}

/// Maximum number of ended frontends: some 3 MB.
const MAX_ENDED: usize = 1 << 16;

impl Ended {
    pub(super) fn add(&mut self, frontend: Frontend) {
        if self.recent.len() < MAX_ENDED {
            self.recent.insert(frontend);
        }
    }

    /// Records a comparison of all flows. The flows may have been listed before the last frontends
    /// ended.
    fn advance(&mut self) {
        self.former = std::mem::take(&mut self.recent);
        self.is_complete = true;
    }

    fn contains(&self, frontend: &Frontend) -> bool {
        self.recent.contains(frontend) || self.former.contains(frontend)
    }
}

/// The flows that conntrack must forget, and what is needed to find them.
#[derive(Debug, Default)]
pub(super) struct StaleFlows {
    /// Flows that committed changes have made stale.
    found: Vec<StaleFlow>,
    ended: Ended,
    /// Committed changes may have made connections of TCP or SCTP stale.
    pub(super) are_others_due: bool,
    /// Committed changes may have made UDP flows to port ranges stale, of any port.
    pub(super) are_ranges_due: bool,
}

impl StaleFlows {
    /// Gathers the flows that committed changes have made stale, but for the families whose changes
    /// are not all committed.
    pub(super) fn gather(&mut self, diff: &mut Diff, node: &mut NodeState, waits: [bool; 2]) {
        for family in Family::ALL.into_iter().filter(|family| !waits[family.index()]) {
            let changes = diff.serving.take(family);
            for change in changes.iter().filter(|change| change.after.is_none()) {
                self.ended.add(change.frontend);
            }
            let own = node.serving.desired();
            self.found
                .extend(changes.iter().flat_map(|change| stale_by_commit::flows(change, own)));
        }
        if waits.contains(&true) {
            return;
        }
        self.are_others_due |= diff.serving.take_changes_of_others();
        self.are_ranges_due |= diff.serving.take_changes_of_ranges();
        let changes = node.serving.take_changes(|address| diff.node_port_ips.is_settled(address));
        if !changes.is_empty() {
            let ports = diff.serving.node_ports().into_iter();
            self.found.extend(changes.flows(ports));
        }
    }

    /// Returns the gathered flows, each once.
    pub(super) fn take(&mut self) -> Vec<StaleFlow> {
        std::mem::take(&mut self.found)
    }

    /// Records that all flows of a list were compared, and that all stale ones among them are
    /// deleted.
    pub(super) fn compared(&mut self) {
        self.ended.advance();
    }

    /// Returns those of `flows` that are stale, by the endpoints that serve.
    pub(super) fn among(
        &self,
        flows: &[Flow],
        diff: &Diff,
        node: &NodeState,
        service_cidrs: &[IpNet],
    ) -> Vec<StaleFlow> {
        let judge = Judge { ended: &self.ended, diff, node, service_cidrs };
        let stale = flows.iter().filter(|flow| judge.is_stale(flow));
        stale.map(Flow::pattern).collect()
    }
}

struct Judge<'a> {
    ended: &'a Ended,
    diff: &'a Diff,
    node: &'a NodeState,
    service_cidrs: &'a [IpNet],
}

impl Judge<'_> {
    fn is_stale(&self, flow: &Flow) -> bool {
        let allows = |frontend| self.diff.allows(&frontend, &flow.answered_by);
        let allowed =
            allows(at_address(flow)).or_else(|| self.allows_in_range(flow)).or_else(|| {
                self.node
                    .serving
                    .serves(flow.sent_to.address)
                    .then(|| allows(at_node_port(flow)))?
            });
        // The rules translate every packet to a frontend.
        allowed.map_or_else(|| flow.is_translated() && self.was_ours(flow), |allowed| !allowed)
    }

    /// Returns whether the port ranges of an address lead a flow to its endpoint; `None` if they never
    /// did.
    fn allows_in_range(&self, flow: &Flow) -> Option<bool> {
        let (ranges, Flow { sent_to, answered_by, .. }) = (ranges_at(flow), flow);
        let is_endpoint = self.diff.allows(&ranges, &Target::of_ranges(answered_by.address))?;
        let keeps_port = answered_by.port == sent_to.port;
        if self.diff.has_port_in_range(&ranges, sent_to.port) {
            return Some(is_endpoint && keeps_port);
        }
        // The range had the port before.
        (is_endpoint && keeps_port).then_some(false)
    }

    /// Returns whether a frontend that no longer exists translated the flow.
    fn was_ours(&self, flow: &Flow) -> bool {
        let (ended, address) = (self.ended, flow.sent_to.address);
        if ended.contains(&at_address(flow)) || ended.contains(&ranges_at(flow)) {
            return true;
        }
        if self.node.has(address) {
            let node_port = at_node_port(flow);
            // The address may no longer serve node ports.
            return ended.contains(&node_port)
                || self.diff.allows(&node_port, &flow.answered_by) == Some(true);
        }
        !ended.is_complete && self.service_cidrs.iter().any(|cidr| cidr.contains(&address))
    }
}

fn at_address(Flow { protocol, sent_to: Target { address, port }, .. }: &Flow) -> Frontend {
    Frontend::Address { address: *address, protocol: *protocol, port: *port }
}

fn ranges_at(Flow { protocol, sent_to, .. }: &Flow) -> Frontend {
    Frontend::Ranges { address: sent_to.address, protocol: *protocol }
}

fn at_node_port(Flow { protocol, sent_to: Target { address, port }, .. }: &Flow) -> Frontend {
    Frontend::NodePort { family: Family::of(*address), protocol: *protocol, port: *port }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::num::NonZeroU16;
    use std::time::Duration;

    use nft::TableFlags;

    use super::*;
    use crate::model::{
        Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Event, Node, ObjectName,
        Protocol, Service, ServiceCidr, ServicePort,
    };
    use crate::reconcile::{Engine, FoundTables};
    use crate::routing::{Routing, ServedServices};

    fn target(text: &str) -> Target {
        let socket: SocketAddr = text.parse().unwrap();
        Target { address: socket.ip(), port: NonZeroU16::new(socket.port()).unwrap() }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns a service with every kind of frontend.
    fn dns() -> Service {
        let port = NonZeroU16::new(53).unwrap();
        let of = |protocol| ServicePort {
            name: format!("dns-{protocol}").into(),
            protocol,
            port,
            node_port: NonZeroU16::new(30053),
        };
        Service {
            external_ips: vec![ip("198.51.100.1")],
            ports: Protocol::ALL.into_iter().map(of).collect(),
            ..Service::new(ObjectName::namespaced("default", "dns"), vec![ip("10.96.0.10")])
        }
    }

    fn endpoints(addresses: &[&str]) -> Event {
        let of = |protocol| EndpointPort {
            name: format!("dns-{protocol}").into(),
            protocol,
            port: NonZeroU16::new(5353).unwrap(),
        };
        Event::EndpointSlice(Change::Is(EndpointSlice {
            name: ObjectName::namespaced("default", "dns-1"),
            service: dns().name,
            ports: Protocol::ALL.into_iter().map(of).collect(),
            endpoints: addresses.iter().map(|text| Endpoint::ready(ip(text))).collect(),
            triggered: None,
            weighing: None,
        }))
    }

    fn engine() -> Engine {
        engine_with(Routing::default())
    }

    fn engine_with(routing: Routing) -> Engine {
        let mut engine = Engine::new(routing, TableFlags::default());
        engine.set_local_addresses(vec![ip("127.0.0.1"), ip("192.0.2.1"), ip("192.0.2.2")]);
        engine.replace_installed_state(FoundTables::nothing());
        let node = Node {
            name: ObjectName::cluster_scoped("node"),
            zone: None,
            addresses: vec![ip("192.0.2.1")],
            pod_cidrs: Vec::new(),
            leaving: false,
        };
        let cidr = ServiceCidr {
            name: ObjectName::cluster_scoped("kubernetes"),
            cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        };
        let objects = [Event::Node(Change::Is(node)), Event::ServiceCidr(Change::Is(cidr))];
        commit(&mut engine, objects);
        commit(&mut engine, [Event::Service(Change::Is(dns())), endpoints(&["10.244.0.1"])]);
        engine
    }

    fn commit(engine: &mut Engine, events: impl IntoIterator<Item = Event>) {
        engine.apply(events);
        while engine.next_transaction(1 << 24).is_some() {
            engine.committed(Duration::ZERO);
        }
        assert!(engine.is_settled());
        engine.take_stale_flows();
    }

    /// Checks rows of original destination, answering endpoint, and whether the flow is stale.
    #[track_caller]
    fn check(engine: &Engine, rows: &[(&str, &str, bool)]) {
        check_only(&Protocol::ALL, engine, rows);
    }

    #[track_caller]
    fn check_only(protocols: &[Protocol], engine: &Engine, rows: &[(&str, &str, bool)]) {
        let all = protocols.iter().flat_map(|it| rows.iter().map(move |row| (*it, row)));
        for (protocol, (sent_to, answered_by, is_stale)) in all {
            let (frontend, endpoint) = (target(sent_to), target(answered_by));
            let flow = Flow { protocol, sent_to: frontend, answered_by: endpoint };
            let expected = flow.pattern();
            let expected = if *is_stale { vec![expected] } else { vec![] };
            let found = engine.stale_among(&[flow]);
            assert_eq!(found, expected, "{protocol} to {sent_to} answered by {answered_by}");
        }
    }

    const POD: &str = "10.244.0.1:5353";
    const FORMER: &str = "10.244.0.9:5353";

    #[test]
    fn a_flow_to_a_frontend_is_stale_unless_an_endpoint_answers() {
        let mut engine = engine();
        engine.compared_flows();
        let rows = [
            ("10.96.0.10:53", POD, false),
            ("10.96.0.10:53", FORMER, true),
            ("10.96.0.10:53", "10.244.0.1:53", true),
            ("10.96.0.10:53", "10.96.0.10:53", true),
            ("198.51.100.1:53", POD, false),
            ("198.51.100.1:53", FORMER, true),
            ("192.0.2.1:30053", POD, false),
            ("192.0.2.1:30053", FORMER, true),
            ("192.0.2.1:30053", "192.0.2.1:30053", true),
        ];
        check(&engine, &rows);
    }

    #[test]
    fn flows_of_other_programs_are_left_alone() {
        let mut engine = engine();
        engine.compared_flows();
        let rows = [
            // Other ports and hosts.
            ("10.96.0.10:54", FORMER, false),
            ("10.96.0.11:53", FORMER, false),
            ("203.0.113.1:53", "203.0.113.1:53", false),
            ("203.0.113.1:53", FORMER, false),
            ("203.0.113.1:30053", FORMER, false),
            // A host port of a pod.
            ("192.0.2.1:53", FORMER, false),
            ("127.0.0.1:30053", "127.0.0.1:30053", false),
            // An address of the node that does not serve node ports.
            ("192.0.2.2:30053", "192.0.2.2:30053", false),
            ("192.0.2.2:30053", FORMER, false),
            // An address that served node ports before.
            ("192.0.2.2:30053", POD, true),
        ];
        check(&engine, &rows);
    }

    #[test]
    fn a_flow_to_a_frontend_that_ended_is_stale_until_all_flows_were_compared_twice() {
        let mut engine = engine();
        engine.compared_flows();
        commit(&mut engine, [Event::Service(Change::Gone(dns().name))]);
        let rows = |is_stale| {
            [
                ("10.96.0.10:53", FORMER, is_stale),
                ("198.51.100.1:53", FORMER, is_stale),
                ("192.0.2.1:30053", FORMER, is_stale),
                ("10.96.0.10:53", "10.96.0.10:53", false),
                ("10.96.0.11:53", FORMER, false),
            ]
        };
        check(&engine, &rows(true));
        // The flow may have been listed before the frontend ended.
        engine.compared_flows();
        check(&engine, &rows(true));
        engine.compared_flows();
        check(&engine, &rows(false));
    }

    #[test]
    fn at_first_all_that_is_translated_in_service_cidrs_is_stale() {
        let mut engine = engine();
        let rows = |is_stale| {
            [
                ("10.96.0.11:53", FORMER, is_stale),
                ("10.96.0.11:53", "10.96.0.11:53", false),
                ("10.97.0.11:53", FORMER, false),
            ]
        };
        check(&engine, &rows(true));
        engine.compared_flows();
        check(&engine, &rows(false));
    }

    #[test]
    fn a_connection_without_an_answer_is_stale_once_its_endpoint_gets_no_new_ones() {
        let mut engine = engine();
        let ending = |ready, serving| {
            let mut slice = endpoints(&["10.244.0.1", "10.244.0.2"]);
            if let Event::EndpointSlice(Change::Is(slice)) = &mut slice {
                let conditions =
                    Conditions { ready, serving, terminating: true, ..Conditions::READY };
                let all = ["10.244.0.1", "10.244.0.2"].map(|text| Endpoint::ready(ip(text)));
                let [first, second] = all;
                slice.endpoints = [Endpoint { conditions, ..first }, second].into_iter().collect();
            }
            slice
        };
        assert!(engine.takes_other_connections(), "the first objects");
        assert!(!engine.takes_other_connections());
        commit(&mut engine, [ending(false, true)]);
        assert!(engine.takes_other_connections());
        check_only(&[Protocol::Udp], &engine, &[("10.96.0.10:53", POD, false)]);
        check_only(&[Protocol::Tcp, Protocol::Sctp], &engine, &[("10.96.0.10:53", POD, true)]);
        commit(&mut engine, [endpoints(&["10.244.0.1"])]);
        check(&engine, &[("10.96.0.10:53", POD, false)]);
        commit(&mut engine, [endpoints(&[])]);
        check(&engine, &[("10.96.0.10:53", POD, true), ("198.51.100.1:53", POD, true)]);
    }

    #[test]
    fn flows_to_the_services_of_other_programs_are_not_stale() {
        let except = vec!["default/other".parse().unwrap()];
        let services = ServedServices { except, ..ServedServices::default() };
        let engine = engine_with(Routing { services, ..Routing::default() });
        check(&engine, &[("10.96.0.11:53", FORMER, false)]);
    }
}
