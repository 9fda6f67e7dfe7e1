//! Services in our tables, by frontend, in compact form.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops;

use ahash::{HashMap, HashSet};
use conntrack::Connection;
use engine::model::{PortBlock, PortRange, Protocol, Target};
use engine::ruleset::affinity::NumberedTimeouts;
use engine::ruleset::number::{EndpointId, ListId, Route};
use engine::ruleset::{Frontend, Refusal, Unserved, without_scheduler};
use ipnet::IpNet;
use nft::Counter;
use nft::family::Family;

use crate::refusals::RefusedPackets;

/// The services of both tables.
#[derive(Debug, Default)]
pub struct Services {
    /// Sorted by service, port, kind and address.
    pub(super) entries: Vec<Entry>,
    pub(super) lists: [HashMap<ListId, EndpointList>; 2],
    pub(super) timeouts: [NumberedTimeouts; 2],
    /// Endpoints on this node.
    local: HashSet<(Target, Protocol)>,
    /// Addresses with NodePorts by family; `None` if every address of the node has them.
    node_port_ips: [Option<BTreeSet<IpAddr>>; 2],
    by_frontend: HashMap<Frontend, u32>,
    /// The tables changed during the read.
    pub(super) is_torn: bool,
    /// Frontends count connections.
    has_counters: bool,
    /// Packets that the rules refused.
    pub(super) refused: RefusedPackets,
}

/// One frontend.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Address that receives the packets.
    pub frontend: Frontend,
    /// `namespace/name:port` from the tables; empty if absent.
    pub label: Box<str>,
    /// The scheduler is `lc`.
    pub is_balanced: bool,
    /// Route; without packets of pods and of the node if `internal` differs.
    pub route: Option<Route>,
    /// Internal route, if different.
    pub internal: Option<Route>,
    /// Treatment of packets without an endpoint.
    pub unserved: Option<Unserved>,
    /// The allowed sources, in order, of load balancer addresses only; `None` if all are.
    pub source_ranges: Option<Vec<IpNet>>,
    /// Ports of port ranges, ascending; empty for a single port.
    pub blocks: Vec<PortBlock>,
    /// The frontend is a cluster IP.
    pub is_cluster_ip: bool,
    /// Nodes hand packets to this address to each other, by table direct-return.
    pub is_direct: bool,
    /// Counted connections, if the tables have counters.
    pub counted: Option<Counter>,
    /// Packets that it refused, for each reason that it may have.
    pub refused: Vec<(Refusal, Counter)>,
}

/// The endpoints of a list.
#[derive(Debug, Default)]
pub(super) struct EndpointList {
    /// Unique endpoints.
    pub(super) targets: Vec<Target>,
    /// Number of slots of each endpoint.
    pub(super) slots: Vec<u32>,
    /// Numbers of the endpoints, with affinity.
    pub(super) ids: Vec<EndpointId>,
    /// Counted connections of each endpoint; empty if the tables have no such counters.
    pub(super) counted: Vec<Counter>,
}

impl EndpointList {
    /// Returns whether all endpoints have equally many slots.
    pub(super) fn is_even(&self) -> bool {
        self.slots.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Counts the slots of each endpoint.
    pub(super) fn of_slots(slots: impl Iterator<Item = Target>) -> Self {
        let mut slots: Vec<_> = slots.collect();
        slots.sort_unstable();
        let count = |same: &[Target]| u32::try_from(same.len()).unwrap_or(u32::MAX);
        let same = slots.chunk_by(|one, next| one == next);
        let (targets, slots) = same.map(|same| (same[0], count(same))).unzip();
        Self { targets, slots, ..Self::default() }
    }
}

impl Entry {
    pub(super) fn new(frontend: Frontend) -> Self {
        Self {
            frontend,
            label: Box::default(),
            is_balanced: false,
            route: None,
            internal: None,
            unserved: None,
            source_ranges: None,
            blocks: Vec::new(),
            is_cluster_ip: false,
            is_direct: false,
            counted: None,
            refused: Vec::new(),
        }
    }

    /// Returns whether packets keep their port, so that an endpoint has none of its own.
    pub fn keeps_port(&self) -> bool {
        matches!(self.frontend, Frontend::Ranges { .. })
    }

    /// Formats an endpoint, with its port if it has one of its own.
    pub(super) fn endpoint(&self, target: Target) -> String {
        if self.keeps_port() {
            target.address.to_string()
        } else {
            SocketAddr::new(target.address, target.port.get()).to_string()
        }
    }

    /// Returns its port ranges, such as `10000-20000`.
    pub fn port_ranges(&self) -> Vec<String> {
        PortRange::joined(&self.blocks)
    }

    /// Sets the label and the scheduler by the comment in the tables.
    pub(super) fn set_label(&mut self, comment: &str) {
        let (label, is_balanced) = without_scheduler(comment);
        (self.label, self.is_balanced) = (label.into(), is_balanced);
    }

    /// Returns `namespace/name`, and the name of the port, which may be empty.
    pub fn name(&self) -> (&str, &str) {
        self.label.split_once(':').unwrap_or((&self.label, ""))
    }

    fn compare(&self, other: &Self) -> Ordering {
        let key = |it: &Self| (it.frontend.family(), !it.is_cluster_ip, it.frontend);
        self.name().cmp(&other.name()).then_with(|| key(self).cmp(&key(other)))
    }
}

impl Services {
    /// Returns the number of frontends.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no frontends.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether the tables changed during the read, so that rows may be of different
    /// commits.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Returns whether the frontends count connections.
    pub fn has_counters(&self) -> bool {
        self.has_counters
    }

    /// Returns the packets that the rules refused, of all services and of none.
    pub fn refused(&self) -> &RefusedPackets {
        &self.refused
    }

    /// Returns the frontends, sorted.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn add_local(&mut self, target: Target, protocol: Protocol) {
        self.local.insert((target, protocol));
    }

    /// Adds the address of an endpoint of port ranges on this node.
    pub(super) fn add_local_address(&mut self, address: IpAddr) {
        let endpoint = |protocol| (Target::of_ranges(address), protocol);
        self.local.extend(Protocol::ALL.map(endpoint));
    }

    /// Limits NodePorts of a family to the addresses from [`Self::add_node_port_ip`].
    pub(super) fn restrict_node_ports(&mut self, family: Family) {
        self.node_port_ips[family.index()] = Some(BTreeSet::new());
    }

    pub(super) fn add_node_port_ip(&mut self, address: IpAddr) {
        if let Some(addresses) = &mut self.node_port_ips[Family::of(address).index()] {
            addresses.insert(address);
        }
    }

    /// Returns the addresses of the node that serve NodePorts of a family, in order; `None` if all
    /// do.
    pub fn node_port_addresses(&self, family: Family) -> Option<&BTreeSet<IpAddr>> {
        self.node_port_ips[family.index()].as_ref()
    }

    /// Returns whether no address of the node serves NodePorts of a family.
    pub(super) fn node_ports_are_closed(&self, family: Family) -> bool {
        self.node_port_ips[family.index()].as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Sorts and stores the entries that were read.
    pub(super) fn finish(&mut self, mut entries: Vec<Entry>) {
        entries.sort_unstable_by(Entry::compare);
        let places = entries.iter().map(|entry| entry.frontend).zip(0..);
        self.by_frontend = places.collect();
        self.has_counters = entries.iter().any(|entry| entry.counted.is_some());
        self.entries = entries;
    }

    /// Returns whether an endpoint is on this node.
    pub(super) fn is_local(&self, target: Target, protocol: Protocol) -> bool {
        self.local.contains(&(target, protocol))
    }

    /// Returns the endpoint of a connection to a frontend, as the lists have it.
    pub(super) fn endpoint_of(&self, place: u32, connection: &Connection) -> Target {
        let keeps_port = self.entries.get(place as usize).is_some_and(Entry::keeps_port);
        if keeps_port {
            Target::of_ranges(connection.answered_by.address)
        } else {
            connection.answered_by
        }
    }

    /// Returns the list of a route.
    pub(super) fn list(&self, family: Family, route: Option<Route>) -> Option<&EndpointList> {
        self.lists[family.index()].get(&route?.list()?)
    }

    /// Returns the endpoints of both routes of a frontend.
    pub(super) fn targets(&self, entry: &Entry) -> impl Iterator<Item = Target> {
        let family = entry.frontend.family();
        let lists = [entry.route, entry.internal].map(|route| self.list(family, route));
        lists.into_iter().flatten().flat_map(|list| list.targets.iter().copied())
    }

    /// Returns the frontend of packets to this address and port.
    pub fn frontend_of(&self, sent_to: Target, protocol: Protocol) -> Option<u32> {
        let Target { address, port } = sent_to;
        let at_address = Frontend::Address { address, protocol, port };
        let of_port = self.by_frontend.get(&at_address).copied().or_else(|| {
            let family = Family::of(address);
            let addresses = self.node_port_ips[family.index()].as_ref();
            let has_node_ports = addresses.is_none_or(|addresses| addresses.contains(&address));
            let node_port = Frontend::NodePort { family, protocol, port };
            self.by_frontend.get(&node_port).copied().filter(|_| has_node_ports)
        });
        let has_port = |place: &u32| {
            let entry = self.entries.get(*place as usize);
            entry.is_some_and(|it| it.blocks.iter().any(|block| block.contains(port)))
        };
        of_port.or_else(|| {
            let ranges = Frontend::Ranges { address, protocol };
            self.by_frontend.get(&ranges).copied().filter(has_port)
        })
    }

    /// Returns whether packets to this address can reach a frontend; a node port only at an address
    /// that the tables name.
    pub(super) fn is_at(&self, entry: &Entry, address: IpAddr) -> bool {
        match entry.frontend {
            Frontend::Address { address: own, .. } | Frontend::Ranges { address: own, .. } => {
                own == address
            }
            Frontend::NodePort { family, .. } => {
                let addresses = self.node_port_addresses(family);
                addresses.is_some_and(|addresses| addresses.contains(&address))
            }
        }
    }

    /// Returns the frontend of a connection.
    pub(super) fn of_connection(&self, connection: &Connection) -> Option<u32> {
        self.frontend_of(connection.sent_to, connection.protocol)
    }

    /// Returns the places of the frontends of the same service.
    pub(super) fn of_same_service(&self, place: usize) -> ops::Range<usize> {
        let service = |entry: &Entry| entry.name().0.to_owned();
        let Some(name) = self.entries.get(place).map(service) else { return 0..0 };
        if name.is_empty() {
            return place..place + 1;
        }
        let start = self.entries.partition_point(|entry| entry.name().0 < name.as_str());
        let count = self.entries[start..].partition_point(|entry| entry.name().0 == name);
        start..start + count
    }

    /// Returns whether two frontends belong to the same port of a service.
    pub(super) fn is_same_port(&self, one: usize, other: usize) -> bool {
        let label = |place: usize| &self.entries[place].label;
        one == other || (!label(one).is_empty() && label(one) == label(other))
    }

    /// Returns whether the service of the frontend at `place` has an endpoint, for any of its
    /// ports.
    pub(super) fn has_endpoint(&self, place: usize, target: Target) -> bool {
        let same = &self.entries[self.of_same_service(place)];
        same.iter().any(|entry| self.targets(entry).any(|it| it == target))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::num::NonZeroU16;

    use super::*;

    fn target(text: &str) -> Target {
        let socket: SocketAddr = text.parse().unwrap();
        Target { address: socket.ip(), port: NonZeroU16::new(socket.port()).unwrap() }
    }

    fn services(entries: &[(&str, Option<&str>)]) -> Services {
        let mut services = Services::default();
        let protocol = Protocol::Tcp;
        let entry = |(label, at): &(&str, Option<&str>)| {
            let frontend = match at.map(target) {
                Some(Target { address, port }) => Frontend::Address { address, protocol, port },
                None => Frontend::NodePort { family: Family::Ip, protocol, port: PORT },
            };
            Entry { label: (*label).into(), ..Entry::new(frontend) }
        };
        services.finish(entries.iter().map(entry).collect());
        services
    }

    const PORT: NonZeroU16 = NonZeroU16::new(30_080).unwrap();

    #[test]
    fn ports_of_a_service_stand_together_whatever_other_names_there_are() {
        let services = services(&[
            ("default/web:http", Some("10.96.0.1:80")),
            ("default/web-2:http", Some("10.96.0.2:80")),
            ("default/web", Some("10.96.0.3:80")),
            ("", Some("10.96.0.4:80")),
            ("", Some("10.96.0.5:80")),
            ("default/web:admin", None),
        ]);
        let labels: Vec<_> = services.entries.iter().map(|entry| &*entry.label).collect();
        let expected =
            ["", "", "default/web", "default/web:admin", "default/web:http", "default/web-2:http"];
        assert_eq!(labels, expected);
        let same = [0..1, 1..2, 2..5, 2..5, 2..5, 5..6];
        assert_eq!((0..6).map(|place| services.of_same_service(place)).collect::<Vec<_>>(), same);
    }

    #[test]
    fn a_node_port_is_only_at_addresses_that_have_node_ports() {
        let mut services = services(&[("a/b", Some("10.96.0.1:80")), ("a/b", None)]);
        let found = |services: &Services, to| services.frontend_of(target(to), Protocol::Tcp);
        assert_eq!(found(&services, "10.96.0.1:80"), Some(0));
        assert_eq!(found(&services, "192.0.2.1:30080"), Some(1));
        services.restrict_node_ports(Family::Ip);
        assert!(services.node_ports_are_closed(Family::Ip));
        assert!(!services.node_ports_are_closed(Family::Ip6));
        assert_eq!(found(&services, "192.0.2.2:30080"), None);
        services.add_node_port_ip("192.0.2.2".parse().unwrap());
        assert!(!services.node_ports_are_closed(Family::Ip));
        assert_eq!(found(&services, "192.0.2.1:30080"), None);
        assert_eq!(found(&services, "192.0.2.2:30080"), Some(1));
        assert_eq!(services.frontend_of(target("192.0.2.2:30080"), Protocol::Udp), None);
        assert_eq!(found(&services, "[fd00::1]:30080"), None);
    }
}
