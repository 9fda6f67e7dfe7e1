//! The settings of routing, applied to this node.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use nft::Name;
use nft::family::Family;

use crate::flowtable::MAX_NAME;
use crate::model::{Change, Cluster, Event, Node};
use crate::routing::{InterfaceName, LocalDetection, NodePortAddresses, Routing};
use crate::ruleset::LocalDetector;

/// Families in which no address of this node serves NodePorts, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedNodePorts {
    /// The only family; `None` if both are closed.
    family: Option<Family>,
    reason: ClosedReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClosedReason {
    NoNode,
    NoAddress,
    NoneInRanges,
    OnlyLocalhost,
}

impl ClosedNodePorts {
    /// Returns whether NodePorts are closed in both families.
    pub fn is_complete(&self) -> bool {
        self.family.is_none()
    }

    /// Returns whether NodePorts are closed in a family.
    pub fn has(&self, family: Family) -> bool {
        self.family.is_none_or(|it| it == family)
    }
}

impl fmt::Display for ClosedNodePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = self.family.map(|family| format!("{} ", family.name())).unwrap_or_default();
        write!(f, "{family}NodePorts are closed until that changes: ")?;
        match self.reason {
            ClosedReason::NoNode => f.write_str("this machine has no Node object"),
            ClosedReason::NoAddress => write!(f, "the Node object has no {family}address"),
            ClosedReason::NoneInRanges => {
                write!(f, "no interface has an {family}address in the ranges for NodePorts")
            }
            ClosedReason::OnlyLocalhost if self.family == Some(Family::Ip6) => f.write_str(
                "they are for localhost alone, which serves no IPv6 NodePorts without the daemon",
            ),
            ClosedReason::OnlyLocalhost => {
                write!(f, "they are for localhost alone, which serves no {family}NodePorts")
            }
        }
    }
}

impl Routing {
    /// Returns the ranges in which every address is that of a served Service, or of none. Where other
    /// programs serve Services too, there are no such ranges.
    pub(super) fn own_ranges(&self, cluster: &Cluster) -> Vec<IpNet> {
        if self.services.is_default() { cluster.service_cidrs() } else { Vec::new() }
    }

    /// Returns how rules distinguish packets of pods in one family, if that is possible.
    pub(super) fn local_detector(
        &self,
        node: Option<&Node>,
        family: Family,
    ) -> Option<LocalDetector> {
        let name = |name: &InterfaceName| Name::Owned(name.as_str().to_owned());
        Some(match &self.local_detection {
            LocalDetection::ClusterCidr(cidrs) => LocalDetector::Range(cidrs.of(family)?),
            LocalDetection::NodeCidr => {
                let mut ranges = node?.pod_cidrs.iter();
                LocalDetector::Range(*ranges.find(|range| Family::of(range.addr()) == family)?)
            }
            LocalDetection::BridgeInterface(bridge) => LocalDetector::Interface(name(bridge)),
            // nft(8) cannot read a prefix of this length. Only the name itself starts with it.
            LocalDetection::InterfaceNamePrefix(prefix) if prefix.as_str().len() == MAX_NAME => {
                LocalDetector::Interface(name(prefix))
            }
            LocalDetection::InterfaceNamePrefix(prefix) => {
                LocalDetector::InterfacePrefix(name(prefix))
            }
        })
    }

    /// Removes addresses from an event that the settings exclude. Puts the node's own address
    /// first, and sets the scheduler of services that name none.
    pub fn adapt(&self, event: &mut Event) {
        if let Event::Service(Change::Is(service)) = event {
            service.scheduler.get_or_insert(self.scheduler);
            if !self.external_addresses.external_ips {
                service.external_ips.clear();
            }
        } else if let Event::Node(Change::Is(node)) = event {
            node.addresses.splice(..0, self.node_ip);
        }
    }

    /// Returns whether more than elements of sets depends on the Node object.
    pub(super) fn rules_depend_on_node(&self) -> bool {
        self.local_detection == LocalDetection::NodeCidr
    }

    /// Returns whether every local address of a family serves NodePorts: a range holds all of them,
    /// or the list has no entry for the family. The keywords count for both families.
    pub(super) fn node_ports_everywhere(&self, family: Family) -> bool {
        let addresses = &self.node_port_addresses;
        let mut own = addresses.ranges.iter().filter(|range| Family::of(range.addr()) == family);
        let is_silent = !addresses.primary && !addresses.localhost && own.clone().next().is_none();
        is_silent || own.any(|range| range.prefix_len() == 0)
    }

    /// Returns the families without an address in `open` (from [`Routing::node_port_ips`]) that
    /// serves NodePorts.
    pub(super) fn closed_node_ports(
        &self,
        node: Option<&Node>,
        open: &[IpAddr],
    ) -> Option<ClosedNodePorts> {
        let mut closed = Family::ALL.into_iter().filter(|family| {
            let mut own = open.iter().filter(|address| Family::of(**address) == *family);
            !self.node_ports_everywhere(*family) && own.next().is_none()
        });
        let first = closed.next()?;
        let family = closed.next().is_none().then_some(first);
        let addresses = &self.node_port_addresses;
        let reason = match node {
            None if addresses.primary => ClosedReason::NoNode,
            Some(_) if addresses.primary => ClosedReason::NoAddress,
            _ if addresses.ranges.is_empty() => ClosedReason::OnlyLocalhost,
            _ => ClosedReason::NoneInRanges,
        };
        Some(ClosedNodePorts { family, reason })
    }

    /// Returns the addresses that accept node port traffic, for the families where not all do.
    /// Includes loopback addresses if `serves_localhost`.
    pub(super) fn node_port_ips(
        &self,
        node: Option<&Node>,
        local: &[IpAddr],
        serves_localhost: bool,
    ) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        let NodePortAddresses { primary, ranges, .. } = &self.node_port_addresses;
        for family in Family::ALL.into_iter().filter(|it| !self.node_ports_everywhere(*it)) {
            let of_family = |address: &&IpAddr| Family::of(**address) == family;
            let own = |address: &&IpAddr| of_family(address) && !address.is_loopback();
            let known = node.filter(|_| *primary).map_or(&[][..], |node| &node.addresses);
            addresses.extend(known.iter().find(own));
            let inside = |address: &&IpAddr| ranges.iter().any(|range| range.contains(*address));
            addresses.extend(local.iter().filter(own).filter(inside));
            if serves_localhost && family == Family::Ip {
                let named = |it: &&IpAddr| self.node_port_addresses.names_loopback(it);
                let loopback = local.iter().filter(of_family).filter(|it| it.is_loopback());
                addresses.extend(loopback.filter(named));
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectName;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    #[track_caller]
    fn check(entries: &str, serves_localhost: bool, expected: &[&str]) {
        let node = Node {
            name: ObjectName::cluster_scoped("node"),
            zone: None,
            addresses: ips(&["192.168.50.2", "192.168.51.2", "fd00::2", "fd00::3"]),
            pod_cidrs: Vec::new(),
            leaving: false,
        };
        let local = ips(&["127.0.0.1", "192.168.50.2", "192.168.50.3", "10.0.0.1", "fd00::9"]);
        let node_port_addresses = entries.parse().unwrap();
        let routing = Routing { node_port_addresses, ..Routing::default() };
        let found = routing.node_port_ips(Some(&node), &local, serves_localhost);
        assert_eq!(found, ips(expected), "{entries}");
    }

    #[test]
    fn the_first_pod_range_of_each_family_counts_once_there_is_a_node() {
        let routing = Routing { local_detection: LocalDetection::NodeCidr, ..Routing::default() };
        let node = Node {
            name: ObjectName::cluster_scoped("node"),
            zone: None,
            addresses: Vec::new(),
            pod_cidrs: ["10.1.0.0/24", "10.2.0.0/24"].map(|range| range.parse().unwrap()).into(),
            leaving: false,
        };
        assert_eq!(routing.local_detector(None, Family::Ip), None);
        let first = LocalDetector::Range("10.1.0.0/24".parse().unwrap());
        assert_eq!(routing.local_detector(Some(&node), Family::Ip), Some(first));
        assert_eq!(routing.local_detector(Some(&node), Family::Ip6), None);
    }

    #[test]
    fn a_prefix_of_full_length_is_a_name() {
        let detector = |text: &str| {
            let local_detection = LocalDetection::InterfaceNamePrefix(text.parse().unwrap());
            Routing { local_detection, ..Routing::default() }.local_detector(None, Family::Ip)
        };
        let full = LocalDetector::Interface("fifteen-letters".into());
        assert_eq!(detector("fifteen-letters"), Some(full));
        let shorter = LocalDetector::InterfacePrefix("fifteen-letter".into());
        assert_eq!(detector("fifteen-letter"), Some(shorter));
    }

    #[test]
    fn the_nodes_own_address_comes_before_those_of_its_object() {
        let routing = Routing { node_ip: Some([10, 0, 0, 1].into()), ..Routing::default() };
        let mut event = Event::Node(Change::Is(Node {
            name: ObjectName::cluster_scoped("node"),
            zone: None,
            addresses: ips(&["192.168.50.2", "fd00::2"]),
            pod_cidrs: Vec::new(),
            leaving: false,
        }));
        routing.adapt(&mut event);
        let Event::Node(Change::Is(node)) = event else { panic!("it was one of a node") };
        assert_eq!(routing.node_port_ips(Some(&node), &[], false), ips(&["10.0.0.1", "fd00::2"]));
    }

    #[test]
    fn primary_is_the_first_address_of_each_family() {
        check("primary", false, &["192.168.50.2", "fd00::2"]);
    }

    #[test]
    fn ranges_select_interface_addresses() {
        let expected = ["192.168.50.2", "192.168.50.3", "fd00::9"];
        check("192.168.50.0/24,fd00::/8", false, &expected);
    }

    #[test]
    fn a_family_without_a_range_is_open_everywhere_and_needs_no_list() {
        check("192.168.50.0/24", false, &["192.168.50.2", "192.168.50.3"]);
    }

    #[test]
    fn keywords_are_about_both_families() {
        check("10.0.0.0/8,primary", false, &["10.0.0.1", "192.168.50.2", "fd00::2"]);
        check("10.0.0.0/8,localhost", true, &["10.0.0.1", "127.0.0.1"]);
        check("localhost", true, &["127.0.0.1"]);
        check("primary,127.0.0.0/8", true, &["127.0.0.1", "192.168.50.2", "fd00::2"]);
        check("primary,127.0.0.2/32", true, &["192.168.50.2", "fd00::2"]);
        check("primary,127.0.0.0/8", false, &["192.168.50.2", "fd00::2"]);
        check("localhost,primary", true, &["127.0.0.1", "192.168.50.2", "fd00::2"]);
        check("all,localhost", true, &[]);
        check("0.0.0.0/0,localhost,primary", true, &["fd00::2"]);
    }

    #[test]
    fn a_loopback_address_accepts_node_ports_with_the_keyword_and_where_the_kernel_allows() {
        check("127.0.0.0/8,::/0", false, &[]);
        check("127.0.0.0/8,::1/128", false, &[]);
        check("primary,localhost", false, &["192.168.50.2", "fd00::2"]);
        check("localhost", false, &[]);
    }

    #[test]
    fn closed_node_ports_are_reported_with_the_reason() {
        let node = Node {
            name: ObjectName::cluster_scoped("node"),
            zone: None,
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            leaving: false,
        };
        let text = |ranges: &str, node: Option<&Node>, open: &[&str]| {
            let node_port_addresses = ranges.parse().unwrap();
            let routing = Routing { node_port_addresses, ..Routing::default() };
            routing.closed_node_ports(node, &ips(open)).map(|closed| closed.to_string())
        };
        assert_eq!(text("primary", Some(&node), &["10.0.0.1", "fd00::1"]), None);
        assert_eq!(text("10.0.0.0/8", None, &["10.0.0.1"]), None);
        for (text, expected) in [
            (
                text("primary", None, &[]),
                "NodePorts are closed until that changes: this machine has no Node object",
            ),
            (
                text("primary", Some(&node), &["10.0.0.1"]),
                "IPv6 NodePorts are closed until that changes: the Node object has no IPv6 address",
            ),
            (
                text("10.0.0.0/8", Some(&node), &[]),
                "IPv4 NodePorts are closed until that changes: \
                 no interface has an IPv4 address in the ranges for NodePorts",
            ),
            (
                text("localhost", Some(&node), &["127.0.0.1"]),
                "IPv6 NodePorts are closed until that changes: \
                 they are for localhost alone, which serves no IPv6 NodePorts without the daemon",
            ),
            (
                text("localhost", Some(&node), &[]),
                "NodePorts are closed until that changes: \
                 they are for localhost alone, which serves no NodePorts",
            ),
        ] {
            assert_eq!(text.as_deref(), Some(expected));
        }
    }

    #[test]
    fn without_a_node_object_primary_is_nothing() {
        let local = ips(&["192.168.50.2"]);
        assert_eq!(Routing::default().node_port_ips(None, &local, false), ips(&[]));
    }
}
