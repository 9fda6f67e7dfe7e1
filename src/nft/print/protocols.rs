//! The protocols of a packet as far as a rule has matched them.
//!
//! nft(8) adds a match of the protocol where a field needs one (`tcp dport` matches `meta l4proto
//! tcp` first), and leaves it out when it lists the rule.

use super::headers::{self, ETHER, IP, IP6, ProtocolHeader, VLAN};
use super::load::{Role, Space};
use crate::family::TableFamily;

/// A match of a protocol that a field of that protocol makes redundant.
#[derive(Clone, Copy, Debug)]
struct Dependency {
    /// Index of the statement.
    statement: usize,
    /// The match is of a field of the network header.
    of_network_header: bool,
}

/// The protocols that are known, and their matches.
pub(super) struct Protocols {
    family: TableFamily,
    pub(super) link: Option<&'static ProtocolHeader>,
    pub(super) network: Option<&'static ProtocolHeader>,
    pub(super) transport: Option<&'static ProtocolHeader>,
    pub(super) icmp_type: Option<(u128, usize)>,
    link_match: Option<Dependency>,
    network_match: Option<Dependency>,
    transport_match: Option<Dependency>,
}

impl Protocols {
    pub(super) fn new(family: TableFamily) -> Self {
        let network = match family {
            TableFamily::Arp => Some(&headers::ARP),
            TableFamily::Ip => Some(&IP),
            TableFamily::Ip6 => Some(&IP6),
            TableFamily::Inet | TableFamily::Bridge | TableFamily::Netdev => None,
        };
        let has_link = matches!(family, TableFamily::Bridge | TableFamily::Netdev);
        Self {
            family,
            link: has_link.then_some(&ETHER),
            network,
            transport: None,
            icmp_type: None,
            link_match: None,
            network_match: None,
            transport_match: None,
        }
    }

    /// Several network protocols are possible.
    fn is_mixed(&self) -> bool {
        matches!(self.family, TableFamily::Inet | TableFamily::Bridge | TableFamily::Netdev)
    }

    /// Notes that `statement` compares metadata for equality with a number.
    pub(super) fn learn(&mut self, role: Role, value: u128, statement: usize) -> Option<usize> {
        let found = Some(Dependency { statement, of_network_header: false });
        match role {
            Role::None => {}
            Role::LinkType => {
                self.link = (value == 1).then_some(&ETHER);
                self.link_match = found;
            }
            Role::EtherType => self.learn_network(headers::network(value), found),
            Role::Family => {
                let network = match value {
                    2 => Some(&IP),
                    10 => Some(&IP6),
                    _ => None,
                };
                self.learn_network(network, found);
            }
            Role::Transport => {
                self.transport = headers::transport(value);
                self.transport_match = found;
                if !self.is_mixed() {
                    return self.network_match.take().map(|dependency| dependency.statement);
                }
            }
        }
        None
    }

    fn learn_network(
        &mut self,
        network: Option<&'static ProtocolHeader>,
        found: Option<Dependency>,
    ) {
        // No packet matches a rule about another family than the table's.
        if !self.is_mixed() && self.network != network {
            return;
        }
        self.network = network;
        self.network_match = found;
    }

    /// Notes that `statement` compares a header's field for equality with a number.
    pub(super) fn learn_field(
        &mut self,
        (header, field): (&'static ProtocolHeader, &str),
        value: u128,
        statement: usize,
    ) {
        let found = Some(Dependency { statement, of_network_header: true });
        match (header.name, field) {
            ("ether", "type") if matches!(value, 0x8100 | 0x88a8) => {
                self.link = Some(&VLAN);
                self.link_match = found;
            }
            ("ether" | "vlan", "type") => self.learn_network(headers::network(value), found),
            ("ip", "protocol") | ("ip6", "nexthdr") => {
                self.transport = headers::transport(value);
                self.transport_match = found;
            }
            ("icmp" | "icmpv6", "type") => self.icmp_type = Some((value, statement)),
            _ => {}
        }
    }

    /// Returns the statements that a use of this field makes redundant.
    pub(super) fn redundant(
        &mut self,
        space: Space,
        header: &ProtocolHeader,
        field: &str,
    ) -> Vec<usize> {
        let mut found = Vec::new();
        match space {
            Space::Link if self.is_mixed() && (header.name, field) == ("vlan", "type") => {}
            Space::Link => found.extend(self.link_match.take()),
            Space::Network | Space::Extension(_) | Space::IpOption(_) => {
                found.extend(self.network_match.take());
            }
            Space::Transport | Space::TcpOption(_) | Space::SctpChunk(_) => {
                found.extend(self.redundant_transport(header));
            }
            Space::Inner => {}
        }
        let mut statements: Vec<_> =
            found.into_iter().map(|dependency| dependency.statement).collect();
        let needs = matches!((header.name, field), ("icmp" | "icmpv6", "mtu" | "gateway"))
            || matches!(field, "max-delay" | "parameter-problem");
        if needs {
            statements.extend(self.icmp_type.take().map(|(_, statement)| statement));
        }
        statements
    }

    fn redundant_transport(&mut self, header: &ProtocolHeader) -> Vec<Dependency> {
        if header.name == "th" {
            return Vec::new();
        }
        let is_icmp = matches!(header.name, "icmp" | "icmpv6");
        // `ip protocol` also says that the packet is IPv4.
        let keeps = |found: &mut Dependency| !found.of_network_header;
        let is_mixed = self.is_mixed();
        let transport = if is_mixed {
            self.transport_match.take_if(keeps)
        } else {
            self.transport_match.take()
        };
        let network = if is_icmp || !is_mixed { self.network_match.take() } else { None };
        transport.into_iter().chain(network).collect()
    }

    /// Returns the match of the network protocol, which the statement makes redundant.
    pub(super) fn take_network_match(&mut self) -> Option<usize> {
        self.network_match.take().map(|dependency| dependency.statement)
    }

    /// Returns the match of TCP, which a TCP reset makes redundant.
    pub(super) fn take_reset_match(&mut self) -> Option<usize> {
        if self.is_mixed() {
            return None;
        }
        self.transport_match.take().map(|dependency| dependency.statement)
    }

    /// Returns the header of a place.
    pub(super) fn header(&self, space: Space) -> Option<&'static ProtocolHeader> {
        match space {
            Space::Link => self.link,
            Space::Network => self.network,
            Space::Transport => Some(self.transport.unwrap_or(&headers::TRANSPORT)),
            Space::Inner => None,
            Space::Extension(kind) => headers::extension(kind),
            Space::TcpOption(kind) => headers::find(headers::TCP_OPTIONS, kind),
            Space::IpOption(kind) => headers::find(headers::IP_OPTIONS, kind),
            Space::SctpChunk(kind) => headers::find(headers::SCTP_CHUNKS, kind),
        }
    }
}
