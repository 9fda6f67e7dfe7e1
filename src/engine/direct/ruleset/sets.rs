//! The sets and maps of the table: names, types and comments.

use nft::{Family, Set, SetFlags, Type};

use super::inner::Inner;

/// A set or map of the table, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DirectSet {
    /// `hardware address`
    NodeHardwareAddresses,
    /// `address`
    Addresses(Family),
    /// `address . protocol . port : route`
    Frontends(Family),
    /// `address . protocol . port : route`; the same elements as in the frontends, for packets
    /// inside ICMP errors.
    ErrorFrontends(Family),
    /// `list . slot : node`
    Nodes,
    /// `node : address`
    NodeAddresses(Family),
    /// `node : index of a device`
    NodeDevices,
    /// `list . hash of the client : node`; only packets write it.
    Connections,
    /// `address . address . packet number . protocol : node`, and for IPv6 `hash of source and packet
    /// number : node`; only packets write it.
    Fragments(Family),
}

/// Maximum number of packets in fragments whose node is known.
const FRAGMENTS: u32 = 16_384;

impl DirectSet {
    /// All sets and maps, in the order of creation.
    pub const ALL: [Self; 14] = [
        Self::NodeHardwareAddresses,
        Self::Addresses(Family::Ip),
        Self::Addresses(Family::Ip6),
        Self::Frontends(Family::Ip),
        Self::Frontends(Family::Ip6),
        Self::ErrorFrontends(Family::Ip),
        Self::ErrorFrontends(Family::Ip6),
        Self::Nodes,
        Self::NodeAddresses(Family::Ip),
        Self::NodeAddresses(Family::Ip6),
        Self::NodeDevices,
        Self::Connections,
        Self::Fragments(Family::Ip),
        Self::Fragments(Family::Ip6),
    ];

    /// Returns its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeHardwareAddresses => "node-hardware-addresses",
            Self::Addresses(family) => ["addresses4", "addresses6"][family.index()],
            Self::Frontends(family) => ["frontends4", "frontends6"][family.index()],
            Self::ErrorFrontends(family) => {
                ["error-frontends4", "error-frontends6"][family.index()]
            }
            Self::Nodes => "nodes",
            Self::NodeAddresses(family) => ["node-addresses4", "node-addresses6"][family.index()],
            Self::NodeDevices => "node-devices",
            Self::Connections => "connections",
            Self::Fragments(family) => ["fragments4", "fragments6"][family.index()],
        }
    }

    /// Returns the set with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Returns whether only packets write its elements.
    pub const fn is_written_by_packets(self) -> bool {
        matches!(self, Self::Connections | Self::Fragments(_))
    }

    const fn comment(self) -> &'static str {
        match self {
            Self::NodeHardwareAddresses => {
                "of the other nodes; a packet from a node is served here and never handed on again"
            }
            Self::Addresses(Family::Ip) => {
                "addresses with such a service; packets to all others pass one rule"
            }
            Self::Addresses(Family::Ip6) => "as addresses4",
            Self::Frontends(Family::Ip) => "service address : list of nodes, flags and size",
            Self::Frontends(Family::Ip6) => "as frontends4",
            Self::ErrorFrontends(Family::Ip) => {
                "the same elements, for the packet inside an ICMP error: protocol and source port"
            }
            Self::ErrorFrontends(Family::Ip6) => "as error-frontends4",
            Self::Nodes => "list . slot : number of a node; both families",
            Self::NodeAddresses(Family::Ip) => {
                "number : address of another node on this link whose hardware address is known"
            }
            Self::NodeAddresses(Family::Ip6) => "as node-addresses4",
            Self::NodeDevices => "number : device that leads to the node",
            Self::Connections => {
                "list . hash of the client : node; both families; written by packets only"
            }
            Self::Fragments(Family::Ip) => {
                "packet : node of its first fragment, since later ones have no ports"
            }
            Self::Fragments(Family::Ip6) => "the same by a hash of source and number of the packet",
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
        let address = |family: Family| [Type::Ipv4Addr, Type::Ipv6Addr][family.index()];
        match self {
            Self::NodeHardwareAddresses => (vec![Type::EtherAddr], vec![]),
            Self::Addresses(family) => (vec![address(family)], vec![]),
            Self::Frontends(family) => {
                (vec![address(family), Type::InetProto, Type::InetService], vec![class])
            }
            Self::ErrorFrontends(family) => {
                let places = [Inner::protocol(family), Inner::service_port(family)];
                let [protocol, port] = places.map(Inner::of_type);
                (vec![address(family), protocol, port], vec![class])
            }
            Self::Nodes | Self::Connections => (vec![class, Type::Integer], vec![mark]),
            Self::NodeAddresses(family) => (vec![mark], vec![address(family)]),
            Self::NodeDevices => (vec![mark], vec![Type::IfaceIndex]),
            Self::Fragments(Family::Ip) => {
                let packet = [Type::IpSaddr, Type::Ipv4Addr, Type::IpId, Type::IpProtocol];
                (packet.to_vec(), vec![mark])
            }
            Self::Fragments(Family::Ip6) => (vec![Type::Integer], vec![mark]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_is_found_by_its_name_and_has_a_comment_that_nft_can_load() {
        assert!(DirectSet::ALL.is_sorted_by(|first, next| first < next));
        for set in DirectSet::ALL {
            assert_eq!(DirectSet::by_name(set.name()), Some(set));
            assert!(set.comment().len() <= 128, "{}", set.name());
        }
    }

    #[test]
    fn the_places_of_the_packet_inside_an_error_are_those_of_its_header() {
        let text = |set: DirectSet| set.set(1).to_string();
        let start = "error-frontends4 { typeof ip daddr . @th,136,8 . @th,224,16 : meta priority;";
        assert!(text(DirectSet::ErrorFrontends(Family::Ip)).starts_with(start));
        let start = "error-frontends6 { typeof ip6 daddr . @th,112,8 . @th,384,16 : meta priority;";
        assert!(text(DirectSet::ErrorFrontends(Family::Ip6)).starts_with(start));
    }

    #[test]
    fn sets_that_packets_write_have_a_size_and_no_other_has_one() {
        for set in DirectSet::ALL {
            let Set { size, flags, .. } = set.set(7);
            assert_eq!(size.is_some(), set.is_written_by_packets());
            assert_eq!((flags.dynamic, flags.timeout), (size.is_some(), size.is_some()));
        }
        assert_eq!(DirectSet::Connections.set(7).size, Some(7));
        assert_eq!(DirectSet::Fragments(Family::Ip).set(7).size, Some(16_384));
    }
}
