//! The sets and maps of the table: names, types and comments.

use nft::{Family, Set, SetFlags, Type};

use super::inner::Inner;

/// A set or map of the table, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DirectSet {
    /// `hardware address`
    NodeHardwareAddresses,
    /// `address`, IPv4
    Addresses4,
    /// `address`, IPv6
    Addresses6,
    /// `address . protocol . port : route`, IPv4
    Frontends4,
    /// `address . protocol . port : route`, IPv6
    Frontends6,
    /// `address . protocol . port : route`, IPv4; the same elements as in `frontends4`, for packets
    /// inside ICMP errors.
    ErrorFrontends4,
    /// `address . protocol . port : route`, IPv6; the same elements as in `frontends6`.
    ErrorFrontends6,
    /// `list . slot : node`
    Nodes,
    /// `node : address`, IPv4
    NodeAddresses4,
    /// `node : address`, IPv6
    NodeAddresses6,
    /// `node : index of a device`
    NodeDevices,
    /// `list . hash of the client : node`; only packets write it.
    Connections,
    /// `address . address . packet number . protocol : node`; only packets write it.
    Fragments4,
    /// `hash of source and packet number : node`; only packets write it.
    Fragments6,
}

/// Maximum number of packets in fragments whose node is known.
const FRAGMENTS: u32 = 16_384;

impl DirectSet {
    /// All sets and maps, in the order of creation.
    pub const ALL: [Self; 14] = [
        Self::NodeHardwareAddresses,
        Self::Addresses4,
        Self::Addresses6,
        Self::Frontends4,
        Self::Frontends6,
        Self::ErrorFrontends4,
        Self::ErrorFrontends6,
        Self::Nodes,
        Self::NodeAddresses4,
        Self::NodeAddresses6,
        Self::NodeDevices,
        Self::Connections,
        Self::Fragments4,
        Self::Fragments6,
    ];

    /// Returns its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeHardwareAddresses => "node-hardware-addresses",
            Self::Addresses4 => "addresses4",
            Self::Addresses6 => "addresses6",
            Self::Frontends4 => "frontends4",
            Self::Frontends6 => "frontends6",
            Self::ErrorFrontends4 => "error-frontends4",
            Self::ErrorFrontends6 => "error-frontends6",
            Self::Nodes => "nodes",
            Self::NodeAddresses4 => "node-addresses4",
            Self::NodeAddresses6 => "node-addresses6",
            Self::NodeDevices => "node-devices",
            Self::Connections => "connections",
            Self::Fragments4 => "fragments4",
            Self::Fragments6 => "fragments6",
        }
    }

    /// Returns the set with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Returns the set of addresses with a service.
    pub const fn addresses(family: Family) -> Self {
        Self::of(family, [Self::Addresses4, Self::Addresses6])
    }

    /// Returns the map of frontends.
    pub const fn frontends(family: Family) -> Self {
        Self::of(family, [Self::Frontends4, Self::Frontends6])
    }

    /// Returns the map of frontends of packets inside ICMP errors.
    pub const fn error_frontends(family: Family) -> Self {
        Self::of(family, [Self::ErrorFrontends4, Self::ErrorFrontends6])
    }

    /// Returns the map of addresses of other nodes.
    pub const fn node_addresses(family: Family) -> Self {
        Self::of(family, [Self::NodeAddresses4, Self::NodeAddresses6])
    }

    /// Returns the map of packets in fragments.
    pub const fn fragments(family: Family) -> Self {
        Self::of(family, [Self::Fragments4, Self::Fragments6])
    }

    const fn of(family: Family, sets: [Self; 2]) -> Self {
        sets[family.index()]
    }

    /// Returns whether only packets write its elements.
    pub const fn is_written_by_packets(self) -> bool {
        matches!(self, Self::Connections | Self::Fragments4 | Self::Fragments6)
    }

    const fn comment(self) -> &'static str {
        match self {
            Self::NodeHardwareAddresses => {
                "of the other nodes; a packet from a node is served here and never handed on again"
            }
            Self::Addresses4 => {
                "addresses with such a service; packets to all others pass one rule"
            }
            Self::Addresses6 => "as addresses4",
            Self::Frontends4 => "service address : list of nodes, flags and size",
            Self::Frontends6 => "as frontends4",
            Self::ErrorFrontends4 => {
                "the same elements, for the packet inside an ICMP error: protocol and source port"
            }
            Self::ErrorFrontends6 => "as error-frontends4",
            Self::Nodes => "list . slot : number of a node; both families",
            Self::NodeAddresses4 => {
                "number : address of another node on this link whose hardware address is known"
            }
            Self::NodeAddresses6 => "as node-addresses4",
            Self::NodeDevices => "number : device that leads to the node",
            Self::Connections => {
                "list . hash of the client : node; both families; written by packets only"
            }
            Self::Fragments4 => {
                "packet : node of its first fragment, since later ones have no ports"
            }
            Self::Fragments6 => "the same by a hash of source and number of the packet",
        }
    }

    /// Returns the nftables set or map. `connections` is the maximum number of remembered
    /// connections.
    pub fn set(self, connections: u32) -> Set {
        let (key, data) = self.types();
        let is_written_by_packets = self.is_written_by_packets();
        let size = if self == Self::Connections { connections } else { FRAGMENTS };
        Set {
            name: self.name().into(),
            key,
            data,
            flags: SetFlags {
                interval: false,
                dynamic: is_written_by_packets,
                timeout: is_written_by_packets,
            },
            size: is_written_by_packets.then_some(size),
            comment: Some(self.comment().to_owned()),
            counter: false,
        }
    }

    /// Returns the types of key and data.
    fn types(self) -> (Vec<Type>, Vec<Type>) {
        let (class, mark) = (Type::ClassId, Type::Mark);
        let service = |address| vec![address, Type::InetProto, Type::InetService];
        let inner_service = |address, family| {
            let places = [Inner::protocol(family), Inner::service_port(family)];
            [vec![address], places.map(Inner::of_type).to_vec()].concat()
        };
        match self {
            Self::NodeHardwareAddresses => (vec![Type::EtherAddr], vec![]),
            Self::Addresses4 => (vec![Type::Ipv4Addr], vec![]),
            Self::Addresses6 => (vec![Type::Ipv6Addr], vec![]),
            Self::Frontends4 => (service(Type::Ipv4Addr), vec![class]),
            Self::Frontends6 => (service(Type::Ipv6Addr), vec![class]),
            Self::ErrorFrontends4 => (inner_service(Type::Ipv4Addr, Family::Ip), vec![class]),
            Self::ErrorFrontends6 => (inner_service(Type::Ipv6Addr, Family::Ip6), vec![class]),
            Self::Nodes | Self::Connections => (vec![class, Type::Integer], vec![mark]),
            Self::NodeAddresses4 => (vec![mark], vec![Type::Ipv4Addr]),
            Self::NodeAddresses6 => (vec![mark], vec![Type::Ipv6Addr]),
            Self::NodeDevices => (vec![mark], vec![Type::IfaceIndex]),
            Self::Fragments4 => {
                let packet = [Type::IpSaddr, Type::Ipv4Addr, Type::IpId, Type::IpProtocol];
                (packet.to_vec(), vec![mark])
            }
            Self::Fragments6 => (vec![Type::Integer], vec![mark]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_is_found_by_its_name_and_has_a_comment_that_nft_can_load() {
        for (i, set) in DirectSet::ALL.into_iter().enumerate() {
            assert_eq!(DirectSet::by_name(set.name()), Some(set));
            assert_eq!(set as usize, i);
            assert!(set.comment().len() <= 128, "{}", set.name());
        }
    }

    #[test]
    fn the_places_of_the_packet_inside_an_error_are_those_of_its_header() {
        let text = |set: DirectSet| set.set(1).to_string();
        let start = "error-frontends4 { typeof ip daddr . @th,136,8 . @th,224,16 : meta priority;";
        assert!(text(DirectSet::ErrorFrontends4).starts_with(start));
        let start = "error-frontends6 { typeof ip6 daddr . @th,112,8 . @th,384,16 : meta priority;";
        assert!(text(DirectSet::ErrorFrontends6).starts_with(start));
    }

    #[test]
    fn sets_that_packets_write_have_a_size_and_no_other_has_one() {
        for set in DirectSet::ALL {
            let Set { size, flags, .. } = set.set(7);
            assert_eq!(size.is_some(), set.is_written_by_packets());
            assert_eq!((flags.dynamic, flags.timeout), (size.is_some(), size.is_some()));
        }
        assert_eq!(DirectSet::Connections.set(7).size, Some(7));
        assert_eq!(DirectSet::Fragments4.set(7).size, Some(16_384));
    }
}
